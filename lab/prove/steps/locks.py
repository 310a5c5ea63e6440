"""Lock order: LOCK-1, LOCK-2 and LOCK-5, kept by locks, by releases and by cuts between them.

A receipt puts one full lock ref on each node of its path, one swa lock ref on those in its window,
and one mamba lock ref on its end. `starts` is the first page of each node. A cache without windows
is one whose windows begin at the root.

A release does not give back what a lock took as a matter of course. The nodes may have been cut in
between, and the release computes its nodes again, on the tree as it is then.
"""

from __future__ import annotations

from kvcanon.lab.prove.trees import (
    Flags,
    Parents,
    all_of,
    any_of,
    below,
    cut,
    is_node,
    is_tree,
    no,
    only,
    path_to,
)
from kvcanon.spec.oracle.grounds import has_ground, lock_has_ground
from kvcanon.spec.oracle.window import in_window

Refs = tuple[int, ...]
Starts = tuple[int, ...]
AllRefs = tuple[Refs, Refs, Refs]
"""Full, swa and mamba lock refs of each node."""


def lock_keeps_order(
    parents: Parents, starts: Starts, full: Refs, swa: Refs, mamba: Refs, end: int, begin: int
) -> AllRefs:
    """A lock adds to a whole path, to the window that begins at page `begin`, and to the end.

    pre: 1 <= len(parents) == len(starts) == len(full) == len(swa) == len(mamba) <= 4
    pre: is_tree(parents) & is_node(parents, end)
    pre: in_order(parents, (full, swa, mamba))
    pre: ends_in_window(starts, end, begin)
    post: in_order(parents, __return__)
    terms: 24
    """
    return plus((full, swa, mamba), cover(parents, starts, end, begin))


def early_release_keeps_order(
    parents: Parents, starts: Starts, full: Refs, swa: Refs, mamba: Refs, end: int, begin: int
) -> AllRefs:
    """The window and the mamba state of a receipt are released, and its path stays locked.

    `full`, `swa` and `mamba` are the lock refs of all other receipts, which keep the laws.

    pre: 1 <= len(parents) == len(starts) == len(full) == len(swa) == len(mamba) <= 4
    pre: is_tree(parents) & is_node(parents, end)
    pre: in_order(parents, (full, swa, mamba))
    post: in_order(parents, __return__)
    terms: 24
    """
    locked = plus((full, swa, mamba), cover(parents, starts, end, begin))
    _, window, state = cover(parents, starts, end, begin)
    return minus(locked, ((0,) * len(full), window, state))


def release_undoes_lock_across_a_cut(
    parents: Parents,
    starts: Starts,
    full: Refs,
    swa: Refs,
    mamba: Refs,
    end: int,
    begin: int,
    page: int,
) -> bool:
    """Lock, cut any node before a page of its own, release: the refs of others are left.

    No window begins inside the node that is cut, which is a part of LOCK-3.

    pre: 1 <= len(parents) == len(starts) == len(full) == len(swa) == len(mamba) <= 3
    pre: is_tree(parents) & is_node(parents, end)
    post: __return__
    terms: 10
    """
    return all_of(
        [
            has_ground(
                (starts[at] < page) & ((begin <= starts[at]) | (begin > page)),
                _is_undone(parents, starts, (full, swa, mamba), end, begin, page, at),
            )
            for at in range(len(parents))
        ]
    )


def nothing_locked_hangs_below_a_victim(
    parents: Parents, full: Refs, swa: Refs, mamba: Refs, victim: int
) -> bool:
    """Below a node without a full lock ref no node has a lock ref of any kind: all may leave.

    pre: 1 <= len(parents) == len(full) == len(swa) == len(mamba) <= 5
    pre: is_tree(parents) & is_node(parents, victim)
    pre: in_order(parents, (full, swa, mamba))
    post: __return__
    terms: 24
    """
    gone = below(parents, only(parents, victim))
    victim_is_free = any_of(
        [only(parents, victim)[at] & (full[at] == 0) for at in range(len(full))]
    )
    free = [
        has_ground(gone[at], (full[at] == 0) & (swa[at] == 0) & (mamba[at] == 0))
        for at in range(len(full))
    ]
    return has_ground(victim_is_free, all_of(free))


def in_order(parents: Parents, refs: AllRefs) -> bool:
    """LOCK-1, LOCK-2 and LOCK-5, of every node."""
    full, swa, mamba = refs
    own = [
        lock_has_ground(0, mamba[at])
        & lock_has_ground(mamba[at], swa[at])
        & lock_has_ground(swa[at], full[at])
        for at in range(len(parents))
    ]
    above = [
        has_ground(parents[at] == node, lock_has_ground(full[at], full[node]))
        for at in range(len(parents))
        for node in range(at)
    ]
    return all_of([*own, *above])


def cover(parents: Parents, starts: Starts, end: int, begin: int) -> AllRefs:
    """The lock refs that a receipt on a node puts on each node."""
    path, last = path_to(parents, end), only(parents, end)
    window: list[bool] = [path[at] & in_window(starts[at], begin) for at in range(len(starts))]
    return _counts(path), _counts(tuple(window)), _counts(last)


def ends_in_window(starts: Starts, end: int, begin: int) -> bool:
    """Whether the node at the end of what is locked is in its window: a window is never empty."""
    return all_of([in_window(start, begin) | no(end == at) for at, start in enumerate(starts)])


def plus(refs: AllRefs, more: AllRefs) -> AllRefs:
    """The lock refs of both."""
    full, swa, mamba = (
        tuple([ours + theirs for ours, theirs in zip(a, b, strict=True)])
        for a, b in zip(refs, more, strict=True)
    )
    return full, swa, mamba


def minus(refs: AllRefs, less: AllRefs) -> AllRefs:
    """The lock refs of the first without those of the second."""
    full, swa, mamba = (
        tuple([ours - theirs for ours, theirs in zip(a, b, strict=True)])
        for a, b in zip(refs, less, strict=True)
    )
    return full, swa, mamba


def _is_undone(
    parents: Parents, starts: Starts, others: AllRefs, end: int, begin: int, page: int, at: int
) -> bool:
    """Whether a release after a cut of node `at` before a page leaves the lock refs of others."""
    locked = plus(others, cover(parents, starts, end, begin))
    cut_starts = (*starts[: at + 1], page, *starts[at + 1 :])
    moved_end = end + (end >= at)
    released = minus(cut_refs(locked, at), cover(cut(parents, at), cut_starts, moved_end, begin))
    return all_of(
        [
            ours == theirs
            for a, b in zip(released, cut_refs(others, at), strict=True)
            for ours, theirs in zip(a, b, strict=True)
        ]
    )


def cut_refs(refs: AllRefs, at: int) -> AllRefs:
    """Both parts of a node are locked as it was; its state stays with the lower part."""
    full, swa, mamba = refs
    return (
        (*full[: at + 1], *full[at:]),
        (*swa[: at + 1], *swa[at:]),
        (*mamba[:at], 0, *mamba[at:]),
    )


def _counts(flags: Flags) -> Refs:
    return tuple([flag * 1 for flag in flags])
