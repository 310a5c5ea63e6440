"""Pages for tests of the disk tier: names that follow each other, and contents that show whose."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from kvcanon.disk import DiskIdentity, DiskStore, PageGet, PagePut

IDENTITY = DiskIdentity({"weights": "1"})
SEGMENT_BYTES = 17 * 4096
LENGTH = 5000


def name_of(number: int, prompt: int = 0) -> bytes:
    """The name of a page of a prompt."""
    return hashlib.sha256(f"{prompt} {number}".encode()).digest()


def content_of(number: int, length: int = LENGTH, prompt: int = 0) -> bytes:
    """The bytes of a page."""
    return hashlib.shake_128(f"{prompt} {number}".encode()).digest(length)


def page(number: int, length: int = LENGTH, prompt: int = 0) -> PagePut:
    """A page that follows the one before it."""
    parent = name_of(number - 1, prompt) if number else None
    content = memoryview(content_of(number, length, prompt))
    return PagePut(name_of(number, prompt), (content,), parent)


def opened(root: Path, capacity_bytes: int | None = None, pools: int = 1) -> DiskStore:
    """Open a store with small segments."""
    return DiskStore.open(root, IDENTITY, capacity_bytes, pools=pools, segment_bytes=SEGMENT_BYTES)


def put(store: DiskStore, numbers: Iterable[int], length: int = LENGTH, prompt: int = 0) -> bool:
    """Put pages; whether all are stored."""
    return all(store.put([page(number, length, prompt) for number in numbers]))


def found(
    store: DiskStore, numbers: Iterable[int], length: int = LENGTH, prompt: int = 0
) -> list[int]:
    """The numbers of the pages that are given, each of which must have its own bytes."""
    good = []
    for number in numbers:
        buffer = bytearray(length)
        (answer,) = store.get([PageGet(name_of(number, prompt), (memoryview(buffer),))])
        if answer is not None:
            assert (answer, bytes(buffer)) == (length, content_of(number, length, prompt))
            good.append(number)
    return good


def crash(store: DiskStore) -> None:
    """Let a store end as a kill leaves it: nothing more is written, and its lock is free."""
    store.closed = True
    store.executor.shutdown()
    store.parts.ledger.journal.close()
    store.parts.slab.close()
    os.close(store.parts.folder.lock)


def file_of(root: Path, name: str) -> Path:
    """A file of the only store below a folder."""
    (path,) = root.glob(f"*/{name}")
    return path
