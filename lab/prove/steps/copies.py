"""Copies in flight: data that a copy fills stands on data that is there, also when a copy fails.

The steps are the same for both directions. `there` says which nodes have slots on the medium that
is written to, `pending` which of these a copy has yet to fill, and `since` when it was enqueued.

Two more rules make the laws last: data that has arrived stands on data that has arrived (RES-3
demands it of the device), and of two copies in flight on a path the upper was enqueued first.

A failed copy cancels more than itself. Copies that build on it were enqueued later, so they are
still in flight when it fails, and are cancelled with it.
"""

from __future__ import annotations

from kvcanon.lab.prove.trees import (
    Flags,
    Parents,
    Ticks,
    all_of,
    below,
    both,
    either,
    in_turn,
    is_first,
    is_node,
    is_tree,
    lacking,
    only,
    pick,
    stands,
    within,
    without,
)


def copies_are_enqueued_root_first(
    parents: Parents, there: Flags, pending: Flags, since: Ticks, end: int, last: int, now: int
) -> Ticks:
    """Copies along a path are enqueued from the root down, each for what is not there yet.

    pre: 1 <= len(parents) == len(there) == len(pending) == len(since) <= 4
    pre: is_tree(parents) & is_node(parents, end)
    pre: within(pending, there)
    pre: stands(parents, there) & stands(parents, without(there, pending))
    pre: in_turn(parents, pending, since) & all_of([tick < now for tick in since])
    post: in_turn(parents, either(pending, lacking(parents, there, end, last)), __return__)
    terms: 24
    """
    new = lacking(parents, there, end, last)
    return tuple([tick + new[at] * (now + at - tick) for at, tick in enumerate(since)])


def ended_copy_stands_on_what_arrived(
    parents: Parents, there: Flags, pending: Flags, since: Ticks, node: int
) -> Flags:
    """Copies are acknowledged in the order of enqueueing, and so nothing arrives on what has not.

    pre: 1 <= len(parents) == len(there) == len(pending) == len(since) <= 4
    pre: is_tree(parents) & is_node(parents, node)
    pre: within(pending, there)
    pre: stands(parents, there) & stands(parents, without(there, pending))
    pre: in_turn(parents, pending, since)
    pre: pick(pending, node) & is_first(pending, since, node)
    post: stands(parents, without(there, __return__))
    post: in_turn(parents, __return__, since)
    terms: 24
    """
    return without(pending, only(parents, node))


def failed_copy_leaves_nothing_on_it(
    parents: Parents, there: Flags, pending: Flags, node: int
) -> Flags:
    """A failed copy is taken back with all copies in flight that build on it; nothing else has to.

    pre: 1 <= len(parents) == len(there) == len(pending) <= 5
    pre: is_tree(parents) & is_node(parents, node)
    pre: within(pending, there)
    pre: stands(parents, there) & stands(parents, without(there, pending))
    pre: pick(pending, node)
    post: stands(parents, __return__)
    post: stands(parents, without(__return__, pending))
    terms: 24
    """
    return without(there, both(pending, below(parents, only(parents, node))))
