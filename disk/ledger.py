"""The ledger: gives records their generations, and writes them to the journal in groups."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from attrs import define, field

from kvcanon.disk.journal import DiskJournal
from kvcanon.disk.parts import PagePut
from kvcanon.disk.records import NO_NAME, DiskRecord, RecordKind
from kvcanon.disk.transfers import SlotJob


@define(eq=False)
class Ledger:
    """The records of an open store. The lock of the index protects all except the journal."""

    fingerprint: bytes
    segment_blocks: int
    generation: int
    journal: DiskJournal
    waiting: list[bytes] = field(factory=list)
    """Records that are written with the next group."""
    frees_slots: bool = False
    """Whether a page that is gone waits among them: its slot is used again only after that."""
    lock: threading.Lock = field(factory=threading.Lock)

    def page(self, page: PagePut, job: SlotJob) -> DiskRecord:
        """The record of a page in a slot, without its checksum."""
        return DiskRecord(
            RecordKind.PAGE,
            self._next(),
            self.fingerprint,
            job.block,
            job.length,
            page.pool,
            name=page.name,
            parent=NO_NAME if page.parent is None else page.parent,
        )

    def note_gone(self, record: DiskRecord) -> None:
        """Note that a page is gone. It is written before a slot is used again."""
        gone = DiskRecord(
            RecordKind.GONE, self._next(), self.fingerprint, pool=record.pool, name=record.name
        )
        with self.lock:
            self.waiting.append(gone.packed())
            self.frees_slots = True

    def note_segment(self, block: int, slot_blocks: int) -> DiskRecord:
        """Note that a segment has slots of this size; returns the label that it begins with."""
        label = self.segment(block, slot_blocks, self._next())
        with self.lock:
            self.waiting.append(label.packed())
        return label

    def segment(self, block: int, slot_blocks: int, generation: int) -> DiskRecord:
        """The label of a segment."""
        size = self.segment_blocks.to_bytes(16, "little")
        return DiskRecord(
            RecordKind.SEGMENT, generation, self.fingerprint, block, slot_blocks, checksum=size
        )

    def header(self, records: int, *, closed: bool) -> DiskRecord:
        """The first record of a journal that is written with so many."""
        return DiskRecord(
            RecordKind.HEADER,
            self._next(),
            self.fingerprint,
            self.segment_blocks,
            records,
            pool=int(closed),
        )

    def add(self, records: Sequence[bytes]) -> None:
        """Write what waits, then records of pages whose slots are on the disk. Raises: OSError.

        They are not forced: where they are lost, the slots have them.
        """
        self._append(records, forced=False)

    def force(self) -> None:
        """Write what waits, and force all to the disk. Raises: OSError."""
        self._append([], forced=True)

    def _append(self, records: Sequence[bytes], *, forced: bool) -> None:
        with self.lock:
            waiting = list(self.waiting)
        if waiting or records:
            self.journal.append([*waiting, *records], forced=forced)
        self.forget(len(waiting))

    def forget(self, written: int) -> None:
        """Let go of the first records that waited: the journal has them."""
        with self.lock:
            del self.waiting[:written]
            self.frees_slots = self.frees_slots and bool(self.waiting)

    def _next(self) -> int:
        with self.lock:
            self.generation += 1
            return self.generation


def segment_blocks_of(label: DiskRecord) -> int:
    """How many blocks a segment has, by its label."""
    return int.from_bytes(label.checksum, "little")
