"""ASYNC-11: ranks that get the same calls decide alike; ASYNC-10 of what they settle."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots, ReceiptSpent
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import Evicted, Outcome, Poll, Receipt, Refused, Settle, Settled
from kvcanon.spec.snapshot import HoldState, PoolState, RankView, Snapshot, TransferState
from kvcanon.spec.transfer import Completion, Direction, TransferStatus
from kvcanon.spec.types import FULL, GPU, Counts, TransferId, make_key
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from telling import ask, step

CONFIG = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
STATE = state_of(CONFIG, node(1, ROOT, [1], full=on([3])))
NOTHING = Settled(())
EIGHT = TransferState(8, Direction.BACKUP, ((1, FULL),), {FULL: (3,)}, {FULL: (3,)})
FLYING = evolve(STATE, transfers=(EIGHT, evolve(EIGHT, transfer_id=9)))
"""Two backups in flight."""
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED
HELD = HoldState(7, 1, None, state_held=False)


def ranks(*views: tuple[Outcome, Snapshot]) -> Step:
    """A poll on some ranks."""
    shown = tuple(RankView(outcome, after, {}) for outcome, after in views)
    return evolve(step(STATE, Poll(), views[0][1], views[0][0]), ranks=shown)


def told(outcome: Outcome, after: Snapshot = STATE, first: Outcome = NOTHING) -> list[str]:
    """What the law reports of a second rank that differs from the first."""
    return ask("ASYNC-11", ranks((first, STATE), (outcome, after)))


def test_async_11_ranks_alike_hold() -> None:
    """Equal ranks hold; receipts have numbers of their own on each."""
    assert ask("ASYNC-11", step(STATE, Poll(), STATE, NOTHING)) == []
    assert told(NOTHING) == []
    held, other = (evolve(STATE, holds=(evolve(HELD, receipt_id=n),)) for n in (7, 8))
    key = make_key([1], 1)
    both = ranks((Receipt(7, key), held), (Receipt(8, key), other))
    assert ask("ASYNC-11", both) == []
    spent = Refused(ReceiptSpent(7)), Refused(ReceiptSpent(8))
    assert told(spent[1], first=spent[0]) == []


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Settled(((8, TransferStatus.DONE),)), "rank 0 answers Settled(transfers=()), and rank 1"),
        (Evicted(Counts(1)), "rank 1 answers Evicted"),
        (Refused(OutOfSlots("full on GPU", 3, 2)), "3 slots asked, 2 free"),
    ],
)
def test_async_11_other_answers_are_named(outcome: Outcome, words: str) -> None:
    """Two answers that differ are reported with both."""
    (text,) = told(outcome)
    assert words in text


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (
            state_of(CONFIG, node(1, ROOT, [1], full=on([4]))),
            "nodes of rank 1 differ from rank 0: data of node 1 is {",
        ),
        (
            state_of(CONFIG, node(2, ROOT, [1], full=on([3]))),
            "child_ids of node 0 is (1,) on rank 0 and (2,) there",
        ),
        (evolve(STATE, pools={**STATE.pools, (FULL, GPU): PoolState(8, (1,))}), "pools of rank 1"),
        (evolve(STATE, recency={}), "recency of rank 1"),
        (evolve(STATE, swa_of_full={1: 2}), "swa_of_full of rank 1 differ from rank 0: 1 is None"),
        (evolve(STATE, holds=(HELD,)), "rank 0 has other open receipts than rank 1"),
    ],
)
def test_async_11_other_states_are_named(after: Snapshot, words: str) -> None:
    """Two states that differ are reported with the first entry that does."""
    (text,) = told(NOTHING, after)
    assert words in text


def test_async_11_every_rank_is_compared() -> None:
    """The last of three ranks is compared, too."""
    views = (NOTHING, STATE), (NOTHING, STATE), (Evicted(Counts(1)), STATE)
    (text,) = ask("ASYNC-11", ranks(*views))
    assert "rank 2 answers" in text


def test_async_11_is_exercised_by_ends_that_differ() -> None:
    """The premise is that a copy has ended on one rank, and not, or not so, on another."""
    premise = LAWS["ASYNC-11"].premise
    same = ranks((NOTHING, STATE), (NOTHING, STATE))
    assert not premise.is_met(same)
    assert not premise.is_met(step(STATE, Poll(), STATE, NOTHING))
    for ended in ({8: True}, {8: False}):
        first, second = same.ranks
        assert premise.is_met(evolve(same, ranks=(first, evolve(second, ended=ended))))


# ASYNC-10, of settle calls.


def named(
    ends: tuple[tuple[TransferId, TransferStatus], ...],
    names: dict[TransferId, bool],
    ended: dict[TransferId, bool],
) -> list[str]:
    """What ASYNC-10 reports of a settle call that names copies with outcomes."""
    asked = Settle(tuple(Completion(each, ok) for each, ok in names.items()))
    told = step(FLYING, asked, STATE, Settled(ends))
    return ask("ASYNC-10", evolve(told, ended=ended))


def test_async_10_settles_what_is_named() -> None:
    """A settle call settles what it names, also as failed where the copy succeeded here."""
    both = {8: True, 9: True}
    assert named((), {}, both) == []
    assert named(((8, DONE),), {8: True}, both) == []
    assert named(((8, FAILED),), {8: False}, both) == []
    assert named(((8, FAILED), (9, CANCELLED)), {8: False, 9: True}, both) == []


@pytest.mark.parametrize(
    ("ends", "names", "ended", "words"),
    [
        (((8, DONE), (9, DONE)), {8: True}, {8: True, 9: True}, "9 is reported as done, and was"),
        ((), {8: True}, {8: True}, "8 was named, and was not settled"),
        (((8, DONE),), {8: True}, {}, "8 is reported as done, and its copy has not ended"),
        (((8, DONE),), {8: False}, {8: True}, "8 is reported as done; it was named as failed"),
    ],
)
def test_async_10_other_settlements_are_named(
    ends: tuple[tuple[TransferId, TransferStatus], ...],
    names: dict[TransferId, bool],
    ended: dict[TransferId, bool],
    words: str,
) -> None:
    """A settle call that settles other copies, or otherwise, is reported."""
    (text,) = named(ends, names, ended)
    assert words in text
