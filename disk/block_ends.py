"""Records at the ends of blocks: the labels of segments, and those of slots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from kvcanon.disk.ledger import Ledger
from kvcanon.disk.records import RECORD_BYTES, DiskRecord, unpacked
from kvcanon.disk.scratch import Scratch
from kvcanon.disk.segments import Segments
from kvcanon.disk.slab import BLOCK_BYTES, Slab


def each_record(slab: Slab, blocks: Sequence[int]) -> Iterator[DiskRecord | None]:
    """The record at the end of each block; None where there is none."""
    with Scratch().piece(BLOCK_BYTES) as memory:
        for block in blocks:
            try:
                slab.read(block, [memory])
            except OSError:
                yield None
            else:
                yield unpacked(memory[-RECORD_BYTES:])


def write_label(slab: Slab, label: DiskRecord) -> None:
    """Write the first block of a segment. Raises: OSError."""
    with Scratch().piece(BLOCK_BYTES) as memory:
        memory[:] = bytes(BLOCK_BYTES)
        memory[-RECORD_BYTES:] = label.packed()
        slab.write(label.block, [memory])


def mend_labels(slab: Slab, ledger: Ledger, segments: Segments) -> None:
    """Write the labels anew that are not what they should be, so that no damage adds up."""
    labels = segment_labels(ledger, segments)
    found = each_record(slab, [label.block for label in labels])
    wrong = [label for label, there in zip(labels, found, strict=True) if there != label]
    with suppress(OSError):  # On a disk that fails they stay, and the journal knows as much.
        for label in wrong:
            write_label(slab, label)
        if wrong:
            slab.force()


def segment_labels(ledger: Ledger, segments: Segments) -> list[DiskRecord]:
    """The labels of all segments that have slots."""
    return [
        ledger.segment(number * segments.segment_blocks, blocks, segments.since[number])
        for number, blocks in segments.slots.items()
    ]
