"""Checks of `allocate` and `free`: slots that requests allocate and free."""

from __future__ import annotations

from kvcanon.conformance.judge.from_outside.tree.pages import Column
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS, HELD
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState
from kvcanon.spec.operations import Allocate, Free
from kvcanon.spec.types import Slot, Slots


def after_allocate(state: ObservedState, operation: Allocate, slots: Slots) -> None:
    """Check that as many slots as requested were allocated, all free before, and no others."""
    state.check(
        "ALLOC-5",
        slots.counts() == operation.counts,
        f"{operation.counts} were asked for and {slots.counts()} given",
        met=bool(operation.counts),
    )
    for column, component in enumerate(COMPONENTS):
        some, capacity = slots[component], state.slots.capacity[column]
        owners = state.slots.owners[column]
        _check_given(
            state,
            column,
            len(some),
            [slot for slot in some if slot in owners or not 0 <= slot < capacity],
        )
        for slot in state.written[column].keys() & some:
            del state.written[column][slot]
        state.slots.give(column, some, HELD)
    if not state.has_failed():
        said = f"{slots.counts()} were given out"
        state.check_free("ALLOC-5", said, met=bool(operation.counts))


def _check_given(state: ObservedState, column: Column, count: int, wrong: list[Slot]) -> None:
    """Check that allocated slots were free, and are slots of the pool."""
    state.check_each(
        "ALLOC-1",
        count,
        wrong,
        lambda slot: (
            f"{COMPONENTS[column]} slot {slot} was given out, which is "
            f"{state.slots.describe_owner(column, slot)}"
        ),
    )


def after_free(state: ObservedState, operation: Free, _answer: None) -> None:
    """Check that requests held the slots, and that the slots are free now."""
    for column, component in enumerate(COMPONENTS):
        some, owners = operation.slots[component], state.slots.owners[column]
        state.check_held(column, some, "taken back")
        state.slots.free(column, [slot for slot in some if owners.get(slot) is HELD])
    if not state.has_failed():
        counts = operation.slots.counts()
        state.check_free("ALLOC-3", f"{counts} were taken back", met=bool(counts))
