"""Measures ways to keep pages on a disk in alternating rounds, and the restart of a large store.

A shared disk slows down after some gigabytes, and a busy machine at any time. So all ways take
turns within a round, little is written, and what counts is the ratio to the raw file of the round.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from attrs import frozen

from kvcanon.disk import DiskIdentity, DiskStore
from kvcanon.disk.folders import CURRENT, JOURNAL, SLAB
from kvcanon.disk.records import NO_NAME, DiskRecord, RecordKind
from kvcanon.disk.segments import LABEL_BLOCKS
from kvcanon.disk.slab import BLOCK_BYTES
from kvcanon.lab.bench.store_contestants import BATCH, MakeKeeper, aligned_pages, removed

PROMPT_PAGES = 100


@frozen
class StoreTime:
    """What one way took for one round."""

    way: str
    page_bytes: int
    round: int
    moved_bytes: int
    write_seconds: float
    write_cpu_seconds: float
    read_seconds: float
    read_cpu_seconds: float


@frozen
class StoreRatio:
    """A way beside the raw one: medians over the rounds."""

    way: str
    raw: str
    """The name of the raw way."""
    page_bytes: int
    write_cpu: float
    """Processor seconds a gigabyte."""
    read_cpu: float
    write_gb_s: float
    read_gb_s: float
    write_cpu_ratio: float
    """Processor seconds of this process over those of the raw way in the same round."""
    read_cpu_ratio: float
    write_speed_ratio: float
    read_speed_ratio: float


@frozen
class RestartTime:
    """How long a store takes to open."""

    pages: int
    after_close_seconds: float
    after_close_cpu_seconds: float
    after_kill_seconds: float
    after_kill_cpu_seconds: float
    memory_bytes: int


def measure_ways(
    ways: Mapping[str, MakeKeeper],
    folder: Path,
    *,
    page_bytes: int,
    round_bytes: int,
    rounds: int,
    said: Callable[[], object],
) -> list[StoreTime]:
    """Measure every way in each round; each round begins with another."""
    count = max(1, round_bytes // page_bytes)
    pages = aligned_pages(page_bytes, min(count, BATCH))
    times = []
    for number in range(rounds):
        for way in islice(cycle(ways), number, number + len(ways)):
            place = folder / f"{way.replace(' ', '-')}-{number}"
            keeper = ways[way](place, page_bytes, count)
            try:
                written = _timed(count, pages, keeper.write)
                keeper.forget()
                read = _timed(count, pages, keeper.read)
            finally:
                keeper.close()
                removed(place)
            times.append(StoreTime(way, page_bytes, number, count * page_bytes, *written, *read))
            said()
    return times


def _timed(
    count: int,
    pages: Sequence[memoryview],
    move: Callable[[int, Sequence[memoryview]], None],
) -> tuple[float, float]:
    """How long all batches take, and how much of the processor, in seconds."""
    began, used = time.perf_counter(), time.process_time()
    for first in range(0, count, BATCH):
        move(first, pages[: min(BATCH, count - first)])
    return time.perf_counter() - began, time.process_time() - used


def ratios(times: Sequence[StoreTime], floor: str) -> list[StoreRatio]:
    """Every way beside the one of this name in the same round."""
    floors = {(each.page_bytes, each.round): each for each in times if each.way == floor}
    found = []
    for page_bytes in dict.fromkeys(each.page_bytes for each in times):
        for way in dict.fromkeys(each.way for each in times):
            own = [each for each in times if (each.way, each.page_bytes) == (way, page_bytes)]
            beside = [(each, floors[page_bytes, each.round]) for each in own]
            found.append(
                StoreRatio(
                    way,
                    floor,
                    page_bytes,
                    median(each.write_cpu_seconds / each.moved_bytes * 1e9 for each in own),
                    median(each.read_cpu_seconds / each.moved_bytes * 1e9 for each in own),
                    median(each.moved_bytes / 1e9 / each.write_seconds for each in own),
                    median(each.moved_bytes / 1e9 / each.read_seconds for each in own),
                    median(a.write_cpu_seconds / b.write_cpu_seconds for a, b in beside),
                    median(a.read_cpu_seconds / b.read_cpu_seconds for a, b in beside),
                    median(b.write_seconds / a.write_seconds for a, b in beside),
                    median(b.read_seconds / a.read_seconds for a, b in beside),
                )
            )
    return found


def measure_restart(folder: Path, pages: int) -> RestartTime:
    """Open a store with so many small pages, after a close and after a kill.

    Its slab is a file with holes: a restart reads the journal, and after a kill the end of each
    slot, but no page.
    """
    identity = DiskIdentity({"bench": "restart"})
    store = DiskStore.open(folder, identity)
    place, shape = store.parts.folder.path, store.parts.room.segments
    per_segment = shape.most_blocks
    segments = -(-pages // per_segment)
    ledger = store.parts.ledger
    ledger.generation = pages + 2
    labels = [
        ledger.segment(number * shape.segment_blocks, 1, 1).packed() for number in range(segments)
    ]
    header = ledger.header(pages + segments, closed=True)
    store.close()
    records = _many_records(identity.fingerprint, pages, shape.segment_blocks)
    (place / JOURNAL).write_bytes(header.packed() + b"".join(labels) + records)
    (place / CURRENT).write_bytes(header.packed())
    os.truncate(place / SLAB, segments * shape.segment_blocks * BLOCK_BYTES)
    before = _resident_bytes()
    store, close_seconds, close_cpu_seconds = _timed_open(folder, identity)
    memory = _resident_bytes() - before
    if store.statistics().pages != pages:
        raise ValueError(f"{store.statistics().pages} of {pages} pages were found")
    store.closed = True  # As a kill leaves it: the journal says that it is open.
    store.executor.shutdown()
    store.parts.folder.close()
    again, kill_seconds, kill_cpu_seconds = _timed_open(folder, identity)
    again.close()
    return RestartTime(
        pages, close_seconds, close_cpu_seconds, kill_seconds, kill_cpu_seconds, memory
    )


def _timed_open(folder: Path, identity: DiskIdentity) -> tuple[DiskStore, float, float]:
    """Open a store; how long it takes, and how much of the processor, in seconds."""
    began, used = time.perf_counter(), time.process_time()
    store = DiskStore.open(folder, identity)
    return store, time.perf_counter() - began, time.process_time() - used


def _many_records(fingerprint: bytes, pages: int, segment_blocks: int) -> bytes:
    """Records of pages in slots of one block, in prompts of a hundred pages."""
    per_segment = segment_blocks - LABEL_BLOCKS
    names = [hashlib.sha256(number.to_bytes(8, "big")).digest() for number in range(pages)]
    return b"".join(
        DiskRecord(
            RecordKind.PAGE,
            2 + number,
            fingerprint,
            number // per_segment * segment_blocks + LABEL_BLOCKS + number % per_segment,
            1024,
            name=names[number],
            parent=names[number - 1] if number % PROMPT_PAGES else NO_NAME,
        ).packed()
        for number in range(pages)
    )


def _resident_bytes() -> int:
    """The memory of this process."""
    fields = Path("/proc/self/statm").read_text("ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGESIZE")
