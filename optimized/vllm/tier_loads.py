"""What the host has of a prompt, and the loads of it: answered, begun, ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from attrs import Factory, define, frozen

from kvcanon.optimized.vllm.tier_shape import TierShape


class PagesThere(Protocol):
    """What says which pages are there: `HashedPages`, or it together with a disk."""

    def leading(
        self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool
    ) -> int:
        """Where a run of pages that are there ends."""

    def there(
        self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool
    ) -> list[bool]:
        """Of each page whether it is there."""


@frozen
class PageRun:
    """Consecutive pages of a prompt, of one group of layers."""

    group: int
    first: int
    end: int


@frozen
class PagesToLoad:
    """The pages to load for a prompt, from the end of its local hit on."""

    hashes: list[bytes]
    """Of all blocks of the prompt."""
    first: int
    """The first block after the local hit."""
    end: int
    """One past the last block of the hit."""
    runs: Sequence[PageRun]
    """The pages that each group needs of it."""


@define(eq=False)
class TierLoad:
    """A load, from the answer on until its bytes are there."""

    found: PagesToLoad
    rows: list[int] = Factory(list)
    """The rows that are held for it."""
    table: Sequence[list[int]] = ()
    """The blocks of its request by group, once it has begun."""
    read_pages: int = 0
    """How many of its pages with all tokens (not those of windows) come from the disk."""
    stale: bool = False
    """Whether the cache was reset since it began."""


def find_pages(
    hashes: list[bytes], first: int, last: int, shape: TierShape, pages: PagesThere
) -> PagesToLoad | None:
    """The longest hit that ends after block `first` and by `last`, with what every group needs.

    Blocks before `first` are a local hit, which has what the groups need there. With a window the
    local hit may end before full pages that are on the device still, so that these count there,
    too. Returns: None where nothing is found.
    """
    several = len(shape.groups) > 1
    end, before = min(last, len(hashes)), -1
    # What one window has may end before what another has; then both are looked at again.
    while first < end != before:
        before = end
        for number, group in enumerate(shape.groups):
            needed = group.pages_needed(shape.block_tokens)
            if needed is None:
                end = pages.leading(hashes, number, first, end, or_device=several)
            else:
                there = pages.there(hashes, number, first, end, or_device=several)
                end = first + _end_with_window(there, needed)
        if not several:
            break
    if end <= first:
        return None
    return PagesToLoad(hashes, first, end, tuple(_runs(first, end, shape)))


def _end_with_window(there: Sequence[bool], needed: int) -> int:
    """How many pages are a hit that has its window: `needed` pages, of which earlier ones count."""
    run = 0
    for at in range(len(there) - 1, -1, -1):
        run = run + 1 if there[at] else 0
        if run and run >= needed:
            return at + run
    return run


def _runs(first: int, end: int, shape: TierShape) -> Iterator[PageRun]:
    for number, group in enumerate(shape.groups):
        needed = group.pages_needed(shape.block_tokens)
        yield PageRun(number, first if needed is None else max(first, end - needed), end)
