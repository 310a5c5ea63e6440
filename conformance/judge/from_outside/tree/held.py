"""Checks of what requests hold: slots (`allocate`, `free`) and locks (`lock`, `unlock`, `reset`).

What is locked is cached, and a receipt is released once. A reset needs that no receipt is open, and
leaves all slots of the tree free.
"""

from __future__ import annotations

from kvcanon.conformance.judge.from_outside.tree.pages import (
    FULL_COLUMN,
    MAMBA_COLUMN,
    Column,
    PageRecord,
    present_pages,
)
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS, HELD
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState, OpenReceipt
from kvcanon.spec.operations import Allocate, Free, Lock, Receipt, Reset, Unlock, UnlockWindow
from kvcanon.spec.types import Counts, Slot, Slots


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
        said = f"an allocation took {_in_words(slots.counts())}"
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
        state.check_free("ALLOC-3", f"a free gave back {_in_words(counts)}", met=bool(counts))


def _in_words(counts: Counts) -> str:
    """The counts that are not zero, as "1 full, 1 swa"."""
    return ", ".join(f"{count} {component}" for component, count in counts if count) or "nothing"


def after_lock(state: ObservedState, operation: Lock, receipt: Receipt) -> None:
    """Check that a locked key can be cached, and that its receipt id is new."""
    path = state.pages.path(operation.key)
    present = present_pages(path, PageRecord.maybe_anywhere)
    state.check(
        "LOCK-9",
        present == len(operation.key),
        f"a lock of {len(operation.key)} pages was given, of which {present} can be there",
        met=len(operation.key) > 0,
    )
    state.check(
        "LOCK-10",
        receipt.receipt_id not in state.receipts,
        f"receipt {receipt.receipt_id} was given for two locks",
        met=bool(state.receipts),
    )
    state.receipts[receipt.receipt_id] = OpenReceipt(
        receipt, path, state.window_from(len(path)), MAMBA_COLUMN in state.columns
    )
    state.may_cut(path)


def after_unlock(state: ObservedState, operation: Unlock | UnlockWindow, _answer: None) -> None:
    """Check that the receipt was open, and close it or drop its window lock."""
    held = state.open_receipt(operation.receipt)
    state.check(
        "LOCK-10",
        held is not None,
        f"receipt {operation.receipt.receipt_id}, which is not open, was released",
        met=False,
    )
    if held is None:
        return
    if isinstance(operation, Unlock):
        del state.receipts[operation.receipt.receipt_id]
    else:
        held.window_from, held.state_held = len(held.path), False


def after_reset(state: ObservedState, _operation: Reset, _answer: None) -> None:
    """Check that the tree's slots are free, and forget the tree. Requests keep their slots."""
    open_receipts = len(state.receipts) + len(state.transfers)
    there_were = any(page.maybe_anywhere(FULL_COLUMN) for page in state.pages)
    text = f"reset with {open_receipts} receipts open"
    state.check("LOCK-4", not open_receipts, text, met=False)
    state.pages.clear()
    state.due.clear()
    state.transfers.clear()
    state.receipts.clear()
    state.slots.reset()
    for column in state.columns:
        if column not in state.slots.unseen:
            expected = state.slots.free_count(column)
            seen = state.slots.free_list(column, expected)
            component = COMPONENTS[column]
            state.check(
                "ALLOC-7",
                seen.right,
                f"after a reset {expected} {component} slots should be free; {seen.in_words}",
                met=there_were,
            )
