"""Eviction from the device.

Full slots are freed by evicting whole leaves. Window data and mamba states are also evicted from
inside the tree, least recently used first. A leaf with a host copy is demoted: it stays in the
tree, on the host. A leaf without one is deleted; under write_back it is copied first. All victims
are copied in one transfer, for which the eviction waits once.

A leaf loses all its data together. A node inside the tree loses one component, and its mamba state
with its window. A node without window data is a tombstone; no event is emitted for it.
"""

from __future__ import annotations

from kvcanon.reference.backup import back_up_victim
from kvcanon.reference.departures import delete, depart, end_departures, undo_departures, vacate
from kvcanon.reference.slots import drop, free_slot_counts
from kvcanon.reference.state import Node, State
from kvcanon.reference.victims import is_device_leaf, least_recent_first, leaves_in_turn
from kvcanon.spec.oracle.eviction import pre_evict_need
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, WritePolicy


def evict(state: State, counts: Counts) -> Counts:
    """Evict until `counts` more device slots are free, if possible; returns how many came free.

    Slots of a component that are freed together with another component count as well.
    """
    before = free_slot_counts(state, GPU)
    try:
        for component in state.config.components:
            _evict_component(state, component, before[component] + counts[component])
        end_departures(state)
    except BaseException:
        undo_departures(state)
        raise
    return free_slot_counts(state, GPU) - before


def _evict_component(state: State, component: Component, enough: int) -> None:
    if component is not FULL:
        _evict_auxiliary(state, component, enough)
        return
    for leaf in leaves_in_turn(state, GPU, enough):
        _evict_leaf(state, leaf)


def _evict_auxiliary(state: State, component: Component, enough: int) -> None:
    """Evict window data or mamba states of any nodes, least recently used first."""
    pool = state.pools[component, GPU]
    if not pre_evict_need(enough, pool.free_slots):
        return
    for node in least_recent_first(state, component, GPU):
        if not pre_evict_need(enough, pool.free_slots):
            return
        if node.data[component].lock_refs:
            continue
        if is_device_leaf(node):
            _evict_leaf(state, node)
        else:
            _evict_inside(state, node, component)


def _evict_inside(state: State, node: Node, component: Component) -> None:
    """Evict one component of a node that stays; without its window the mamba state is useless."""
    leaving = (SWA, MAMBA) if component is SWA and MAMBA in node.data else (component,)
    if _writes_back(state):
        back_up_victim(state, node)
    if _waits(state):
        depart(state, node, leaving, whole=False)
        return
    for each in leaving:
        drop(state, node, each, GPU)


def _evict_leaf(state: State, node: Node) -> None:
    """Demote a leaf, or delete it if it has no host copy."""
    if _writes_back(state):
        back_up_victim(state, node)
    if node.data[FULL].host is None:
        if node.children:
            # Nodes below it may have to leave the device first.
            end_departures(state)
        delete(state, node)
    elif _waits(state):
        depart(state, node, state.config.components, whole=True)
    else:
        vacate(state, node, GPU)


def _writes_back(state: State) -> bool:
    return state.config.write_policy is WritePolicy.WRITE_BACK


def _waits(state: State) -> bool:
    """Whether this victim or one before it must be copied before it leaves."""
    return state.victims_copy is not None or bool(state.departures)
