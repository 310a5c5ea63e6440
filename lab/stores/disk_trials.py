"""Tries a disk tier with kills and damage, thousands of times over one folder that lives on.

Every page has a content of its own, so that a wrong byte shows. After each kill and each damage the
store must open, give no wrong byte, and have every page that was acknowledged and not spoiled.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NoReturn

from attrs import define, field

from kvcanon.disk import DiskIdentity, DiskStore, PageGet, PagePut
from kvcanon.disk.folders import JOURNAL
from kvcanon.disk.records import RECORD_BYTES, unpacked
from kvcanon.disk.slab import BLOCK_BYTES, slot_blocks
from kvcanon.lab.stores.disk_harm import HARMS, Harmed, nothing

IDENTITY = DiskIdentity({"lab": "faults"})
SEGMENT_BYTES = 9 * BLOCK_BYTES
LENGTHS = (300, 5000, 12_000)
PROMPTS = 6
PAGES = 8
LONGEST_SECONDS = 0.03
"""How long a process puts pages before it is killed, at most."""
KILL = "kill -9"


@define
class DiskTrials:
    """A folder that is used, killed and damaged, and what came of it."""

    root: Path
    seed: int
    store_class: type[DiskStore] = DiskStore
    random: Random = field(init=False)
    acknowledged: set[int] = field(factory=set)
    """The pages that must be found."""
    places: dict[int, tuple[int, int]] = field(factory=dict)
    """For each page in the store its first block, and its length."""
    old: bytes = b""
    """A journal of an earlier time."""
    trials: Counter[str] = field(factory=Counter)
    """How often each thing was done."""
    found: int = 0
    """Pages that were read, whole."""
    spoiled: int = 0
    """Pages that the damage spoiled, which may be missed."""
    wrong: list[str] = field(factory=list)
    """What must not be, in words."""

    def __attrs_post_init__(self) -> None:
        self.random = Random(f"disk {self.seed}")

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        return self.root / IDENTITY.folder

    def damage(self) -> None:
        """Use the store, end it, damage it, and look at what is left."""
        closes = self.random.random() < 0.5
        with self.opened() as store:
            self.use(store)
            self.look_up_places(store)
            if not closes:
                _end_as_a_kill(store)
        harm = self.random.choice(HARMS)
        done = harm(self.folder, self.random, self.old) if self.old else Harmed(nothing.__name__)
        self.note_spoiled(done)
        self.trials[done.words] += 1
        self.check(done.words)
        journal = self.folder / JOURNAL
        if journal.exists() and (self.random.random() < 0.1 or not self.old):
            self.old = journal.read_bytes()

    def kill(self) -> None:
        """Let a process put pages until it is killed, and look at what is left."""
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reads)
            _put_until_killed(self.root, self.random.randrange(1 << 30), writes)
        os.close(writes)
        time.sleep(0.02 + self.random.random() * LONGEST_SECONDS)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with os.fdopen(reads, "rb") as pipe:
            said = pipe.read()
        self.acknowledged |= set(said)
        self.trials[KILL] += 1
        self.check(KILL)

    def use(self, store: DiskStore) -> None:
        """Put some pages, and remove one at times."""
        for _ in range(self.random.randrange(1, 4)):
            numbers = _drawn(self.random)
            done = store.put([_page(number) for number in numbers])
            self.acknowledged |= {each for each, good in zip(numbers, done, strict=True) if good}
            if not all(done):
                self.wrong.append(f"seed {self.seed}: a put was answered with no")
        if self.random.random() < 0.1:
            number = self.random.randrange(PROMPTS * PAGES)
            store.remove([(_name(number), 0)])
            self.acknowledged.discard(number)

    def look_up_places(self, store: DiskStore) -> None:
        """Note where each page is."""
        self.places = {}
        for number in range(PROMPTS * PAGES):
            packed = store.parts.index.find(_name(number), 0)
            record = unpacked(packed) if packed is not None else None
            if record is not None:
                self.places[number] = (record.block, record.length)

    def note_spoiled(self, done: Harmed) -> None:
        """Which pages may be missed after a damage: those of whose bytes or record it took some."""
        for number, (block, length) in self.places.items():
            begin = block * BLOCK_BYTES
            end = begin + slot_blocks(length) * BLOCK_BYTES
            parts = ((begin, begin + length), (end - RECORD_BYTES, end))
            if any(first < done.slab_until and done.slab_from < last for first, last in parts):
                self.spoiled += number in self.acknowledged
                self.acknowledged.discard(number)

    def check(self, after: str) -> None:
        """Open the store, and read all pages."""
        trial = f"seed {self.seed}, trial {sum(self.trials.values())}, {after}"
        try:
            with self.opened() as store:
                there = {
                    each for each in range(PROMPTS * PAGES) if self.is_found(store, each, trial)
                }
        except Exception as error:  # noqa: BLE001  # Whatever it raises is a finding.
            self.wrong.append(f"{trial}: open raised {type(error).__name__}: {error}")
            shutil.rmtree(self.root)
            self.acknowledged, self.old = set(), b""
            return
        self.found += len(there)
        self.wrong += [f"{trial}: page {each} is lost" for each in self.acknowledged - there]
        self.acknowledged = there

    def is_found(self, store: DiskStore, number: int, trial: str) -> bool:
        """Whether a page is given; a wrong byte is noted."""
        content = _content(number)
        buffer = bytearray(len(content))
        (length,) = store.get([PageGet(_name(number), (memoryview(buffer),))])
        if length is not None and (length, bytes(buffer)) != (len(content), content):
            self.wrong.append(f"{trial}: page {number} has wrong bytes")
        return length is not None

    @contextmanager
    def opened(self) -> Iterator[DiskStore]:
        """The store, which is closed at the end."""
        store = _open(self.root, self.store_class)
        try:
            yield store
        finally:
            store.close()


def _open(root: Path, store_class: type[DiskStore] = DiskStore) -> DiskStore:
    return store_class.open(root, IDENTITY, segment_bytes=SEGMENT_BYTES)


def _drawn(random: Random) -> list[int]:
    """Consecutive pages of a prompt, from its beginning."""
    prompt = random.randrange(PROMPTS)
    return list(range(prompt * PAGES, prompt * PAGES + random.randrange(1, PAGES + 1)))


def _name(number: int) -> bytes:
    return hashlib.sha256(b"page %d" % number).digest()


def _content(number: int) -> bytes:
    length = LENGTHS[number % len(LENGTHS)]
    return hashlib.shake_128(b"content %d" % number).digest(length)


def _page(number: int) -> PagePut:
    parent = _name(number - 1) if number % PAGES else None
    return PagePut(_name(number), (memoryview(_content(number)),), parent)


def _end_as_a_kill(store: DiskStore) -> None:
    """End a store as a kill does: what is not written is lost, and the lock is free."""
    store.closed = True
    store.executor.shutdown()
    store.parts.ledger.journal.close()
    store.parts.slab.close()
    store.parts.folder.close()


def _put_until_killed(root: Path, seed: int, pipe: int) -> NoReturn:
    """Put pages, and say through a pipe which are acknowledged. Pages go and come again."""
    random = Random(seed)
    try:
        while True:
            store = _open(root)
            for _ in range(random.randrange(1, 8)):
                numbers = _drawn(random)
                done = store.put([_page(number) for number in numbers])
                os.write(
                    pipe, bytes(each for each, good in zip(numbers, done, strict=True) if good)
                )
            store.close()
    finally:
        os._exit(1)
