"""Grounds of calls on receipts: releases and resets."""

from __future__ import annotations

from kvcanon.spec.operations import (
    Reset,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.views import path_of


def spent(state: Snapshot, call: Unlock | UnlockWindow) -> str | None:
    """A receipt that is not open for its key."""
    receipt = call.receipt
    path = path_of(state, receipt.key)
    end = path[-1].node if path else state.root
    for hold in state.holds:
        of_a_request = hold.receipt_id == receipt.receipt_id and hold.transfer_id is None
        if of_a_request and hold.node_id == end.node_id and state.end(end) == len(receipt.key):
            return None
    return f"receipt {receipt.receipt_id} is not open"


def busy(state: Snapshot, _: Reset) -> str | None:
    """Open receipts."""
    return f"{len(state.holds)} receipts are open" if state.holds else None
