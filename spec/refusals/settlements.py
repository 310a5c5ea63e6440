"""Grounds of settlements: which transfers cannot be settled."""

from __future__ import annotations

from collections import Counter

from kvcanon.spec.operations import Settle
from kvcanon.spec.snapshot import Snapshot


def bad_settle(state: Snapshot, call: Settle) -> str | None:
    """A transfer that is not in flight, or is named twice."""
    named = Counter(each.transfer_id for each in call.completions)
    flying = {each.transfer_id for each in state.transfers}
    for transfer_id, times in sorted(named.items()):
        if times > 1:
            return f"transfer {transfer_id} is named twice"
        if transfer_id not in flying:
            return f"transfer {transfer_id} is not in flight"
    return None


def ends_unseen(state: Snapshot, call: Settle) -> str | None:
    """Transfers in flight: whether, how and in which order their copies end is in no state."""
    flying = {each.transfer_id for each in state.transfers}
    named = [each.transfer_id for each in call.completions if each.transfer_id in flying]
    return f"the copies of {named} may not have ended so" if named else None
