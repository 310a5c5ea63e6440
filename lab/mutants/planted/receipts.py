"""Faults of receipts: a receipt is mistaken for another one.

Two locks of one prefix are separate: the first unlock must not release both.
"""

from __future__ import annotations

from itertools import count

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import instead
from kvcanon.reference import cache, lock
from kvcanon.reference.state import State
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import Key


@mutant("LOCK-11", "A7 sgl#27038")
@instead(lock.lock, cache)
def holders_share_a_receipt(state: State, key: Key) -> Receipt:
    """A second lock of a prefix returns the receipt of the first."""
    for held in state.holds.values():
        if held.transfer is None and held.receipt.key == key:
            return held.receipt
    return lock.lock(state, key)


@mutant("LOCK-11", "A9 sgl#36350")
@instead(lock.lock, cache)
def lowest_number_is_given_again(state: State, key: Key) -> Receipt:
    """A lock gets the lowest receipt number that is not open."""
    given = lock.lock(state, key)
    held = state.holds.pop(given.receipt_id)
    number = next(each for each in count(1) if each not in state.holds)
    held.receipt = Receipt(number, key)
    state.holds[number] = held
    return held.receipt


@mutant("LOCK-11", "A9 sgl#36350")
def closed_receipts_are_given_again(patch: Overrides) -> None:
    """A lock of a prefix that was locked before gets the old receipt, if that is closed."""
    old: dict[Key, Receipt] = {}

    def again(state: State, key: Key) -> Receipt:
        given = lock.lock(state, key)
        first = old.setdefault(key, given)
        if first.receipt_id in state.holds:
            return given
        held = state.holds.pop(given.receipt_id)
        held.receipt = first
        state.holds[first.receipt_id] = held
        return first

    patch.setattr(cache, "lock", again)
