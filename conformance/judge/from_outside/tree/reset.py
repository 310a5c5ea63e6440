"""Checks of `reset`: no receipt is open, and all slots of the tree are free."""

from __future__ import annotations

from kvcanon.conformance.judge.from_outside.tree.pages import FULL_COLUMN
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState
from kvcanon.spec.operations import Reset


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
