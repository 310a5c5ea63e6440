"""What the host has of a prompt, and the loads of it: answered, begun, ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import Factory, define, frozen

from kvcanon.optimized.vllm.host_pages import KeptPage
from kvcanon.optimized.vllm.pages import Page, PageKey, TierShape, group_suffix


@frozen
class PagesToLoad:
    """The pages to load for a prompt, from the end of its local hit on."""

    first: int
    """The first block after the local hit."""
    end: int
    """One past the last block of the hit."""
    places: Sequence[tuple[int, int, PageKey]]
    """Of each page its block in the prompt, its group and its key."""


@define(eq=False)
class TierLoad:
    """A load, from the answer on until its bytes are there."""

    found: PagesToLoad
    pinned: list[KeptPage] = Factory(list)
    """Those of its pages that were on the host when it was answered."""
    blocks: list[int] = Factory(list)
    """The block of each place, once the load has begun."""
    pages: list[Page] = Factory(list)
    hosted: list[KeptPage] = Factory(list)
    """The pages that it reads from the host."""
    stale: bool = False
    """Whether the cache was reset since it began."""


def find_pages(
    hashes: Sequence[bytes],
    first: int,
    last: int,
    shape: TierShape,
    has: Callable[[PageKey], bool],
) -> PagesToLoad | None:
    """The longest hit that ends after block `first` and by `last`, with what every group needs.

    Blocks before `first` are a local hit, which has what the groups need there. Returns: None
    where nothing is found.
    """
    end, before = min(last, len(hashes)), -1
    # What one window has may end before what another has; then both are looked at again.
    while end != before:
        before = end
        for number, group in enumerate(shape.groups):
            suffix, needed = group_suffix(number), group.pages_needed(shape.block_tokens)
            if needed is None:
                end = next((at for at in range(first, end) if not has(hashes[at] + suffix)), end)
            else:
                there = [has(each + suffix) for each in hashes[first:end]]
                end = first + _end_with_window(there, needed)
        if len(shape.groups) == 1:
            break
    if end <= first:
        return None
    return PagesToLoad(first, end, tuple(_places(hashes, first, end, shape)))


def _end_with_window(there: Sequence[bool], needed: int) -> int:
    """How many pages are a hit that has its window: `needed` pages, of which earlier ones count."""
    run = 0
    for at in range(len(there) - 1, -1, -1):
        run = run + 1 if there[at] else 0
        if run and run >= needed:
            return at + run
    return run


def _places(
    hashes: Sequence[bytes], first: int, end: int, shape: TierShape
) -> Iterator[tuple[int, int, PageKey]]:
    for number, group in enumerate(shape.groups):
        suffix, needed = group_suffix(number), group.pages_needed(shape.block_tokens)
        begin = first if needed is None else max(first, end - needed)
        for at in range(begin, end):
            yield at, number, hashes[at] + suffix
