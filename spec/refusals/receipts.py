"""Grounds of calls on receipts and transfers: releases, settlements and resets."""

from __future__ import annotations

from collections import Counter

from kvcanon.spec.operations import Reset, Settle, Unlock, UnlockWindow
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


def bad_settle(state: Snapshot, call: Settle) -> str | None:
    """A transfer that is not among those in flight, or is named twice."""
    named = Counter(each.transfer_id for each in call.completions)
    flying = {each.transfer_id for each in state.transfers}
    for transfer_id, times in sorted(named.items()):
        if times > 1:
            return f"transfer {transfer_id} is named twice"
        if flying and transfer_id not in flying:
            return f"transfer {transfer_id} is not in flight"
    return None


def ends_unseen(state: Snapshot, call: Settle) -> str | None:
    """Transfers in flight: whether, how and in which order their copies end is in no state.

    A state without any may be that of a cache that does not show them.
    """
    flying = {each.transfer_id for each in state.transfers}
    if call.completions and not flying:
        return "no transfer is in flight"
    named = [each.transfer_id for each in call.completions if each.transfer_id in flying]
    return f"the copies of {named} may not have ended so" if named else None
