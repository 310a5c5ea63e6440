"""Faults of slots: leaks, doubles, and mappings that lead nowhere.

What readers get wrong: that a leak shows at once: it shows when the pool runs out.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    evict,
    insert,
    slots,
    victims,
)
from kvcanon.reference.state import Node, State, Transfer
from kvcanon.spec.types import (
    FULL,
    GPU,
    SWA,
    Component,
    Counts,
    Medium,
    Slot,
)
from meta.mutants.entry import mutant


@mutant("ALLOC-1", "A28 sgl#7130")
def evicted_window_slots_leak(patch: Overrides) -> None:
    """Window slots of victims never come back."""

    def leaking(state: State, node: Node, component: Component, medium: Medium) -> None:
        if component is SWA:
            slots.take(state, node, component, medium)
        else:
            slots.drop(state, node, component, medium)

    patch.setattr(victims, "drop", leaking)


@mutant("ALLOC-1", "A31 sgl#38355")
def duplicates_leak(patch: Overrides) -> None:
    """Slots of what the tree has already are counted as freed, and are not."""

    def leaking(
        state: State, component: Component, some: tuple[Slot, ...], incoming: insert._Incoming
    ) -> None:
        incoming.freed[component] += len(some)

    patch.setattr(insert, "_free", leaking)


@mutant("ALLOC-4", "A14 sgl#27586")
def healing_keeps_the_old_mapping(patch: Overrides) -> None:
    """A node takes a window slot, and the mapping does not lead to it."""
    place = slots.place

    def unpaired(
        state: State,
        node: Node,
        component: Component,
        medium: Medium,
        some: tuple[Slot, ...],
        *,
        filled_by: Transfer | None = None,
    ) -> None:
        pairs = dict(state.swa_of_full), dict(state.full_of_swa)
        place(state, node, component, medium, some, filled_by=filled_by)
        state.swa_of_full, state.full_of_swa = pairs

    patch.setattr(insert, "place", unpaired)


@mutant("ALLOC-6")
def refusal_evicts(patch: Overrides) -> None:
    """A call that is refused has made room before."""
    allocate = slots.allocate

    def eager(state: State, counts: Counts) -> object:
        if counts.full > state.pools[FULL, GPU].free_slots:
            evict.evict(state, Counts(full=1))
        return allocate(state, counts)

    patch.setattr(slots, "allocate", eager)
