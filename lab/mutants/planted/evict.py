"""Faults of eviction: wrong victims, wrong counts, and wrong leftovers.

A victim is not evicted as a whole: each of its components is evicted separately.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import (
    cache,
    departures,
    evict,
    host,
    slots,
    tree,
    victims,
)
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import (
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Medium,
)


@mutant("EVICT-2", "B13 sgl#4987")
def evict_takes_more(patch: Overrides) -> None:
    """An eviction frees more full slots than were asked for."""
    evict_rightly = evict.evict

    def greedy(state: State, counts: Counts) -> Counts:
        return evict_rightly(state, Counts(counts.full and counts.full + 2, counts.swa))

    patch.setattr(cache, "evict", greedy)


@mutant("EVICT-3", "A11 sgl#28161")
def window_leaves_its_state_behind(patch: Overrides) -> None:
    """A mamba state stays when the window data of its node is evicted."""

    def alone(state: State, node: Node, component: Component) -> None:
        slots.drop(state, node, component, GPU)

    patch.setattr(evict, "_evict_inside", alone)


@mutant("EVICT-5", "B24 sgl#33713")
def backed_leaf_is_deleted(patch: Overrides) -> None:
    """An evicted leaf with a host copy leaves the tree, and not only the device."""
    vacate = departures.vacate

    def deleting(state: State, node: Node, medium: Medium) -> None:
        vacate(state, node, medium)
        if medium is GPU and not node.children and node.data[FULL].host is not None:
            departures.delete_from_host(state, node)

    patch.setattr(evict, "vacate", deleting)


@mutant("EVICT-1", "B14 sgl#22592")
def children_on_the_host_keep_a_leaf(patch: Overrides) -> None:
    """A node whose children are on the host alone does not count as a device leaf."""
    is_device_leaf = victims.is_device_leaf

    def childless(node: Node) -> bool:
        return is_device_leaf(node) and not node.children

    patch.setattr(victims, "is_device_leaf", childless)
    patch.setattr(evict, "is_device_leaf", childless)


@mutant("EVICT-1")
def recurrent_states_never_leave(patch: Overrides) -> None:
    """A mamba state is evicted only with its leaf, so that the pool of states fills up."""
    evict_auxiliary = evict._evict_auxiliary

    def windows_only(state: State, component: Component, enough: int) -> None:
        if component is SWA:
            evict_auxiliary(state, component, enough)

    patch.setattr(evict, "_evict_auxiliary", windows_only)


@mutant("EVICT-2")
def windows_leave_with_every_eviction(patch: Overrides) -> None:
    """Every eviction also evicts the oldest window data, whatever was asked for."""

    def eager(state: State, counts: Counts) -> Counts:
        swa = counts.swa + int(SWA in state.config.components and bool(counts))
        return evict.evict(state, Counts(counts.full, swa, counts.mamba))

    patch.setattr(cache, "evict", eager)


@mutant("EVICT-4", "B24 sgl#33713")
def duplicate_leaves_with_its_node(patch: Overrides) -> None:
    """When the host copy of a leaf that is on the device is evicted, the leaf is deleted too."""

    def thorough(state: State, node: Node, medium: Medium) -> None:
        departures.vacate(state, node, medium)
        if node.data[FULL].device is not None and not node.children:
            departures.vacate(state, node, GPU)
            tree.remove_leaf(state, node)

    patch.setattr(host, "vacate", thorough)


@mutant("EVICT-6")
def victims_reset_the_hits_above_them(patch: Overrides) -> None:
    """An eviction sets the hit count of its victim's parent to 0."""
    vacate = departures.vacate

    def reaching(state: State, node: Node, medium: Medium) -> None:
        vacate(state, node, medium)
        if node.parent is not None:
            node.parent.hit_count = 0

    patch.setattr(evict, "vacate", reaching)
    patch.setattr(departures, "vacate", reaching)


@mutant("EVICT-7")
def host_leaves_go_before_duplicates(patch: Overrides) -> None:
    """Under write_back the host evicts data that is nowhere else before it evicts duplicates."""
    evict_duplicates = host._evict_duplicates

    def last(state: State, enough: int) -> None:
        host._evict_leaves(state, enough)
        evict_duplicates(state, enough)

    patch.setattr(host, "_evict_duplicates", last)


@mutant("EVICT-8", "A27 sgl#29204")
def tombstones_are_made_without_a_backup(patch: Overrides) -> None:
    """Under write_back, window data and states leave inner nodes without a copy to the host."""

    def drop(state: State, node: Node, component: Component) -> None:
        slots.drop(state, node, component, GPU)
        if component is SWA and MAMBA in node.data:
            slots.drop(state, node, MAMBA, GPU)

    patch.setattr(evict, "_evict_inside", drop)


@mutant("EVICT-8")
def write_back_never_writes(patch: Overrides) -> None:
    """Under write_back, victims are dropped without a copy to the host."""
    patch.setattr(evict, "back_up_victim", lambda *_: None)


@mutant("ALLOC-8")
def what_hangs_below_a_deleted_node_is_forgotten(patch: Overrides) -> None:
    """Under write_back a leaf is deleted with its children on the host, whose slots leak."""

    def delete_alone(state: State, node: Node) -> None:
        departures.vacate(state, node, GPU)
        for each in reversed(departures.subtree(node)):
            tree.remove_leaf(state, each)

    patch.setattr(evict, "delete", delete_alone)
