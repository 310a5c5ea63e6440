"""The usable prefix: how much of a prompt need not be computed again.

A path is a list of *segments*, from the root down: runs of pages that are on the same media. A node
is a segment, and so is a single page: the answer does not depend on where an implementation cuts.

The longest *present* prefix is not always *usable*. A sliding-window layer needs the window before
the end of the prefix, and nothing before that; a mamba layer needs the state at exactly the end.
"""

from __future__ import annotations

from typing import TypeVar

Page = TypeVar("Page")


def usable_prefix(
    lengths: tuple[int, ...],
    full: tuple[bool, ...],
    swa: tuple[bool, ...],
    state: tuple[bool, ...],
    window: int,
) -> int:
    """The longest usable prefix, in the unit of `lengths` and `window`.

    A position is usable if all full data before it is present, the run of window data that ends
    there covers the window or reaches back to the start, and a mamba state (`state`) is there.
    Components that a model lacks are passed as all True. Positions inside a segment need no check:
    where one is usable, the segment's end is too, unless only its mamba state is missing.

    Source: SGLang's component validators (unified_cache_components), node by node.

    pre: len(lengths) <= 4
    pre: len(full) == len(lengths) and len(swa) == len(lengths) and len(state) == len(lengths)
    pre: all(1 <= length <= 8 for length in lengths)
    pre: 1 <= window <= 16
    post: 0 <= __return__ <= sum(lengths)
    post: __return__ in tuple(sum(lengths[:i]) for i in range(len(lengths) + 1))
    """
    usable, end, covered = 0, 0, window
    for length, has_full, has_swa, has_state in zip(lengths, full, swa, state, strict=True):
        if not has_full:
            break
        end += length
        covered = covered + length if has_swa else 0
        if covered >= window and has_state:
            usable = end
    return usable


def shared_pages(ours: tuple[Page, ...], theirs: tuple[Page, ...]) -> int:
    """How many leading pages two runs of pages share. The pages themselves are compared.

    pre: len(ours) <= 3 and len(theirs) <= 3
    post: 0 <= __return__ <= min(len(ours), len(theirs))
    post: all(ours[at] == theirs[at] for at in range(__return__))
    post: __return__ in (len(ours), len(theirs)) or ours[__return__] != theirs[__return__]
    """
    if ours == theirs:
        return len(ours)
    for shared, (our_page, their_page) in enumerate(zip(ours, theirs, strict=False)):
        if our_page != their_page:
            return shared
    return min(len(ours), len(theirs))
