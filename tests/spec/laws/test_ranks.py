"""ASYNC-11: ranks that get the same calls decide alike; ASYNC-10 and ASYNC-15 of how they agree."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots, ReceiptSpent
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import (
    Evicted,
    LoadDecision,
    LoadedBack,
    Outcome,
    Poll,
    PollStore,
    Receipt,
    Refused,
    Settle,
    Settled,
    StorePolled,
)
from kvcanon.spec.snapshot import HoldState, RankView, Snapshot
from kvcanon.spec.tier import OrderKind, OrderState, StoreState
from kvcanon.spec.transfer import Completion, Direction, TransferStatus
from kvcanon.spec.types import DISK, FULL, Counts, TransferId, make_key
from kvcanon.spec.views import Step
from states import ROOT, copy, node, on, state_of, with_pool
from states.judging import Table, step, still, table

CONFIG = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
STATE = state_of(CONFIG, node(1, ROOT, [1], full=on([3])))
OPEN, OTHER = (evolve(STATE, holds=(HoldState(n, 1, None, state_held=False),)) for n in (7, 8))
KEY = make_key([1], 1)
NOTHING = Settled(())
EIGHT = copy(8, Direction.BACKUP, (3,), (3,), 1)
FLYING = evolve(STATE, transfers=(EIGHT, evolve(EIGHT, transfer_id=9)))
"""Two backups in flight."""
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED


def ranks(*views: tuple[Outcome, Snapshot]) -> Step:
    """A poll on some ranks."""
    shown = tuple(RankView(outcome, after, {}) for outcome, after in views)
    return evolve(step(STATE, Poll(), views[0][1], views[0][0]), ranks=shown)


def loaded(transfer_id: TransferId) -> LoadedBack:
    """The answer to a load-back, which is long."""
    return LoadedBack(LoadDecision.ENQUEUED, transfer_id, loading=Counts(1))


def seeded(*seeds: int) -> Step:
    """An answer that differs on two ranks whose processes have these hash seeds."""
    told = second(Evicted(Counts(1)))
    shown = zip(told.ranks, seeds, strict=True)
    return evolve(told, ranks=tuple(evolve(each, hash_seed=seed) for each, seed in shown))


def second(outcome: Outcome = NOTHING, after: Snapshot = STATE) -> Step:
    """A poll on a rank and on a second one."""
    return ranks((NOTHING, STATE), (outcome, after))


def settled(
    *ends: tuple[TransferId, TransferStatus],
    names: dict[TransferId, bool],
    ended: dict[TransferId, bool] | None = None,
) -> Step:
    """A settle call that names copies with outcomes; both have ended well, if not otherwise."""
    asked = Settle(tuple(Completion(each, ok) for each, ok in names.items()))
    told = step(FLYING, asked, STATE, Settled(ends))
    return evolve(told, ended={8: True, 9: True} if ended is None else ended)


def asked(orders: int, *sizes: int) -> Step:
    """A poll of a store with open orders, in which each rank names so many numbers, if any."""
    opened = tuple(OrderState(each, OrderKind.WRITE, KEY, 0) for each in range(orders))
    before = evolve(STATE, store=StoreState(DISK, orders=opened))
    polled = StorePolled(())
    shown = [RankView(polled, before, {}, (size,) if size else ()) for size in sizes]
    return evolve(step(before, PollStore(), before, polled), ranks=tuple(shown))


RANKS: Table = {
    # Equal ranks hold; receipts have numbers of their own on each.
    "ASYNC-11": [
        still(STATE, Poll(), NOTHING),
        second(),
        ranks((Receipt(7, KEY), OPEN), (Receipt(8, KEY), OTHER)),
        ranks((Refused(ReceiptSpent(7)), STATE), (Refused(ReceiptSpent(8)), STATE)),
    ],
    # Two answers that differ are reported with both.
    "ASYNC-11: ...rank 0 answers Settled(transfers=()), and rank 1...": second(
        Settled(((8, DONE),))
    ),
    "ASYNC-11: ...rank 1 answers Evicted...": second(Evicted(Counts(1))),
    "ASYNC-11: ...3 slots asked, 2 free...": second(Refused(OutOfSlots("full on GPU", 3, 2))),
    "ASYNC-11: ...rank 2 answers...": ranks(
        (NOTHING, STATE), (NOTHING, STATE), (Evicted(Counts(1)), STATE)
    ),
    # Of long answers of one kind the fields are shown that differ.
    "ASYNC-11: ...answers LoadedBack(..., transfer_id=1), and rank 1...": ranks(
        (loaded(1), STATE), (loaded(2), STATE)
    ),
    # A rank in a process of its own is reported with both hash seeds.
    "ASYNC-11: ...and rank 1, whose PYTHONHASHSEED is 8 and not 7, answers Evicted...": seeded(
        7, 8
    ),
    # Two states that differ are reported with the first entry that does.
    "ASYNC-11: ...nodes of rank 1 differ from rank 0: data of node 1 is {...": second(
        after=state_of(CONFIG, node(1, ROOT, [1], full=on([4])))
    ),
    "ASYNC-11: ...child_ids of node 0 is (1,) on rank 0 and (2,) there...": second(
        after=state_of(CONFIG, node(2, ROOT, [1], full=on([3])))
    ),
    "ASYNC-11: ...pools of rank 1...": second(after=with_pool(STATE, FULL, free=(1,))),
    "ASYNC-11: ...recency of rank 1...": second(after=evolve(STATE, recency={})),
    "ASYNC-11: ...swa_of_full of rank 1 differ from rank 0: 1 is None...": second(
        after=evolve(STATE, swa_of_full={1: 2})
    ),
    "ASYNC-11: ...rank 0 has other open receipts than rank 1...": second(after=OPEN),
    # A poll of the store gives as many numbers for each order as the cache needs, two at least.
    "ASYNC-15": [asked(0, 0, 0), asked(1, 2, 2), asked(3, 6, 6), asked(3, 12, 12)],
    "ASYNC-15: ...[3] copies in a PollStore with 6 in flight...": asked(3, 3),
    "ASYNC-15: ...[7] copies in a PollStore with 6 in flight...": asked(3, 7),
    "ASYNC-15: ...[4] copies in a PollStore with 0 in flight...": asked(0, 4),
    # A settle call settles what it names, also as failed where the copy succeeded here.
    "ASYNC-10": [
        settled(names={}),
        settled((8, DONE), names={8: True}),
        settled((8, FAILED), names={8: False}),
        settled((8, FAILED), (9, CANCELLED), names={8: False, 9: True}),
    ],
    "ASYNC-10: ...9 is reported as done, and...": settled((8, DONE), (9, DONE), names={8: True}),
    "ASYNC-10: ...8 was named, and was not settled": settled(names={8: True}),
    "ASYNC-10: ...8 ... and its copy has not ended": settled((8, DONE), names={8: True}, ended={}),
    "ASYNC-10: ...8 ... as done; it was named as failed": settled((8, DONE), names={8: False}),
}

test_ranks = table(RANKS)


def test_async_11_is_exercised_by_ends_that_differ() -> None:
    """The premise is that a copy has ended on one rank, and not, or not so, on another."""
    premise, same = LAWS["ASYNC-11"].premise, second()
    assert not premise.is_met(same)
    assert not premise.is_met(still(STATE, Poll(), NOTHING))
    for ended in ({8: True}, {8: False}):
        first, other = same.ranks
        assert premise.is_met(evolve(same, ranks=(first, evolve(other, ended=ended))))
