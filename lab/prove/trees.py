"""Small trees as tuples of flags, one flag a node: the steps of a proof are written with them.

A tree is the parents of its nodes, each of which comes after its parent; -1 is the root. What is
true of a node (its data is there, it is locked) is a flag in a tuple of its own. A node whose flags
are all false is not there, so a tree of so many nodes stands for all smaller ones as well.

Nothing here branches: flags are joined with `&` and `|`, and picked by comparing numbers. So the
same code runs on integers and booleans, on CrossHair's symbols, and on terms of z3, where it
describes all trees of a size at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from kvcanon.spec.oracle.eviction import may_leave_device, may_leave_host
from kvcanon.spec.oracle.grounds import has_ground

Parents = tuple[int, ...]
Flags = tuple[bool, ...]
Ticks = tuple[int, ...]

ROOT = -1


def all_of(flags: Sequence[bool]) -> bool:
    """Whether all flags are true."""
    return reduce(and_, flags) if len(flags) else True


def any_of(flags: Sequence[bool]) -> bool:
    """Whether some flag is true."""
    return reduce(or_, flags) if len(flags) else False


def none_of(flags: Sequence[bool]) -> bool:
    """Whether no flag is true."""
    return no(any_of(flags))


def no(flag: bool) -> bool:
    """The opposite of a flag."""
    return flag ^ True


def is_tree(parents: Parents) -> bool:
    """Whether each node's parent is a node before it, or the root."""
    return all_of([(parent >= ROOT) & (parent < at) for at, parent in enumerate(parents)])


def is_node(parents: Parents, node: int) -> bool:
    """Whether a number is that of a node."""
    return (node >= 0) & (node < len(parents))


def above(parents: Parents, flags: Flags, at: int) -> bool:
    """The flag of a node's parent. The root has all that a node could stand on."""
    parent = parents[at]
    return any_of([*[flags[node] & (parent == node) for node in range(at)], parent == ROOT])


def stands(parents: Parents, flags: Flags) -> bool:
    """Whether every node with a flag has a parent with that flag: the law, all over the tree."""
    return all_of([has_ground(flag, above(parents, flags, at)) for at, flag in enumerate(flags)])


def only(parents: Parents, chosen: int) -> Flags:
    """One node."""
    return tuple([chosen == node for node in range(len(parents))])


def path_to(parents: Parents, end: int) -> Flags:
    """A node and all above it."""
    count = len(parents)
    flags = list(only(parents, end))
    for node in reversed(range(count)):
        for child in range(node + 1, count):
            flags[node] = flags[node] | (flags[child] & (parents[child] == node))
    return tuple(flags)


def down_to(parents: Parents, end: int, last: int) -> Flags:
    """The nodes of a path, root first, as far as one number: where what is done to them stops."""
    path = path_to(parents, end)
    return tuple([path[at] & (at <= last) for at in range(len(parents))])


def lacking(parents: Parents, there: Flags, end: int, last: int) -> Flags:
    """The nodes of a path, as far as one number, that have not what they are to have."""
    return without(down_to(parents, end, last), there)


def below(parents: Parents, top: Flags) -> Flags:
    """Some nodes and all below them."""
    flags = list(top)
    for child, parent in enumerate(parents):
        for node in range(child):
            flags[child] = flags[child] | (flags[node] & (parent == node))
    return tuple(flags)


def cut(parents: Parents, at: int) -> Parents:
    """The tree with a new node above one of its nodes: that one and those after it move on."""
    moved = [parent + (parent >= at) for parent in parents[at + 1 :]]
    return (*parents[:at], parents[at], at, *moved)


def has_child(parents: Parents, flags: Flags, node: int) -> bool:
    """Whether a node has a child with a flag."""
    return any_of([flag & (parent == node) for parent, flag in zip(parents, flags, strict=True)])


def pick(flags: Flags, node: int) -> bool:
    """The flag of one node."""
    return any_of([flag & (node == at) for at, flag in enumerate(flags)])


def both(ours: Flags, theirs: Flags) -> Flags:
    """What has both flags."""
    return tuple([a & b for a, b in zip(ours, theirs, strict=True)])


def either(ours: Flags, theirs: Flags) -> Flags:
    """What has one of two flags."""
    return tuple([a | b for a, b in zip(ours, theirs, strict=True)])


def without(ours: Flags, theirs: Flags) -> Flags:
    """What has the first flag and not the second."""
    return tuple([a & no(b) for a, b in zip(ours, theirs, strict=True)])


def within(ours: Flags, theirs: Flags) -> bool:
    """Whether all that has the first flag has the second."""
    return all_of([has_ground(a, b) for a, b in zip(ours, theirs, strict=True)])


def in_turn(parents: Parents, pending: Flags, since: Ticks) -> bool:
    """Whether of two copies in flight, of a node and of its parent, the parent's came first."""
    flags = [
        has_ground(pending[node] & pending[at] & (parent == node), since[node] < since[at])
        for at, parent in enumerate(parents)
        for node in range(at)
    ]
    return all_of(flags)


def is_first(pending: Flags, since: Ticks, node: int) -> bool:
    """Whether no copy in flight was enqueued before that of a node."""
    earlier = [
        pending[other] & (node == at) & (since[other] < since[at])
        for at in range(len(since))
        for other in range(len(since))
    ]
    return none_of(earlier)


def is_device_leaf(parents: Parents, device: Flags, locked: Flags, node: int) -> bool:
    """Whether a node may leave the device, as the laws and the plain cache ask it."""
    return may_leave_device(
        pick(device, node), pick(locked, node), has_child(parents, device, node)
    )


def is_host_leaf(parents: Parents, device: Flags, host: Flags, locked: Flags, node: int) -> bool:
    """Whether a node may leave the host, as the laws and the plain cache ask it."""
    children = has_child(parents, either(device, host), node)
    return may_leave_host(pick(device, node), pick(host, node), pick(locked, node), children)
