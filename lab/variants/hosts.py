"""Hosts: variations of which data is on the host, and of what a lock holds there.

Window data without full data is not a copy of a node. It is usable while the device has the rest,
and must be evicted with it.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import variation
from kvcanon.lab.variants.wrapped_rules import Original, around, wrap, wrap_everywhere
from kvcanon.reference import backup, cache, evict, host, transfer
from kvcanon.reference.departures import delete, depart, vacate
from kvcanon.reference.events import emit_removed
from kvcanon.reference.match import on_device
from kvcanon.reference.slots import drop, free_slot_counts
from kvcanon.reference.state import Node, State, Transfer
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    CPU,
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    Medium,
    WritePolicy,
    shortage,
)

EvictInside = Callable[[State, Node, Component], None]
EvictHost = Callable[[State, Counts], Counts]
MakeRoom = Callable[[State, Counts], bool]
Vacate = Callable[[State, Node, Medium], None]
SettleOne = Callable[..., TransferStatus]


@variation
def parts_on_host(overrides: Overrides) -> None:
    """Data that leaves the device is copied without the rest of its node (`whole_nodes_on_host`).

    A duplicate on the host likewise loses its full data only; its window data and mamba state stay.
    """
    wrap(overrides, evict, evict._evict_inside, _copying_what_leaves)
    wrap_everywhere(overrides, delete, _deleting_what_is_on_the_host)
    wrap_everywhere(overrides, vacate, _giving_up_full_data)
    wrap(overrides, host, host._is_duplicate, _by_full_data_alone)


@variation
def locks_of_the_device(overrides: Overrides) -> None:
    """Duplicates leave the host though they are locked (`locks_hold_host_copies`).

    Except during a host insert, which holds the host pages that it builds on.
    """

    def evict_wrapper(evict_host: EvictHost, state: State, counts: Counts) -> Counts:
        freed = evict_host(state, counts)
        more = _evict_locked(state, counts.full - freed.full)
        return Counts(freed.full + more.full, freed.swa + more.swa, freed.mamba + more.mamba)

    def room_wrapper(make_room: MakeRoom, state: State, needed: Counts) -> bool:
        if not make_room(state, needed):
            _evict_locked(state, shortage(needed, free_slot_counts(state, CPU)).full)
        return make_room(state, needed)

    wrap(overrides, cache, host.evict_host, evict_wrapper)
    wrap(overrides, backup, host.ensure_host_slots, room_wrapper)


@variation
@around(transfer._settle_one)
def exclusive_host(
    settle_one: SettleOne, state: State, ended: Transfer, *, ok: bool
) -> TransferStatus:
    """Under write_back, a node's host copies are freed after its load (`loads_keep_host_copies`).

    All of them or none: if the device lacks one, or another load still reads one, all stay.
    """
    status = settle_one(state, ended, ok=ok)
    if status is TransferStatus.DONE and ended.direction is Direction.LOAD_BACK:
        for node in dict.fromkeys(node for node, _ in reversed(ended.parts)):
            if _is_spare(state, node):
                vacate(state, node, CPU)
    return status


def _is_spare(state: State, node: Node) -> bool:
    """Whether the device has all that a node has on the host, and no copy in flight reads it."""
    if state.config.write_policy is not WritePolicy.WRITE_BACK or node.data[FULL].host is None:
        return False
    read = {part for each in state.transfers.values() for part in each.parts}
    return all(
        data.host is None or (on_device(data) and (node, component) not in read)
        for component, data in node.data.items()
    )


def _evict_locked(state: State, count: int) -> Counts:
    """Evict locked duplicates from the host, under write_back; returns the freed counts."""
    if state.config.write_policy is not WritePolicy.WRITE_BACK:
        return Counts()
    before = free_slot_counts(state, CPU)
    copied = {node for each in state.transfers.values() for node, _ in each.parts}
    for node in list(state.owners[FULL, CPU]):
        if free_slot_counts(state, CPU).full >= before.full + count:
            break
        if node.locked and node not in copied and _is_all_on_device(node):
            vacate(state, node, CPU)
    after = free_slot_counts(state, CPU)
    return Counts(after.full - before.full, after.swa - before.swa, after.mamba - before.mamba)


def _is_all_on_device(node: Node) -> bool:
    """Whether the device has all that a node has on the host; if not, a load may need it."""
    return all(data.host is None or on_device(data) for data in node.data.values())


def _copying_what_leaves(
    evict_inside: EvictInside, state: State, node: Node, component: Component
) -> None:
    """Wrap the eviction of a part of a node: it copies only this part, under write_back."""
    if state.config.write_policy is not WritePolicy.WRITE_BACK:
        evict_inside(state, node, component)
        return
    leaving = (SWA, MAMBA) if component is SWA else (component,)
    parts = [each for each in leaving if each in node.data]
    missing = [c for c in parts if on_device(node.data[c]) and node.data[c].host is None]
    backup.add_victim(state, node, tuple(missing))
    depart(state, node, tuple(parts), whole=False)


def _deleting_what_is_on_the_host(delete_rightly: Original[None], state: State, node: Node) -> None:
    """Wrap the deletion of a node, which may have only some of its data on the host."""
    for component in reversed(state.config.components):
        drop(state, node, component, CPU)
    delete_rightly(state, node)


def _by_full_data_alone(_: Original[bool], node: Node) -> bool:
    """Replace the rule: a duplicate is a node whose full data is on both media."""
    return not node.locked and node.data[FULL].device is not None


def _giving_up_full_data(vacate_all: Vacate, state: State, node: Node, medium: Medium) -> None:
    """Wrap the freeing of a host copy: window data and mamba state stay."""
    if medium is not CPU or node.data[FULL].device is None:
        vacate_all(state, node, medium)
        return
    emit_removed(state, node, CPU)
    drop(state, node, FULL, CPU)
