"""REFUSE: calls that are rightly refused or served hold, all others are reported."""

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
    Done,
    Evict,
    Free,
    Insert,
    Lock,
    Match,
    Matched,
    Operation,
    Outcome,
    Poll,
    Receipt,
    Refused,
    Reset,
    Settled,
    TakeEvents,
    Unlock,
    UnlockWindow,
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
    """What the laws report of a call that was refused in this state."""
    refused = step(state, asked, state, Refused(error))
    return ask("REFUSE-1", refused) + ask("REFUSE-2", refused)


@pytest.mark.parametrize(
    ("asked", "error", "lie"),
    [
        (Match(KEY), BadArgument("key", "is wrong"), "the key has pages of another size"),
        (Allocate(Counts(3)), OutOfSlots("full on GPU", 3, 0), "a pool has fewer free slots"),
        (Lock(KEY), PrefixNotCached(2, 0), "not all of the key is in the tree"),
        (Insert(KEY, 2, Slots()), PrefixNotCached(2, 1), "the pages before the first are not on"),
        (Free(Slots((5,))), SlotNotHeld("full on GPU", 5), "no request holds a slot"),
        (Insert(KEY, 1, Slots((5,))), TransferPending(9), "something on the path is being loaded"),
        (Reset(), CacheBusy(1), "a receipt is open"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuse_false_reasons_are_named(asked: Operation, error: CacheError, lie: str) -> None:
    """A refusal without a ground is reported."""
    (text,) = said(IDLE, asked, error)
    assert text.startswith(f"{type(asked).__name__} was refused ({error}), but this is not so: ")
    assert lie in text


def test_refuse_1_names_what_does_stand() -> None:
    """A refusal for another ground than stands is reported, with the ground that stands."""
    (text,) = said(IDLE, Lock(LONGER), BadArgument("key", "is too long"))
    assert text.endswith(
        "; the grounds that stand are PrefixNotCached: only 2 pages of the key are in the tree"
    )


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (Match(LONGER), PrefixNotCached(3, 2)),
        (Evict(Counts(9)), OutOfSlots("full on GPU", 9, 2)),
        (Poll(), TransferPending(9)),
        (TakeEvents(), CacheBusy(1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuse_1_other_errors_are_named(asked: Operation, error: CacheError) -> None:
    """A refusal with an error that is not in the row of the table is reported."""
    (text,) = said(BUSY, asked, error)
    assert text.endswith(f"it is never refused with {type(error).__name__}")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Lock(LONGER), "must be refused with PrefixNotCached: only 2 pages of the key are in"),
        (Allocate(Counts(4)), "must be refused with OutOfSlots: full on GPU has 3 free slots"),
        (Free(Slots((4,))), "must be refused with SlotNotHeld: no request holds full slot 4"),
        (Insert(KEY, 1, Slots((5,))), "must be refused with TransferPending: transfer 9 is load"),
        (Match(make_key([1, 2], 2)), "must be refused with BadArgument: the key has pages that"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuse_3_served_against_a_ground_is_named(asked: Operation, words: str) -> None:
    """A call that is served while a ground stands is reported."""
    found = ask("REFUSE-3", step(BUSY, asked, BUSY))
    assert found[-1].startswith(f"{type(asked).__name__} was served, and {words}")
    assert ask("REFUSE-2", step(BUSY, asked, BUSY)) == []
    assert ask("REFUSE-3", step(BUSY, Match(KEY), BUSY)) == []


@pytest.mark.parametrize("asked", [Unlock(Receipt(8, KEY)), UnlockWindow(Receipt(8, KEY)), Reset()])
def test_refuse_2_served_against_the_receipts_is_named(asked: Operation) -> None:
    """A second release of a receipt, and a reset under an open one, are reported."""
    (text,) = ask("REFUSE-2", step(BUSY, asked, BUSY))
    assert "was served, and must be refused with" in text
    assert ask("REFUSE-3", step(BUSY, asked, BUSY)) == []


@pytest.mark.parametrize(
    ("asked", "outcome"),
    [
        (Match(KEY), Matched(2, 2, Slots((0, 1)))),
        (Reset(), Done()),
        (Allocate(Counts(1)), Slots((2,))),
        (Poll(), Settled(())),
        (Lock(LONGER), Refused(PrefixNotCached(3, 2))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuse_4_answers_of_their_kind_hold(asked: Operation, outcome: Outcome) -> None:
    """Answers of the right kind hold, and refusals."""
    assert ask("REFUSE-4", step(IDLE, asked, IDLE, outcome)) == []


def test_refuse_4_other_answers_are_named() -> None:
    """An answer of another kind is reported."""
    (text,) = ask("REFUSE-4", step(IDLE, Match(KEY), IDLE, Settled(())))
    assert text == "Match was answered with Settled(transfers=()); it is answered with Matched"


def test_refuse_2_open_receipt_is_named() -> None:
    """A refused release of an open receipt is reported."""
    (text,) = said(BUSY, Unlock(Receipt(7, KEY)), ReceiptSpent(7))
    assert text.endswith("but this is not so: the receipt is not open")


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
        (Free(Slots((5, 5))), BadArgument("slots.full", "names a slot twice")),
        (Match(make_key([1, 2], 2)), BadArgument("key", "has pages of another size")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuse_true_reasons_hold(asked: Operation, error: CacheError) -> None:
    """A refusal with a ground holds."""
    assert said(BUSY, asked, error) == []


def test_refuse_is_a_matter_of_refusals() -> None:
    """Served calls need no ground."""
    assert ask("REFUSE-1", step(IDLE, Match(KEY), IDLE)) == []
    assert ask("REFUSE-2", step(IDLE, Reset(), IDLE)) == []
