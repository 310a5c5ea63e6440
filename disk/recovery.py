"""What is in a folder: the journal is read, and the slab where the journal may not say all.

After a close the journal is complete. After a crash, or where it was damaged, cut or replaced by an
old one, the end of every slot is looked at: one whose record is whole and newer than what the
journal has is a page that was acknowledged. Nothing is trusted further: a page is proved when it is
read.
"""

from __future__ import annotations

from concurrent.futures import Executor
from itertools import chain

import numpy as np
import numpy.typing as npt
from attrs import frozen

from kvcanon.disk.block_ends import each_record
from kvcanon.disk.index import PageIndex
from kvcanon.disk.index_filling import filled_index
from kvcanon.disk.journal import JournalRead
from kvcanon.disk.records import RECORD_BYTES, RecordKind, Records, whole_records
from kvcanon.disk.segments import Segments
from kvcanon.disk.slab import BLOCK_BYTES, Slab, slot_blocks

UNKNOWN_GENERATIONS = 1 << 32
"""More than a lost end of a journal can have had. An old copy of one then has none that is newer
than what is written from now on."""
_SHARE = 1024
"""How many slots one thread looks at at a time."""


@frozen
class FoundPages:
    """What a folder was found to hold."""

    index: PageIndex
    segments: Segments
    generation: int
    """No record on the disk has a higher one, also none that is lost."""
    recovered: int
    """Pages that only the slab knew of."""


@frozen
class StoreShape:
    """The facts of a store that its records lack."""

    fingerprint: bytes
    segment_blocks: int
    pools: int


def recover(journal: JournalRead, slab: Slab, shape: StoreShape, executor: Executor) -> FoundPages:
    """Find all pages of a folder. Reads the end of every slot, unless the journal is complete."""
    own = journal.records[journal.records["fingerprint"] == np.void(shape.fingerprint)]
    # Of a journal that is lost the note alone may know how far generations were.
    begun = max(journal.noted_generation, journal.header.generation if journal.header else 0)
    highest = int(own["generation"].max(initial=begun))
    count = slab.blocks // shape.segment_blocks
    if journal.is_complete:
        live, segments = _resolved(own, shape, count)
        return FoundPages(filled_index(live, shape.pools), segments, highest, 0)
    known = np.concatenate([own, _labels(slab, shape, count)])
    live, segments = _resolved(known, shape, count)
    seen = _tails(slab, segments, shape.fingerprint, executor)
    if journal.is_sound:
        seen = seen[seen["generation"] > highest]
    before = len(live)
    if len(seen):
        known = np.concatenate([known, seen])
        live, segments = _resolved(known, shape, count)
    highest = max(highest, int(known["generation"].max(initial=0))) + UNKNOWN_GENERATIONS
    recovered = max(0, len(live) - before)
    return FoundPages(filled_index(live, shape.pools), segments, highest, recovered)


def _resolved(records: Records, shape: StoreShape, count: int) -> tuple[Records, Segments]:
    """The pages that are there, in the order of their use, and the slots that they leave free.

    A page is there if no later record is about it, about its slot, or about its segment.
    """
    order = np.argsort(records["generation"], kind="stable")
    newest_last = records[order]
    segments = Segments(shape.segment_blocks)
    for label in newest_last[newest_last["kind"] == RecordKind.SEGMENT]:
        number, inside = divmod(int(label["block"]), shape.segment_blocks)
        size = int(label["length"])
        if not inside and number < count and 0 < size <= segments.most_blocks:
            segments.slots[number] = size
            segments.since[number] = int(label["generation"])
    segments.count = count
    about_pages = (newest_last["kind"] <= RecordKind.GONE) & (newest_last["pool"] < shape.pools)
    rows, positions = newest_last[about_pages], order[about_pages]
    numbers = range(len(rows))
    last_of_page = dict(zip(_keys(rows, shape.pools), numbers, strict=True))
    pages = np.flatnonzero(rows["kind"] == RecordKind.PAGE)
    last_of_slot = dict(zip(rows["block"][pages].tolist(), pages.tolist(), strict=True))
    is_last = np.zeros(len(rows), bool)
    is_last[list(last_of_page.values())] = True
    owns = np.zeros(len(rows), bool)
    owns[list(last_of_slot.values())] = True
    chosen = np.flatnonzero(is_last & owns)
    chosen = chosen[_fits(rows[chosen], segments)]
    chosen = chosen[np.argsort(positions[chosen], kind="stable")]
    live = rows[chosen]
    _free_the_rest(segments, live)
    return live, segments


