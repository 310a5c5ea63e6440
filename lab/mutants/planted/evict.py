"""Faults of eviction: wrong victims, wrong counts, and wrong leftovers.

A victim is not evicted as a whole: each of its components is evicted separately.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, departures, evict, host, slots, tree, victims
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Medium


@mutant("EVICT-2", "B13 sgl#4987")
@around(evict.evict, cache)
def evict_takes_more(evict_rightly: Original[Counts], state: State, counts: Counts) -> Counts:
    """An eviction frees more full slots than were asked for."""
    return evict_rightly(state, Counts(counts.full and counts.full + 2, counts.swa))


@mutant("EVICT-3", "A11 sgl#28161")
@instead(evict._evict_inside)
def window_leaves_its_state_behind(state: State, node: Node, component: Component) -> None:
    """A mamba state stays when the window data of its node is evicted."""
    slots.drop(state, node, component, GPU)


@mutant("EVICT-5", "B24 sgl#33713")
@around(departures.vacate, evict)
def backed_leaf_is_deleted(
    vacate: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """An evicted leaf with a host copy leaves the tree, and not only the device."""
    vacate(state, node, medium)
    if medium is GPU and not node.children and node.data[FULL].host is not None:
        departures.delete_from_host(state, node)


@mutant("EVICT-1", "B14 sgl#22592")
@around(victims.is_device_leaf, victims, evict)
def children_on_the_host_keep_a_leaf(is_device_leaf: Original[bool], node: Node) -> bool:
    """A node whose children are on the host alone does not count as a device leaf."""
    return is_device_leaf(node) and not node.children


@mutant("EVICT-1")
@around(evict._evict_auxiliary)
def recurrent_states_never_leave(
    evict_auxiliary: Original[None], state: State, component: Component, enough: int
) -> None:
    """A mamba state is evicted only with its leaf, so that the pool of states fills up."""
    if component is SWA:
        evict_auxiliary(state, component, enough)


@mutant("EVICT-2")
@instead(evict.evict, cache)
def windows_leave_with_every_eviction(state: State, counts: Counts) -> Counts:
    """Every eviction also evicts the oldest window data, whatever was asked for."""
    swa = counts.swa + int(SWA in state.config.components and bool(counts))
    return evict.evict(state, Counts(counts.full, swa, counts.mamba))


@mutant("EVICT-4", "B24 sgl#33713")
@instead(departures.vacate, host)
def duplicate_leaves_with_its_node(state: State, node: Node, medium: Medium) -> None:
    """When the host copy of a leaf that is on the device is evicted, the leaf is deleted too."""
    departures.vacate(state, node, medium)
    if node.data[FULL].device is not None and not node.children:
        departures.vacate(state, node, GPU)
        tree.remove_leaf(state, node)


@mutant("EVICT-6")
@around(departures.vacate, evict, departures)
def victims_reset_the_hits_above_them(
    vacate: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """An eviction sets the hit count of its victim's parent to 0."""
    vacate(state, node, medium)
    if node.parent is not None:
        node.parent.hit_count = 0


@mutant("EVICT-7")
@around(host._evict_duplicates)
def host_leaves_go_before_duplicates(
    evict_duplicates: Original[None], state: State, enough: int
) -> None:
    """Under write_back the host evicts data that is nowhere else before it evicts duplicates."""
    host._evict_leaves(state, enough)
    evict_duplicates(state, enough)


@mutant("EVICT-8", "A27 sgl#29204")
@instead(evict._evict_inside)
def tombstones_are_made_without_a_backup(state: State, node: Node, component: Component) -> None:
    """Under write_back, window data and states leave inner nodes without a copy to the host."""
    slots.drop(state, node, component, GPU)
    if component is SWA and MAMBA in node.data:
        slots.drop(state, node, MAMBA, GPU)


@mutant("EVICT-8")
def write_back_never_writes(patch: Overrides) -> None:
    """Under write_back, victims are dropped without a copy to the host."""
    patch.setattr(evict, "back_up_victim", lambda *_: None)


@mutant("ALLOC-8")
@instead(departures.delete, evict)
def what_hangs_below_a_deleted_node_is_forgotten(state: State, node: Node) -> None:
    """Under write_back a leaf is deleted with its children on the host, whose slots leak."""
    departures.vacate(state, node, GPU)
    for each in reversed(departures.subtree(node)):
        tree.remove_leaf(state, each)
