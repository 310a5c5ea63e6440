"""Faults about what is there: laws STORE-7 to STORE-14, STORE-21 to STORE-23."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from kvcanon.lab.stores.fault import breaks
from kvcanon.reference.stores.file_store import HEADER_BYTES, FileStore
from kvcanon.reference.stores.memory_store import MemoryServer, MemoryStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity, page_digest


@breaks("STORE-7")
class NamesByProcess(FileStore):
    """The names of pages are seeded with a number of the process that makes them."""

    @staticmethod
    def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
        seed = str(os.getpid()).encode()
        return hashlib.sha256(seed + page_digest(key, identity.page_size)).digest()


class _OwnIndex(FileStore):
    """A store that finds what is in an index in its memory."""

    index: set[Path]

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.index = set()

    def put_one(self, key: PageKey, content: bytes) -> bool:
        done = super().put_one(key, content)
        self.index |= {self.file_of(key)} if done else set()
        return done

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        return super().get_one(key, buffer) if self.file_of(key) in self.index else None

    def has(self, key: PageKey) -> bool:
        return self.file_of(key) in self.index and super().has(key)


@breaks("STORE-7")
class IndexInMemory(_OwnIndex):
    """A process finds only what it has put itself."""


@breaks("STORE-8")
class AlwaysThere(MemoryStore):
    """The answer of exists is yes for every page."""

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        return [True] * len(keys)


@breaks("STORE-8")
class DamagedStaysThere(FileStore):
    """A damaged page is a miss, and exists goes on to say that it is there."""

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        path = self.file_of(key)
        before = path.read_bytes() if path.is_file() else None
        length = super().get_one(key, buffer)
        if before is not None and not path.exists():
            path.write_bytes(before)
        return length

    def has(self, key: PageKey) -> bool:
        return self.file_of(key).exists()


@breaks("STORE-9")
class SumOfPages(MemoryStore):
    """The leading run is the number of pages that are there."""

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        return sum(self.exists(keys))


@breaks("STORE-9")
class LastPageDecides(FileStore):
    """The leading run ends at the last page that is there."""

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        return max((at + 1 for at, key in enumerate(keys) if self.has(key)), default=0)


@breaks("STORE-10")
class FirstFourOfABatch(FileStore):
    """A put of more than four pages writes four, and says that it wrote all."""

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        super().put(pages[:4])
        return [True] * len(pages)


@breaks("STORE-10")
class ForgetsOnRead(MemoryStore):
    """A page is gone after it was read once."""

    def read(self, key: PageKey) -> bytes | None:
        content = super().read(key)
        self.server.remove(self.name_of(key), key.pool)
        return content


@breaks("STORE-11")
class SmallBatches(FileStore):
    """A put of more than six pages is refused."""

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        return super().put(pages) if len(pages) <= 6 else [False] * len(pages)


@breaks("STORE-11")
class ShortPrompts(MemoryStore):
    """A page is refused if more than 64 pages are before it."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        return len(key.tokens) <= 65 * self.identity.page_size and super().put_one(key, content)


@breaks("STORE-10")
class LargeBatchesLoseTheirEnd(MemoryStore):
    """Of a batch only the first 64 pages are stored, and all are acknowledged."""

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        return super().put(pages[:64]) + [True] * len(pages[64:])


@breaks("STORE-11")
class NoAgain(MemoryStore):
    """A put of a page that is there is answered with no."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        there = self.server.has(self.name_of(key), key.pool)
        return not there and super().put_one(key, content)


@breaks("STORE-11")
class FullIsFull(MemoryServer):
    """A server that is full refuses puts, and evicts nothing."""

    def victim(self, kept: set[bytes | None]) -> bytes | None:
        return None


@breaks("STORE-12")
class OneAnswer(MemoryStore):
    """Exists has one answer for a batch."""

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        there = super().exists(keys)
        return [all(there)]


@breaks("STORE-12")
class MissesLeftOut(FileStore):
    """The answer of a get has no entries for misses."""

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        return [length for length in super().get(pages) if length is not None]


@breaks("STORE-13")
class StopsAtAMiss(FileStore):
    """A get stops at the first page that is not there."""

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        found = super().get(pages)
        first = found.index(None) if None in found else len(found)
        return [*found[:first], *[None] * (len(found) - first)]


@breaks("STORE-13")
class AllOrNothing(MemoryStore):
    """A get with one miss gives none of its pages."""

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        found = super().get(pages)
        return [None] * len(found) if None in found else found


@breaks("STORE-14")
class FirstPoolDecides(MemoryStore):
    """The leading run looks at the first pool of each page."""

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        there = self.exists(keys)
        return there.index(False) if False in there else len(there)


@breaks("STORE-14")
class LastPageHasAllPools(FileStore):
    """The leading run looks at the other pools of its last page alone."""

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        there = [self.has(key) for key in keys]
        run = there.index(False) if False in there else len(there)
        pools = self.identity.pools
        while run and not all(self.has(evolve(keys[run - 1], pool=pool)) for pool in pools):
            run -= 1
        return run


@breaks("STORE-21")
class OldestLeaves(MemoryServer):
    """The least recently used page is evicted, whatever follows it."""

    def victim(self, kept: set[bytes | None]) -> bytes | None:
        return next((name for name in self.pages if name not in kept), None)


@breaks("STORE-21")
class ParentsFirst(MemoryServer):
    """A page that others follow is evicted before one that none follows."""

    def victim(self, kept: set[bytes | None]) -> bytes | None:
        parents = [name for name, entry in self.pages.items() if entry.children]
        return next((name for name in parents if name not in kept), super().victim(kept))


@breaks("STORE-22")
class RefusesDamage(FileStore):
    """An open raises if some file is damaged."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for path in self.home.glob("*.page"):
            length = int.from_bytes(path.read_bytes()[32:40], "little")
            if path.stat().st_size != HEADER_BYTES + length:
                raise ValueError(f"{path.name} is damaged")


@breaks("STORE-22")
class RefusesUnfinished(FileStore):
    """An open raises if there is an unfinished file."""

    def __attrs_post_init__(self) -> None:
        if list(self.folder.glob("*/*.tmp")):
            raise ValueError("another process is writing")
        super().__attrs_post_init__()


@breaks("STORE-23")
class IndexAtClose(_OwnIndex):
    """The index of what is there is written at a close."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        path = self.home / "index"
        names = path.read_text("utf-8").split() if path.exists() else []
        self.index = {self.home / name for name in names}

    def close(self) -> None:
        text = "\n".join(path.name for path in self.index)
        (self.home / "index").write_text(text, "utf-8")


@breaks("STORE-23")
class ClearsAfterACrash(FileStore):
    """An open removes all pages if there is an unfinished file."""

    def __attrs_post_init__(self) -> None:
        if list(self.folder.glob("*/*.tmp")):
            shutil.rmtree(self.folder)
        super().__attrs_post_init__()


@breaks("STORE-23")
class ClearsAtDamage(FileStore):
    """A get that finds a damaged page removes all pages."""

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        had = self.file_of(key).exists()
        length = super().get_one(key, buffer)
        if had and not self.file_of(key).exists():
            for path in self.home.glob("*.page"):
                path.unlink()
        return length
