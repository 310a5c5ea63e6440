"""Residency: RES-3, RES-4 and EVICT-4 hold after inserts, loads, backups, evictions and cuts.

`device` and `host` say which nodes have full data there, be it still on its way. A node with
neither is not in the tree, so that a new node is one whose flags were false before.

An eviction deletes a node without looking for nodes below it. The law says that there are none: a
node below a deleted one would stand on nothing.
"""

from __future__ import annotations

from kvcanon.lab.prove.trees import (
    Flags,
    Parents,
    all_of,
    both,
    cut,
    down_to,
    either,
    is_device_leaf,
    is_host_leaf,
    is_node,
    is_tree,
    none_of,
    only,
    path_to,
    stands,
    without,
)
from kvcanon.spec.oracle.backup import needs_copy


def insert_grounds_device(parents: Parents, device: Flags, loading: Flags, end: int) -> Flags:
    """An insert puts data of a whole path on the device, where nothing of it is being loaded.

    pre: 1 <= len(parents) == len(device) == len(loading) <= 5
    pre: is_tree(parents) & is_node(parents, end)
    pre: stands(parents, device) & stands(parents, without(device, loading))
    pre: none_of(both(path_to(parents, end), loading))
    post: stands(parents, __return__)
    post: stands(parents, without(__return__, loading))
    terms: 32
    """
    return either(device, path_to(parents, end))


def load_back_grounds_device(parents: Parents, device: Flags, loading: Flags, end: int) -> Flags:
    """A load-back gives slots to all of a path that has none, root first: none arrives before.

    pre: 1 <= len(parents) == len(device) == len(loading) <= 5
    pre: is_tree(parents) & is_node(parents, end)
    pre: stands(parents, device) & stands(parents, without(device, loading))
    post: stands(parents, __return__)
    post: stands(parents, without(__return__, either(loading, without(__return__, device))))
    terms: 32
    """
    return either(device, path_to(parents, end))


def eviction_grounds_device(
    parents: Parents, device: Flags, host: Flags, locked: Flags, victim: int
) -> Flags:
    """A leaf leaves the device; without a host copy it leaves the tree, and orphans nobody.

    pre: 1 <= len(parents) == len(device) == len(host) == len(locked) <= 5
    pre: is_tree(parents) & is_node(parents, victim)
    pre: stands(parents, device) & stands(parents, host)
    pre: is_device_leaf(parents, device, locked, victim)
    post: stands(parents, __return__)
    post: stands(parents, either(__return__, host))
    terms: 32
    """
    return without(device, only(parents, victim))


def host_eviction_grounds_host(
    parents: Parents, device: Flags, host: Flags, locked: Flags, victim: int
) -> Flags:
    """A host leaf leaves the tree, and orphans nobody.

    pre: 1 <= len(parents) == len(device) == len(host) == len(locked) <= 5
    pre: is_tree(parents) & is_node(parents, victim)
    pre: stands(parents, device) & stands(parents, host)
    pre: is_host_leaf(parents, device, host, locked, victim)
    post: stands(parents, __return__)
    post: stands(parents, either(device, __return__))
    terms: 32
    """
    return without(host, only(parents, victim))


def backup_grounds_host(parents: Parents, host: Flags, end: int, room: int) -> Flags:
    """A backup copies what a path lacks, root first, as far as there is room.

    `room` is the last node that the host had room for: what is after it is left uncopied.

    pre: 1 <= len(parents) == len(host) <= 5
    pre: is_tree(parents) & is_node(parents, end)
    pre: stands(parents, host)
    post: stands(parents, __return__)
    terms: 32
    """
    path, last = path_to(parents, end), only(parents, end)
    copied = [
        path[at] & needs_copy(host[at], last[at], True) & (at <= room) for at in range(len(host))
    ]
    return either(host, tuple(copied))


def host_insert_grounds_host(
    parents: Parents, host: Flags, backing: Flags, end: int, room: int
) -> Flags:
    """Fetched pages fill a path root first, and stop before a copy that is still in flight.

    pre: 1 <= len(parents) == len(host) == len(backing) <= 5
    pre: is_tree(parents) & is_node(parents, end)
    pre: stands(parents, host) & stands(parents, without(host, backing))
    pre: none_of(both(down_to(parents, end, room), backing))
    post: stands(parents, __return__)
    post: stands(parents, without(__return__, backing))
    terms: 32
    """
    return either(host, down_to(parents, end, room))


def cut_keeps_grounds(parents: Parents, flags: Flags) -> bool:
    """Wherever a node is cut, both parts have what it had, and every law of this kind still holds.

    pre: 1 <= len(parents) == len(flags) <= 5
    pre: is_tree(parents)
    pre: stands(parents, flags)
    post: __return__
    terms: 16
    """
    return all_of(
        [stands(cut(parents, at), (*flags[: at + 1], *flags[at:])) for at in range(len(parents))]
    )
