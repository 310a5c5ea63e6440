"""Faults of the disk tier: what journal, slots, evictions and restarts can get wrong."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from kvcanon.disk import DiskIdentity, DiskStore, DiskUnusable, PageGet, PagePut
from kvcanon.disk.folders import JOURNAL
from kvcanon.disk.index import PageIndex
from kvcanon.disk.parts import copy_into
from kvcanon.disk.records import RECORD_BYTES, unpacked
from kvcanon.disk.scratch import Scratch
from kvcanon.disk.slab import BLOCK_BYTES, Slab
from kvcanon.disk.store import OnDrop, PlannedPage
from kvcanon.disk.transfers import Read, SlotJob
from kvcanon.lab.stores.fault import breaks


def _read_unproved(slab: Slab, scratch: Scratch, jobs: Sequence[SlotJob]) -> list[bool]:
    """Read slots, and believe what is in them."""
    for job in jobs:
        with scratch.piece(job.blocks * BLOCK_BYTES) as memory:
            try:
                slab.read(job.block, [memory])
            except OSError:
                memory[:] = bytes(len(memory))
            copy_into(job.parts, memory[: job.length])
    return [True] * len(jobs)


def _read_by_record(slab: Slab, scratch: Scratch, jobs: Sequence[SlotJob]) -> list[bool]:
    """Read slots, and prove the record of each, but not the page."""
    good = []
    for job in jobs:
        with scratch.piece(job.blocks * BLOCK_BYTES) as memory:
            try:
                slab.read(job.block, [memory])
            except OSError:
                good.append(False)
            else:
                copy_into(job.parts, memory[: job.length])
                good.append(memory[-RECORD_BYTES:] == job.record)
    return good


class _UnprovedDisk(DiskStore):
    """A disk that believes what is in a slot."""

    def _read(self, jobs: Sequence[SlotJob], read: Read = _read_unproved) -> set[int]:
        return super()._read(jobs, read)


@breaks("STORE-1")
class PartOfAPage(DiskStore):
    """A page that is larger than its buffer is given as far as it fits, and proved by its slot."""

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        whole = super().get(pages)
        for at, page in enumerate(pages):
            packed = self.parts.index.find(page.name, page.pool)
            record = unpacked(packed) if packed is not None else None
            size = sum(map(len, page.parts))
            if whole[at] is None and record is not None and record.length > size:
                content = memoryview(bytearray(record.length))
                if super().get([PageGet(page.name, (content,), page.pool)]) != [None]:
                    copy_into(page.parts, content[:size])
                    whole[at] = size
        return whole


@breaks("STORE-2")
class SlotNotVerified(_UnprovedDisk):
    """What is in a slot is not compared with the journal when it is read."""


@breaks("STORE-2")
class RecordOfSlotAlone(DiskStore):
    """A slot is proved by its record, and the page in it is not."""

    def _read(self, jobs: Sequence[SlotJob], read: Read = _read_by_record) -> set[int]:
        return super()._read(jobs, read)


@breaks("STORE-3")
class DroppedBeforeWritten(DiskStore):
    """A put drops the page that is there before it writes the new one."""

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        with self.lock:
            for page in pages:
                self._drop(page.name, page.pool)
        return super().put(pages)


@breaks("STORE-4")
class IndexedIsThere(DiskStore):
    """A put of a page that is in the index answers yes, and looks at no slot."""

    def _is_whole(self, name: bytes, pool: int) -> bool:
        return self.parts.index.has(name, pool)


class _BlindDisk(DiskStore):
    """A disk whose identity leaves out a fact."""

    blind_to: str

    @classmethod
    def open(
        cls,
        root: Path,
        identity: DiskIdentity,
        capacity_bytes: int | None = None,
        *,
        pools: int = 1,
        threads: int = 4,
        segment_bytes: int | None = None,
        on_drop: OnDrop | None = None,
    ) -> DiskStore:
        facts = {name: value for name, value in identity.facts.items() if name != cls.blind_to}
        place = "" if cls.blind_to == "place" else identity.place
        seen = DiskIdentity(facts, place or "rank0of1")
        return super().open(
            root,
            seen,
            capacity_bytes,
            pools=pools,
            threads=threads,
            segment_bytes=segment_bytes,
            on_drop=on_drop,
        )


@breaks("STORE-5")
class FactLeftOut(_BlindDisk):
    """The fingerprint leaves out the weights."""

    blind_to = "weights"


@breaks("STORE-5")
class PlaceLeftOut(_BlindDisk):
    """The fingerprint leaves out the rank."""

    blind_to = "place"


@breaks("STORE-7")
class ClosedTooSoon(DiskStore):
    """A close marks the journal as complete, and leaves out the page that was used last."""

    def close(self) -> None:
        index = self.parts.index
        if not self.closed and index.entries:
            last = max(index.entries, key=lambda name: index.used[index.entries[name]])
            for pool in index.pools_of(last):
                index.drop(last, pool)
        super().close()


@breaks("STORE-9")
class RunIsASum(DiskStore):
    """A leading run counts all pages that are there, with holes between them."""

    def leading_run(self, names: Sequence[bytes]) -> int:
        return sum(self.parts.index.has_all(name) for name in names)


@breaks("STORE-14")
class FirstPoolCounts(DiskStore):
    """A leading run looks at the first pool of each page alone."""

    def leading_run(self, names: Sequence[bytes]) -> int:
        there = [self.parts.index.has(name, 0) for name in names]
        return there.index(False) if False in there else len(there)


@breaks("STORE-20")
class GrowsOnAndOn(DiskStore):
    """A store grows instead of evicting."""

    def _slot(self, blocks: int, kept: AbstractSet[bytes]) -> int | None:
        self.parts.room.capacity_bytes = None
        return super()._slot(blocks, kept)


class _FirstPages(PageIndex):
    """An index that evicts pages that others follow before those that none follows."""

    __slots__ = ()

    def victim(self, kept: AbstractSet[bytes]) -> bytes | None:
        there = [name for name, entry in self.entries.items() if self.held[entry]]
        free = [(self.entries[name], name) for name in there if name not in kept]
        key = min(
            ((not self.children[entry], self.used[entry], name) for entry, name in free),
            default=None,
        )
        return None if key is None else key[2]


@breaks("STORE-21")
class EvictsFirstPages(DiskStore):
    """Prompts are evicted from their beginning."""

    def _slot(self, blocks: int, kept: AbstractSet[bytes]) -> int | None:
        self.parts.index.__class__ = _FirstPages
        return super()._slot(blocks, kept)


@breaks("STORE-22")
class RefusesDamagedJournal(DiskStore):
    """A store does not open over a journal that is damaged."""

    @classmethod
    def open(
        cls, root: Path, identity: DiskIdentity, *given: int | None, **more: object
    ) -> DiskStore:
        path = root / identity.folder / JOURNAL
        data = path.read_bytes() if path.exists() else b""
        records = [data[at : at + RECORD_BYTES] for at in range(0, len(data), RECORD_BYTES)]
        if any(unpacked(each) is None for each in records):
            raise DiskUnusable(f"{path} is damaged")
        return super().open(root, identity, *given, **more)  # type: ignore[arg-type]


@breaks("STORE-23")
class StartsAnew(DiskStore):
    """A store that was not closed begins with an empty folder."""

    @classmethod
    def open(
        cls, root: Path, identity: DiskIdentity, *given: int | None, **more: object
    ) -> DiskStore:
        folder = root / identity.folder
        data = (folder / JOURNAL).read_bytes() if (folder / JOURNAL).exists() else b""
        header = unpacked(data[:RECORD_BYTES])
        if header is None or not header.pool:
            shutil.rmtree(folder, ignore_errors=True)
        return super().open(root, identity, *given, **more)  # type: ignore[arg-type]


@breaks("STORE-23")
class RecordsInMemory(DiskStore):
    """A put is acknowledged once its pages are in memory; they are written with the next call."""

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        self.catch_up()
        _WAITING[id(self)] = list(pages)
        return [True] * len(pages)

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        self.catch_up()
        return super().get(pages)

    def exists(self, pages: Sequence[tuple[bytes, int]]) -> list[bool]:
        self.catch_up()
        return super().exists(pages)

    def leading_run(self, names: Sequence[bytes]) -> int:
        self.catch_up()
        return super().leading_run(names)

    def remove(self, pages: Sequence[tuple[bytes, int]]) -> None:
        self.catch_up()
        super().remove(pages)

    def close(self) -> None:
        self.catch_up()
        super().close()

    def catch_up(self) -> None:
        waiting = _WAITING.pop(id(self), [])
        if waiting:
            super().put(waiting)


_WAITING: dict[int, list[PagePut]] = {}
"""The pages of each store that it has not written yet."""


@breaks("STORE-24")
class JournalBeforeData(_UnprovedDisk):
    """The journal has a page before its slot is written, and the slot is not verified."""

    def _sealed_and_written(self, planned: Sequence[PlannedPage]) -> list[PlannedPage]:
        self.parts.ledger.add([each.sealed().job.record for each in planned])
        return super()._sealed_and_written(planned)


@breaks("STORE-26")
class RemovalForgotten(DiskStore):
    """A removal is not in the journal, and its slot keeps its record."""

    def remove(self, pages: Sequence[tuple[bytes, int]]) -> None:
        with self.writing, self.lock:
            for name, pool in pages:
                self.parts.index.drop(name, pool)

    def close(self) -> None:
        """The journal is left as it is."""
        self.closed = True
        self.executor.shutdown()
        self.parts.folder.close()


@breaks("STORE-27")
class ThrowsOnDamage(DiskStore):
    """A damaged page is an exception."""

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        damaged = self.figures.damaged_pages
        answers = super().get(pages)
        if self.figures.damaged_pages > damaged:
            raise OSError("a page is damaged")
        return answers
