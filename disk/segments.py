"""Where slots are: the slab is divided into segments, and all slots of a segment have one size.

The first block of a segment says how large its slots are, so that the slab can be read without its
journal. A segment without pages may be given to slots of another size.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

LABEL_BLOCKS = 1
"""The first blocks of a segment, which hold its label."""


@define(eq=False)
class Segments:
    """The segments of a slab, with their free slots."""

    segment_blocks: int
    slots: dict[int, int] = field(factory=dict)
    """For each segment that has slots how many blocks one has."""
    since: dict[int, int] = field(factory=dict)
    """The generation of the label of each. Older pages in a segment are of other slots."""
    used: dict[int, int] = field(factory=dict)
    """For each segment how many of its slots are taken."""
    free: dict[int, list[int]] = field(factory=dict)
    """The first blocks of free slots, for each size. The last are taken first."""
    empty: set[int] = field(factory=set)
    """Segments without pages."""
    count: int = 0
    """How many segments the slab has room for."""
    slot_count: int = 0
    """How many slots all of them have."""

    @property
    def most_blocks(self) -> int:
        """The largest slot that fits."""
        return self.segment_blocks - LABEL_BLOCKS

    def take(self, blocks: int) -> int | None:
        """Take a slot of this size; None if there is none in a segment with such slots."""
        waiting = self.free.get(blocks)
        if not waiting:
            return None
        block = waiting.pop()
        segment = block // self.segment_blocks
        self.used[segment] += 1
        self.empty.discard(segment)
        return block

    def give_back(self, block: int) -> None:
        """Free a slot."""
        segment = block // self.segment_blocks
        self.free[self.slots[segment]].append(block)
        self.used[segment] -= 1
        if not self.used[segment]:
            self.empty.add(segment)

    def add_segment(self) -> int:
        """Note that the slab has grown by a segment; returns its number."""
        self.count += 1
        self.empty.add(self.count - 1)
        return self.count - 1

    def empty_segment(self) -> int | None:
        """A segment that may be given slots of any size."""
        return next(iter(self.empty), None)

    def divide(self, segment: int, blocks: int, generation: int) -> None:
        """Divide an empty segment into slots of this size."""
        before = self.slots.get(segment)
        if before is not None:
            kept = [each for each in self.free[before] if each // self.segment_blocks != segment]
            self.free[before] = kept
            self.slot_count -= self.slots_in(before)
        self.slot_count += self.slots_in(blocks)
        self.slots[segment] = blocks
        self.since[segment] = generation
        self.used[segment] = 0
        self.free.setdefault(blocks, []).extend(reversed(list(self.slots_of(segment))))

    def slots_in(self, blocks: int) -> int:
        """How many slots of this size a segment has."""
        return self.most_blocks // blocks

    def slots_of(self, segment: int) -> Iterator[int]:
        """The first blocks of all slots of a segment."""
        begin = segment * self.segment_blocks + LABEL_BLOCKS
        end = (segment + 1) * self.segment_blocks
        size = self.slots[segment]
        yield from range(begin, end - size + 1, size)

    def has_slot(self, block: int, blocks: int) -> bool:
        """Whether a slot of this size begins at a block."""
        segment, inside = divmod(block, self.segment_blocks)
        return (
            segment < self.count
            and self.slots.get(segment) == blocks
            and inside >= LABEL_BLOCKS
            and (inside - LABEL_BLOCKS) % blocks == 0
            and inside + blocks <= self.segment_blocks
        )
