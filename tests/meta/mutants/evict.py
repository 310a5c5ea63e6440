"""Faults of eviction: who goes, how much goes, and what is left behind.

What readers get wrong: that a victim is either there or gone: each component of it goes at its
own time.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    cache,
    evict,
    host,
    slots,
    victims,
)
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import (
    FULL,
    GPU,
    Component,
    Counts,
    Medium,
)
from meta.mutants.entry import mutant


@mutant("EVICT-2", "B13 sgl#4987")
def evict_takes_more(patch: Overrides) -> None:
    """More full data leaves than was asked for."""
    evict_rightly = evict.evict

    def greedy(state: State, counts: Counts) -> Counts:
        return evict_rightly(state, Counts(counts.full and counts.full + 2, counts.swa))

    patch.setattr(cache, "evict", greedy)


@mutant("EVICT-3", "A11 sgl#28161")
def window_leaves_its_state_behind(patch: Overrides) -> None:
    """A recurrent state stays where its window data went."""

    def alone(state: State, node: Node, component: Component) -> None:
        slots.drop(state, node, component, GPU)

    patch.setattr(evict, "_evict_inside", alone)


@mutant("EVICT-5", "B24 sgl#33713")
def backed_leaf_is_deleted(patch: Overrides) -> None:
    """A leaf with a host copy leaves the tree instead of the device."""
    vacate = victims.vacate

    def deleting(state: State, node: Node, medium: Medium) -> None:
        vacate(state, node, medium)
        if medium is GPU and not node.children and node.data[FULL].host is not None:
            host.delete_from_host(state, node)

    patch.setattr(evict, "vacate", deleting)
