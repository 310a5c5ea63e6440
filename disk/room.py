"""Room for slots: free ones first, then a segment without pages, then a larger slab.

A store never takes more than its capacity: the slab, the journal, the journal that is written in
its place, and the folders of other models beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import define, field

from kvcanon.disk.folders import remove_folder, size_bytes, stale_folders
from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.ledger import Ledger
from kvcanon.disk.records import RECORD_BYTES, DiskRecord
from kvcanon.disk.segments import Segments
from kvcanon.disk.slab import BLOCK_BYTES, Slab

RECORDS_OF_A_SLOT = 2
MORE_RECORDS = 64
"""A journal has at most so many records for each slot, and so many besides."""
_FILES_BYTES = 8192
"""What the small files of a folder take."""


@define(eq=False)
class Room:
    """The disk space of a store."""

    root: Path
    identity: DiskIdentity
    capacity_bytes: int | None
    """None for all that the disk has; nothing is then evicted."""
    slab: Slab
    segments: Segments
    ledger: Ledger
    unwritten: list[DiskRecord] = field(factory=list)
    """Labels of segments that the slab does not have yet. A put writes them with its pages."""

    def take(self, blocks: int) -> int | None:
        """A slot of this size; None if a page has to be evicted first."""
        block = self.segments.take(blocks)
        if block is not None:
            return block
        segment = self.segments.empty_segment()
        if segment is None:
            segment = self._grown(blocks)
        if segment is None:
            return None
        label = self.ledger.note_segment(segment * self.segments.segment_blocks, blocks)
        self.unwritten.append(label)
        self.segments.divide(segment, blocks, label.generation)
        return self.segments.take(blocks)

    def prepare(self, wanted: Mapping[int, int]) -> None:
        """Let the slab grow once for slots that are about to be taken: how many of each size.

        What more is needed it grows a segment at a time, while they are taken.
        """
        shape = self.segments
        lacking = {
            blocks: -(-(count - len(shape.free.get(blocks, ()))) // shape.slots_in(blocks))
            for blocks, count in wanted.items()
        }
        segments = sum(count for count in lacking.values() if count > 0) - len(shape.empty)
        slots = max((shape.slots_in(blocks) for blocks in wanted), default=0)
        while segments > 1:
            if self.fits(shape.count + segments, shape.slot_count + segments * slots):
                self._grow(segments, slots)
                return
            segments -= 1

    def fits(self, segments: int, slots: int) -> bool:
        """Whether so many segments, with so many slots, are within the capacity."""
        return self.capacity_bytes is None or self.needed_bytes(segments, slots) <= (
            self.capacity_bytes
        )

    @property
    def most_records(self) -> int:
        """How many records a journal may have before it is written anew."""
        return self.segments.slot_count * RECORDS_OF_A_SLOT + MORE_RECORDS

    def needed_bytes(self, segments: int, slots: int) -> int:
        """What a store with so many segments and slots takes at most."""
        slab = max(1, segments * self.segments.segment_blocks) * BLOCK_BYTES
        # The journal, and the one that is written in its place.
        records = slots * (RECORDS_OF_A_SLOT + 1) + 2 * MORE_RECORDS + segments
        return slab + records * RECORD_BYTES + _FILES_BYTES

    def shrink(self) -> bool:
        """Free segments until the store is within its capacity; returns whether it was not.

        Raises: OSError.
        """
        count, slots = self.segments.count, self.segments.slot_count
        while count and not self.fits(count, slots):
            count -= 1
            size = self.segments.slots.get(count)
            slots -= self.segments.slots_in(size) if size else 0
        if count == self.segments.count:
            return False
        self.slab.shrink(count * self.segments.segment_blocks)
        return True

    def _grown(self, blocks: int) -> int | None:
        """A new segment at the end of the slab; None if there is no room for it."""
        slots = self.segments.slots_in(blocks)
        if not self.fits(self.segments.count + 1, self.segments.slot_count + slots):
            return None
        return self._grow(1, slots)

    def _grow(self, segments: int, slots: int) -> int | None:
        """Let the slab grow by segments of so many slots; the first, or None on a full disk."""
        first = self.segments.count
        count = first + segments
        self._make_room(self.needed_bytes(count, self.segments.slot_count + segments * slots))
        try:
            self.slab.grow(count * self.segments.segment_blocks)
        except OSError:
            return None  # The disk is full: this slab stays as large as it is.
        for _ in range(segments):
            self.segments.add_segment()
        return first

    def _make_room(self, own_bytes: int) -> None:
        """Remove folders of other models, the oldest first, until all are within the capacity."""
        if self.capacity_bytes is None:
            return
        stale = [(each, size_bytes(each)) for each in stale_folders(self.root, self.identity)]
        more = own_bytes + sum(size for _, size in stale) - self.capacity_bytes
        for folder, size in stale:
            if more <= 0:
                return
            if remove_folder(folder):
                more -= size