def _keys(rows: Records, pools: int) -> list[bytes] | list[tuple[bytes, int]]:
    """What each record is about."""
    names: list[bytes] = rows["name"].tolist()
    return names if pools == 1 else list(zip(names, rows["pool"].tolist(), strict=True))


def _fits(rows: Records, segments: Segments) -> npt.NDArray[np.bool_]:
    """For each page whether its segment has such a slot, and had it when the page was written."""
    sizes = np.zeros(segments.count + 1, np.int64)
    since = np.zeros(segments.count + 1, np.int64)
    for number, size in segments.slots.items():
        sizes[number], since[number] = size, segments.since[number]
    blocks = rows["block"].astype(np.int64)
    numbers = np.minimum(blocks // segments.segment_blocks, segments.count)
    inside = blocks % segments.segment_blocks - 1
    wanted = (rows["length"].astype(np.int64) + RECORD_BYTES + BLOCK_BYTES - 1) // BLOCK_BYTES
    fits: npt.NDArray[np.bool_] = (
        (sizes[numbers] == wanted)
        & (inside >= 0)
        & (inside % np.maximum(wanted, 1) == 0)
        & (inside + wanted < segments.segment_blocks)
        & (rows["generation"].astype(np.int64) > since[numbers])
    )
    return fits


def _free_the_rest(segments: Segments, live: Records) -> None:
    """Note which slots are taken, and which are free."""
    taken = set(live["block"].tolist())
    segments.empty = set(range(segments.count)) - segments.slots.keys()
    for number in sorted(segments.slots, reverse=True):
        slots = list(segments.slots_of(number))
        free = [each for each in slots if each not in taken]
        segments.free.setdefault(segments.slots[number], []).extend(reversed(free))
        segments.used[number] = len(slots) - len(free)
        segments.slot_count += len(slots)
        if not segments.used[number]:
            segments.empty.add(number)


def _tails(slab: Slab, segments: Segments, fingerprint: bytes, executor: Executor) -> Records:
    """The records at the ends of all slots."""
    ends = [
        (block, block + size - 1)
        for number, size in segments.slots.items()
        for block in segments.slots_of(number)
    ]
    shares = [ends[at : at + _SHARE] for at in range(0, len(ends), _SHARE)]

    def look(share: list[tuple[int, int]]) -> list[bytes]:
        return [
            record.packed()
            for record, (block, end) in zip(
                each_record(slab, [end for _, end in share]), share, strict=True
            )
            if record is not None
            and record.kind is RecordKind.PAGE
            and record.fingerprint == fingerprint
            and record.block == block
            and slot_blocks(record.length) == end - block + 1
        ]

    found = list(executor.map(look, shares)) if len(shares) > 1 else list(map(look, shares))
    return whole_records(b"".join(chain.from_iterable(found)))[0]


def _labels(slab: Slab, shape: StoreShape, count: int) -> Records:
    """The labels of segments that are whole."""
    blocks = range(0, count * shape.segment_blocks, shape.segment_blocks)
    labels = [
        record.packed()
        for record, block in zip(each_record(slab, blocks), blocks, strict=True)
        if record is not None
        and record.kind is RecordKind.SEGMENT
        and record.fingerprint == shape.fingerprint
        and record.block == block
    ]
    return whole_records(b"".join(labels))[0]
