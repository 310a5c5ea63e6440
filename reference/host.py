"""Eviction from the host.

On the host a node is a leaf only if it is not on the device and has no children. A host copy of
data that is still on the device is a duplicate, not a leaf. Duplicates are evicted only under
write_back: under the other policies, host copies below need them.
"""

from __future__ import annotations

from kvcanon.reference.departures import delete_from_host, end_departures, is_departing, vacate
from kvcanon.reference.slots import drop, free_slot_counts
from kvcanon.reference.state import Node, State
from kvcanon.reference.victims import (
    is_device_leaf,
    is_host_leaf,
    least_recent_first,
    leaves_in_turn,
    rank,
)
from kvcanon.spec.oracle.eviction import pre_evict_need
from kvcanon.spec.types import CPU, FULL, Component, Counts, WritePolicy, shortage


def evict_host(state: State, counts: Counts) -> Counts:
    """Evict until `counts` more host slots are free, if possible; returns how many came free."""
    before = free_slot_counts(state, CPU)
    for component in state.config.components:
        enough = before[component] + counts[component]
        if component is FULL:
            _evict_duplicates(state, enough)
            _evict_leaves(state, enough)
        else:
            _evict_auxiliary(state, component, enough)
    return free_slot_counts(state, CPU) - before


def ensure_host_slots(state: State, needed: Counts) -> bool:
    """Evict until `needed` host slots are free; returns whether they are.

    Stops at the first pool that stays short, since evictions from the others would be in vain.
    """
    for component in state.config.components:
        wanted = Counts.of({component: needed[component]})
        evict_host(state, shortage(wanted, free_slot_counts(state, CPU)))
        if shortage(wanted, free_slot_counts(state, CPU)):
            return False
    return True


def _evict_duplicates(state: State, enough: int) -> None:
    """Under write_back, evict host copies of data that is on the device; device leaves last.

    Of nodes that were used together the upper one goes first: it stays on the device longest.
    """
    pool = state.pools[FULL, CPU]
    if state.config.write_policy is not WritePolicy.WRITE_BACK or not pre_evict_need(
        enough, pool.free_slots
    ):
        return
    duplicates = [node for node in state.owners[FULL, CPU] if _is_duplicate(node)]
    duplicates.sort(key=lambda node: (is_device_leaf(node), rank(state, node), node.start))
    for node in duplicates:
        if not pre_evict_need(enough, pool.free_slots):
            return
        vacate(state, node, CPU)


def _evict_leaves(state: State, enough: int) -> None:
    """Evict host leaves. A victim of the running eviction is one only after it has left."""
    for leaf in leaves_in_turn(state, CPU, enough):
        if is_departing(state, leaf):
            end_departures(state)
            # A copy that failed has left other leaves.
            _evict_leaves(state, enough)
            return
        delete_from_host(state, leaf)


def _is_duplicate(node: Node) -> bool:
    """Whether all that an unlocked node has on the host is on the device, too."""
    return not node.locked and all(
        data.device is not None for data in node.data.values() if data.host is not None
    )


def _evict_auxiliary(state: State, component: Component, enough: int) -> None:
    """Evict window data or mamba states that are on the host only, least recently used first."""
    pool = state.pools[component, CPU]
    if not pre_evict_need(enough, pool.free_slots):
        return
    for node in least_recent_first(state, component, CPU):
        if not pre_evict_need(enough, pool.free_slots):
            return
        data = node.data[component]
        if data.device is not None or data.lock_refs:
            continue
        if is_departing(state, node):
            end_departures(state)
            _evict_auxiliary(state, component, enough)
            return
        if is_host_leaf(node):
            delete_from_host(state, node)
        else:
            drop(state, node, component, CPU)
