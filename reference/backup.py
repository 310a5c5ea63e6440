"""Backup: copies nodes from the device to the host.

A node is never skipped because a node above it has no copy: the nodes above are copied first
(write-through), or need no copy (write_back). If host slots are missing, the outcome of the insert
says so.
"""

from __future__ import annotations

from kvcanon.reference.host import ensure_host_slots
from kvcanon.reference.lock import held_window_start, hold
from kvcanon.reference.match import on_device
from kvcanon.reference.state import Node, State
from kvcanon.reference.transfer import add_parts, begin, enqueue
from kvcanon.reference.tree import path_to
from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import FULL, SWA, Component, Counts, Key, TransferId


def back_up(state: State, node: Node) -> tuple[TransferId, ...]:
    """Enqueue the copies that this node needs to be usable from the host.

    These are its backup chain, root first, and window data that was healed since its node was
    copied. Stops at the first copy that finds no free host slots.
    """
    path = path_to(node)
    backed = tuple([each.data[FULL].host is not None for each in path])
    chain = [path[at] for at in backup_chain(backed, state.config.backed_parents)]
    window_from = held_window_start(state, node) or 0
    healed = [
        each
        for each in path
        if each not in chain and each.end > window_from and each.data[FULL].host is not None
    ]
    transfers = []
    for each in [*chain, *healed]:
        missing = _missing(each)
        if not missing:
            continue
        transfer_id = _enqueue_backup(state, each, missing)
        if transfer_id is None:
            break
        transfers.append(transfer_id)
    return tuple(transfers)


def back_up_victim(state: State, node: Node) -> None:
    """Add what a node lacks on the host to the copy of the victims, if host slots can be freed.

    The copy locks nothing, since the nodes above may be the next victims.
    """
    add_victim(state, node, _missing(node))


def add_victim(state: State, node: Node, components: tuple[Component, ...]) -> None:
    """Add components of a node to the copy of the victims, if the host has slots for all."""
    if components and _has_host_slots(state, node, components):
        if state.victims_copy is None:
            held = hold(state, state.root, Key((), node.namespace), None)
            state.victims_copy = begin(state, Direction.BACKUP, held)
        add_parts(state, state.victims_copy, [(node, c) for c in components])


def unbacked_pages(state: State, end: Node) -> int:
    """Pages on the path to a node that have enough hits and no host copy."""
    threshold = state.config.backup_hits
    if threshold is None:
        return 0
    return sum(
        len(node.pages)
        for node in path_to(end)
        if node.hit_count >= threshold and node.data[FULL].host is None
    )


def _missing(node: Node) -> tuple[Component, ...]:
    """The components that a node has on the device and not on the host."""
    return tuple(
        component for component, data in node.data.items() if on_device(data) and data.host is None
    )


def _enqueue_backup(
    state: State, node: Node, components: tuple[Component, ...]
) -> TransferId | None:
    """Enqueue one node's copy; None if the host has too few slots for all of it."""
    if not _has_host_slots(state, node, components):
        return None
    key = Key(tuple([page for each in path_to(node) for page in each.pages]), node.namespace)
    held = hold(state, node, key, node.start if SWA in node.data else None)
    return enqueue(state, Direction.BACKUP, [(node, c) for c in components], held).transfer_id


def _has_host_slots(state: State, node: Node, components: tuple[Component, ...]) -> bool:
    """Whether the host has slots for a node's copy, after evictions there."""
    needed = {c: len(node.data[c].device or ()) for c in components}
    return ensure_host_slots(state, Counts.of(needed))
