"""Checks of locks and unlocks: locked pages are cached, and each receipt is released once."""

from __future__ import annotations

from kvcanon.conformance.judge.from_outside.tree.pages import (
    MAMBA_COLUMN,
    PageRecord,
    present_pages,
)
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState, OpenReceipt
from kvcanon.spec.operations import Lock, Receipt, Unlock, UnlockWindow


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
    held = state.receipts.get(operation.receipt.receipt_id)
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
