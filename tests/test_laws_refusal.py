"""The laws of refusals, each on a call that was rightly refused and on one that was not."""

from __future__ import annotations

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.operations import (
    Allocate,
    Free,
    Insert,
    Lock,
    Match,
    Operation,
    Receipt,
    Refused,
    Reset,
    Unlock,
)
from kvcanon.spec.snapshot import HoldState, Snapshot
from kvcanon.spec.types import FULL, Counts, Slots, make_key
from states import ROOT, node, on, state_of
from telling import ask, step

CONFIG = CacheConfig(device_slots=Counts(6), host_slots=Counts(6), write_policy="write_through")
KEY = make_key([1, 2], 1)
LONGER = make_key([1, 2, 3], 1)
IDLE = state_of(CONFIG, node(1, ROOT, [1, 2], full=on([0, 1])), held={FULL: {5}})
BUSY = state_of(
    CONFIG,
    node(1, ROOT, [1, 2], full=on([0, 1], [0, 1], lock_refs=1, loading=9)),
    holds=(HoldState(7, 1, None, state_held=False),),
    held={FULL: {5}},
)


def said(state: Snapshot, asked: Operation, error: CacheError) -> list[str]:
    """What the laws say of a call that was refused in this state."""
    refused = step(state, asked, state, Refused(error))
    return ask("REFUSE-1", refused) + ask("REFUSE-2", refused)


@pytest.mark.parametrize(
    ("asked", "error", "lie"),
    [
        (Allocate(Counts(3)), OutOfSlots("full on GPU", 3, 0), "as many free slots as were asked"),
        (Lock(KEY), PrefixNotCached(2, 0), "2 pages of the key are there and 2 are needed"),
        (Insert(KEY, 2, Slots()), PrefixNotCached(2, 1), "2 pages of the key are there"),
        (Free(Slots((5,))), SlotNotHeld("full on GPU", 5), "requests hold every one"),
        (Insert(KEY, 1, Slots((5,))), TransferPending(9), "nothing on the key's path"),
        (Reset(), CacheBusy(1), "no receipt is open"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuse_false_reasons_are_named(asked: Operation, error: CacheError, lie: str) -> None:
    """A cache may refuse what it could do, and nobody notices."""
    (text,) = said(IDLE, asked, error)
    assert text.startswith(f"{type(asked).__name__} was refused (")
    assert lie in text


def test_refuse_2_open_receipt_is_named() -> None:
    """A cache may say of an open receipt that it was spent."""
    (text,) = said(BUSY, Unlock(Receipt(7, KEY)), ReceiptSpent(7))
    assert text.endswith("but receipt 7 is open")


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (Allocate(Counts(4)), OutOfSlots("full on GPU", 4, 3)),
        (Lock(LONGER), PrefixNotCached(3, 2)),
        (Insert(LONGER, 3, Slots()), PrefixNotCached(3, 0)),
        (Unlock(Receipt(8, KEY)), ReceiptSpent(8)),
        (Unlock(Receipt(7, LONGER.prefix(1))), ReceiptSpent(7)),
        (Free(Slots((4,))), SlotNotHeld("full on GPU", 4)),
        (Free(Slots((5, 4))), SlotNotHeld("full on GPU", 4)),
        (Free(Slots((5, 5))), SlotNotHeld("full on GPU", 5)),
        (Insert(KEY, 1, Slots((5,))), TransferPending(9)),
        (Reset(), CacheBusy(1)),
        (Match(KEY), BadArgument("key", "is wrong")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuse_true_reasons_hold(asked: Operation, error: CacheError) -> None:
    """A call that had to be refused is said to be refused without a reason."""
    assert said(BUSY, asked, error) == []


def test_refuse_is_a_matter_of_refusals() -> None:
    """A call that was answered is asked for its reasons."""
    assert ask("REFUSE-1", step(IDLE, Match(KEY), IDLE)) == []
    assert ask("REFUSE-2", step(IDLE, Reset(), IDLE)) == []
