"""Faults of receipts: whose they are.

What readers get wrong: that two locks of one prefix are one lock. The first release of two would
be the last.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import cache, lock
from kvcanon.reference.state import State
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import Key
from meta.mutants.entry import mutant


@mutant("LOCK-11", "A7 sgl#27038")
def holders_share_a_receipt(patch: Overrides) -> None:
    """A second lock of a prefix is answered with the receipt of the first."""

    def shared(state: State, key: Key) -> Receipt:
        for held in state.holds.values():
            if held.transfer is None and held.receipt.key == key:
                return held.receipt
        return lock.lock(state, key)

    patch.setattr(cache, "lock", shared)
