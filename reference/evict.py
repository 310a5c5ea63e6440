"""Eviction from the device.

A whole leaf leaves for full slots; window data and states leave also from inside the tree. A leaf
with a host copy is demoted: it stays in the tree, on the host. One without is deleted, or, under
write_back, copied first.

What readers get wrong: at a leaf everything goes together; inside the tree only what was asked for
goes, with what is useless without it. Window data that leaves makes a tombstone, and says nothing.
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
    """Free device slots; returns how many came free.

    What a component frees on the way of another counts for it.
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
    """Evict window data or states, least recently used first, wherever they are."""
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
    """Drop one component of a node that stays, and the state that is useless without its window."""
    if state.config.write_policy is WritePolicy.WRITE_BACK:
        back_up_now(state, node)
    drop(state, node, component, GPU)
    if component is SWA and MAMBA in node.data:
        drop(state, node, MAMBA, GPU)


def _evict_leaf(state: State, node: Node) -> None:
    """Demote a leaf, or delete it."""
    if state.config.write_policy is WritePolicy.WRITE_BACK:
        back_up_now(state, node)
    if node.data[FULL].host is not None:
        vacate(state, node, GPU)
    else:
        _delete(state, node)


def _delete(state: State, node: Node) -> None:
    """Remove a leaf that is on the device only, and (under write_back) what hangs below it.

    None of that is locked: a lock on it would hold the leaf's full data, too.
    """
    for each in reversed(_subtree(node)[1:]):
        delete_from_host(state, each)
    vacate(state, node, GPU)
    remove_leaf(state, node)


def _subtree(node: Node) -> list[Node]:
    """A node and all below it, each parent before its children."""
    found = [node]
    for each in found:
        found.extend(each.children.values())
    return found
