"""Eviction from the device.

Full slots are freed by evicting whole leaves. Window data and mamba states are also evicted from
inside the tree, least recently used first. A leaf with a host copy is demoted: it stays in the
tree, on the host. A leaf without one is deleted; under write_back it is copied first.

A leaf loses all its data together. A node inside the tree loses one component, and its mamba state
with its window. A node without window data is a tombstone; no event is emitted for it.
"""

from __future__ import annotations

from kvcanon.reference.backup import back_up_now
from kvcanon.reference.host import delete_from_host
from kvcanon.reference.slots import drop, free_slot_counts
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import remove_leaf
from kvcanon.reference.victims import is_device_leaf, least_recent_first, leaves_in_turn, vacate
from kvcanon.spec.oracle.eviction import pre_evict_need
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, WritePolicy


def evict(state: State, counts: Counts) -> Counts:
    """Evict until `counts` more device slots are free, if possible; returns how many came free.

    Slots of a component that are freed together with another component count as well.
    """
    before = free_slot_counts(state, GPU)
    for component in state.config.components:
        enough = before[component] + counts[component]
        if component is FULL:
            for leaf in leaves_in_turn(state, GPU, enough):
                _evict_leaf(state, leaf)
        else:
            _evict_auxiliary(state, component, enough)
    return free_slot_counts(state, GPU) - before


def _evict_auxiliary(state: State, component: Component, enough: int) -> None:
    """Evict window data or mamba states of any nodes, least recently used first."""
    pool = state.pools[component, GPU]
    if not pre_evict_need(enough, pool.free_slots):
        return
    for node in least_recent_first(state, component, GPU):
        if not pre_evict_need(enough, pool.free_slots):
            return
        data = node.data[component]
        if data.device is None or data.lock_refs:
            continue
        if is_device_leaf(node):
            _evict_leaf(state, node)
        else:
            _evict_inside(state, node, component)


def _evict_inside(state: State, node: Node, component: Component) -> None:
    """Evict one component of a node that stays; without its window the mamba state is useless."""
    if state.config.write_policy is WritePolicy.WRITE_BACK:
        back_up_now(state, node)
    drop(state, node, component, GPU)
    if component is SWA and MAMBA in node.data:
        drop(state, node, MAMBA, GPU)


def _evict_leaf(state: State, node: Node) -> None:
    """Demote a leaf, or delete it if it has no host copy."""
    if state.config.write_policy is WritePolicy.WRITE_BACK:
        back_up_now(state, node)
    if node.data[FULL].host is not None:
        vacate(state, node, GPU)
    else:
        _delete(state, node)


def _delete(state: State, node: Node) -> None:
    """Remove a leaf that is on the device only, and (under write_back) the nodes below it.

    The nodes below are not locked: a lock on one would hold the leaf's full data, too.
    """
    for each in reversed(_subtree(node)[1:]):
        delete_from_host(state, each)
    vacate(state, node, GPU)
    remove_leaf(state, node)


def _subtree(node: Node) -> list[Node]:
    """A node and all nodes below it, each parent before its children."""
    found = [node]
    for each in found:
        found.extend(each.children.values())
    return found
