"""ASYNC-7 to ASYNC-10: when transfers are enqueued and settled, and what a settlement changes."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.operations import (
    Evict,
    Flush,
    Insert,
    Inserted,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Match,
    Operation,
    Outcome,
    Poll,
    Settled,
)
from kvcanon.spec.snapshot import HoldState, NodeState, PoolState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Slots, TransferId, WritePolicy, make_key
from states import ROOT, node, on, state_of
from telling import ask, step

CONFIG = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
KEY = make_key([1, 2, 3], 1)
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED
EXCLUSIVE = Profile(loads_keep_host_copies=False)


def copy(
    transfer_id: TransferId, page: int, node_id: int, *, cancelled: bool = False
) -> TransferState:
    """The backup of one page: page n is in slot n on both media."""
    return TransferState(
        transfer_id,
        Direction.BACKUP,
        ((node_id, FULL),),
        {FULL: (page,)},
        {FULL: (page,)},
        cancelled=cancelled,
    )


EIGHT, NINE, TEN = copy(8, 0, 1), copy(9, 1, 2), copy(10, 5, 3)
"""Backups of node 1, of node 2 below it, and of node 3 elsewhere."""


def part(node_id: int, parent_id: int, page: int, refs: int, copied: int | None) -> NodeState:
    """One page; `copied` is the transfer to its host slot, or 0 for one that ended."""
    host = None if copied is None else [page]
    full = on([page], host, lock_refs=refs, backing=copied or None)
    return node(node_id, parent_id, [page], full=full)


def flying(
    *transfers: TransferState,
    done: tuple[int, ...] = (),
    hits: int = 0,
    extra_refs: int = 0,
    free: tuple[int, ...] | None = None,
) -> Snapshot:
    """The three nodes with these backups in flight, each with its receipt; some done."""
    ids = {each.transfer_id: each for each in transfers}
    live = {each for each, transfer in ids.items() if not transfer.cancelled}

    def copied(transfer_id: int) -> int | None:
        return transfer_id if transfer_id in live else 0 if transfer_id in done else None

    below = int(9 in ids)
    nodes = (
        evolve(part(1, ROOT, 0, int(8 in ids) + below + extra_refs, copied(8)), hit_count=hits),
        part(2, 1, 1, below, copied(9)),
        part(3, ROOT, 5, int(10 in ids), copied(10)),
    )
    ends = {8: 1, 9: 2, 10: 3}
    holds = tuple(HoldState(100 + i, ends[i], None, False, i) for i in ids)
    made = state_of(CONFIG, *nodes, transfers=transfers, holds=holds)
    if free is None:
        return made
    pool = made.pools[FULL, GPU]
    return evolve(made, pools={**made.pools, (FULL, GPU): PoolState(pool.capacity, free)})


def said(
    law_id: str,
    before: Snapshot,
    after: Snapshot,
    *ends: tuple[TransferId, TransferStatus],
    operation: Operation | None = None,
    outcome: Outcome | None = None,
) -> list[str]:
    """What a law reports of a poll, or of another step."""
    return ask(law_id, step(before, operation or Poll(), after, outcome or Settled(ends)))


INSERT = Insert(KEY, 3, Slots())


def inserted(*backups: TransferId) -> Inserted:
    """An insert that reports these backups."""
    return Inserted(3, Counts(), Counts(), backups)


@pytest.mark.parametrize(
    ("before", "operation", "outcome", "after"),
    [
        (flying(), INSERT, inserted(8, 9), flying(EIGHT, NINE)),
        (flying(EIGHT), INSERT, inserted(9), flying(EIGHT, NINE)),
        (flying(), INSERT, inserted(), flying()),
        (flying(EIGHT), Poll(), Settled(((8, DONE),)), flying(done=(8,))),
        (flying(EIGHT, NINE), Poll(), Settled(()), flying(EIGHT, copy(9, 1, 2, cancelled=True))),
        (flying(), LoadBack(KEY), LoadedBack(LoadDecision.ENQUEUED, 8), flying(EIGHT)),
        (flying(), LoadBack(KEY), LoadedBack(LoadDecision.NO_ROOM), flying()),
    ],
    ids=["two", "one more", "none", "settled", "cancelled", "load", "no room"],
)
def test_async_7_told_transfers_hold(
    before: Snapshot, operation: Operation, outcome: Outcome, after: Snapshot
) -> None:
    """Transfers that an operation reports hold."""
    assert said("ASYNC-7", before, after, operation=operation, outcome=outcome) == []


@pytest.mark.parametrize(
    ("before", "operation", "outcome", "after", "words"),
    [
        (
            flying(),
            INSERT,
            inserted(),
            flying(EIGHT),
            "Insert reported transfers [], and enqueued [8]",
        ),
        (flying(), INSERT, inserted(8), flying(), "Insert reported transfers [8], and enqueued []"),
        (
            flying(EIGHT),
            INSERT,
            inserted(8),
            flying(EIGHT),
            "reported transfers [8], and enqueued []",
        ),
        (flying(), INSERT, inserted(9, 8), flying(EIGHT, NINE), "reported transfers [9, 8]"),
        (flying(), Match(KEY), Settled(()), flying(EIGHT), "Match reported transfers [], and"),
        (flying(EIGHT), INSERT, inserted(9), flying(NINE, EIGHT), "[8] and then [9] are in flight"),
        (flying(EIGHT), INSERT, inserted(), flying(), "transfer 8 was in flight, and is not after"),
        (
            flying(EIGHT),
            Match(KEY),
            None,
            flying(evolve(EIGHT, targets={FULL: (7,)})),
            "Match changed transfer 8",
        ),
    ],
    ids=["untold", "invented", "old", "order", "match", "not last", "gone", "other"],
)
def test_async_7_other_transfers_are_named(
    before: Snapshot, operation: Operation, outcome: Outcome | None, after: Snapshot, words: str
) -> None:
    """A copy that is not reported, reported wrongly, or lost is reported."""
    found = said("ASYNC-7", before, after, operation=operation, outcome=outcome or inserted())
    assert any(words in each for each in found), found


def test_async_7_write_back_settles_its_own() -> None:
    """An eviction under write_back may settle a backup."""
    back = evolve(CONFIG, write_policy="write_back")
    before, after = (evolve(each, config=back) for each in (flying(EIGHT), flying(done=(8,))))
    evict = Evict(Counts(1))
    assert said("ASYNC-7", before, after, operation=evict, outcome=inserted()) == []
    (found,) = said("ASYNC-7", flying(EIGHT), flying(), operation=evict, outcome=inserted())
    assert found == "transfer 8 was in flight, and is not after Evict"


GIVEN_UP = copy(9, 1, 2, cancelled=True)


def test_async_8_reasons_hold() -> None:
    """A done copy whose data is there holds, and one cancelled after a failure above it."""
    both = flying(EIGHT, NINE)
    assert said("ASYNC-8", both, flying(NINE, done=(8,)), (8, DONE)) == []
    assert said("ASYNC-8", both, flying(GIVEN_UP), (8, FAILED)) == []
    assert said("ASYNC-8", both, flying(), (8, FAILED), (9, CANCELLED)) == []
    assert said("ASYNC-8", flying(GIVEN_UP), flying(), (9, CANCELLED)) == []
    assert said("ASYNC-8", flying(GIVEN_UP), flying(GIVEN_UP)) == []


@pytest.mark.parametrize(
    ("before", "after", "ends", "words"),
    [
        (flying(EIGHT), flying(), ((8, DONE),), "is done, and the full data of node 1 (tokens 0.."),
        (flying(EIGHT), state_of(CONFIG), ((8, DONE),), "of node 1 (tokens 0..1) is not on CPU_P"),
        (flying(EIGHT), flying(EIGHT), ((8, DONE),), "of node 1 (tokens 0..1) is not on CPU_P"),
        (flying(EIGHT), flying(), ((8, CANCELLED),), "8 was cancelled; it builds on none of []"),
        (
            flying(EIGHT, TEN),
            flying(),
            ((8, FAILED), (10, CANCELLED)),
            "transfer 10 was cancelled; it builds on none of [8], which failed",
        ),
        (flying(EIGHT, NINE), flying(EIGHT, GIVEN_UP), (), "9 was cancelled; it builds on none"),
        (flying(GIVEN_UP), flying(NINE), (), "transfer 9 was cancelled, and is not any more"),
    ],
    ids=[
        "done, not there",
        "done, gone",
        "done, waits",
        "no reason",
        "elsewhere",
        "in flight",
        "taken up",
    ],
)
def test_async_8_ends_without_a_reason_are_named(
    before: Snapshot,
    after: Snapshot,
    ends: tuple[tuple[TransferId, TransferStatus], ...],
    words: str,
) -> None:
    """A cancelled copy that builds on no failed one, or a done one without data, is reported."""
    (found,) = said("ASYNC-8", before, after, *ends)
    assert words in found


def test_async_8_the_other_direction_does_not_build_on_it() -> None:
    """A load-back that is cancelled because a backup failed is reported."""
    load = TransferState(9, Direction.LOAD_BACK, ((2, FULL),), {FULL: (1,)}, {FULL: (1,)})
    before = evolve(flying(EIGHT, NINE), transfers=(EIGHT, load))
    (found,) = said("ASYNC-8", before, flying(), (8, FAILED), (9, CANCELLED))
    assert "transfer 9 was cancelled" in found


def test_async_9_ends_hold() -> None:
    """A poll that changes only what ended copies change holds."""
    both = flying(EIGHT, NINE)
    assert said("ASYNC-9", both, both) == []
    assert said("ASYNC-9", both, flying(NINE, done=(8,)), (8, DONE)) == []
    assert said("ASYNC-9", both, flying(done=(8, 9)), (8, DONE), (9, DONE)) == []
    assert said("ASYNC-9", both, flying(GIVEN_UP), (8, FAILED)) == []
    assert said("ASYNC-9", flying(GIVEN_UP), flying(), (9, CANCELLED)) == []
    assert said("ASYNC-9", both, flying(), operation=Match(KEY), outcome=inserted()) == []


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (flying(done=(8,), hits=3), "page 0 in node 1 (tokens 0..1): hit_count was 0 and is 3"),
        (flying(done=(8,), extra_refs=1), "full lock_refs went from 1 to 1 with the transfers"),
        (flying(done=()), "its full slot on CPU_PINNED was 0 and is none; no copy to it failed"),
        (flying(EIGHT, done=(8,)), "was held by transfers that ended, and its lock_refs did"),
        (flying(NINE, done=(8,)), "waited for transfer none to fill its full slot on CPU_PINNED"),
        (flying(done=(8,), free=(2, 3, 4, 6)), "slots [7] of full on GPU became free or held"),
        (state_of(CONFIG, *flying(done=(8,)).below_root()), "vanished"),
    ],
    ids=["hit", "lock kept", "copy dropped", "not let go", "new copy", "slot taken", "page gone"],
)
def test_async_9_other_changes_are_named(after: Snapshot, words: str) -> None:
    """A poll that moves, releases or evicts anything else is reported."""
    if words == "vanished":
        after = evolve(after, nodes={i: n for i, n in after.nodes.items() if i != 3})
    closed = evolve(after, holds=tuple(h for h in after.holds if h.transfer_id != 8))
    found = said("ASYNC-9", flying(EIGHT), closed, (8, DONE))
    assert any(words in each for each in found), found


def test_async_9_targets_alone_come_free() -> None:
    """A flush that frees slots of requests or nodes is reported."""
    before, after = flying(EIGHT), flying()
    freed = evolve(after, pools={**after.pools, (FULL, CPU): PoolState(8, (0, 1, 2, 3, 4, 5, 6))})
    (found,) = said("ASYNC-9", before, freed, (8, FAILED), operation=Flush())
    assert found == "slots [7] of full on CPU_PINNED became free or held, or ceased to be so"


@pytest.mark.parametrize(("profile", "holds"), [(CANON, False), (EXCLUSIVE, True)])
def test_async_9_exclusive_tiers_give_up_host_copies(profile: Profile, holds: bool) -> None:
    """By profile, a poll may free the host copy of data that was loaded."""
    config = evolve(CONFIG, write_policy=WritePolicy.WRITE_BACK)
    load = TransferState(8, Direction.LOAD_BACK, ((1, FULL),), {FULL: (3,)}, {FULL: (0,)})
    coming = node(1, ROOT, [1], full=on([0], [3], lock_refs=1, loading=8))
    hold = HoldState(90, 1, None, state_held=False, transfer_id=8)
    before = state_of(config, coming, transfers=(load,), holds=(hold,))
    after = state_of(config, node(1, ROOT, [1], full=on([0])))
    before, after = evolve(before, profile=profile), evolve(after, profile=profile)
    assert (said("ASYNC-9", before, after, (8, DONE)) == []) is holds
    assert said("ASYNC-9", before, after, (8, FAILED)) != []
    other = evolve(after, pools={**after.pools, (FULL, CPU): PoolState(8, (0, 1, 2, 3, 4, 5, 6))})
    assert said("ASYNC-9", before, other, (8, DONE)) != []


def polled(
    before: Snapshot,
    *ends: tuple[TransferId, TransferStatus],
    ended: dict[TransferId, bool],
    profile: Profile = CANON,
) -> list[str]:
    """What ASYNC-10 reports of a poll after copies have ended so."""
    declared = evolve(before, profile=profile)
    told = evolve(step(declared, Poll(), flying(), Settled(ends)), ended=ended)
    return ask("ASYNC-10", told)


LATE = evolve(copy(11, 6, 3), direction=Direction.LOAD_BACK)
"""A load-back of another direction."""


@pytest.mark.parametrize(
    ("before", "ends", "ended"),
    [
        (flying(EIGHT, NINE), ((8, DONE), (9, DONE)), {8: True, 9: True}),
        (flying(EIGHT), ((8, FAILED),), {8: False}),
        (flying(EIGHT, NINE), ((8, FAILED),), {8: False}),
        (flying(EIGHT, NINE), ((8, FAILED), (9, CANCELLED)), {8: False, 9: True}),
        (flying(copy(8, 0, 1, cancelled=True)), ((8, CANCELLED),), {8: True}),
        (flying(EIGHT, NINE), (), {}),
        (flying(EIGHT, NINE), (), {9: True}),
        (flying(EIGHT, TEN), ((10, DONE),), {10: True}),
        (evolve(flying(EIGHT), transfers=(EIGHT, LATE)), ((11, DONE),), {11: True}),
    ],
    ids=[
        "done",
        "failed",
        "alone",
        "cancelled",
        "cancelled before",
        "nothing",
        "behind one that has not",
        "before one that has not",
        "of another direction",
    ],
)
def test_async_10_ends_as_they_were_hold(
    before: Snapshot,
    ends: tuple[tuple[TransferId, TransferStatus], ...],
    ended: dict[TransferId, bool],
) -> None:
    """A poll that settles the copies that have ended, each in its turn, holds."""
    assert polled(before, *ends, ended=ended) == []


@pytest.mark.parametrize(
    ("before", "ends", "ended", "words"),
    [
        (flying(EIGHT), (), {8: True}, "has ended, with all before it, and was not settled"),
        (flying(EIGHT), (), {8: False}, "has ended, with all before it, and was not settled"),
        (flying(EIGHT, NINE), ((8, DONE),), {8: True, 9: True}, "transfer 9 has ended"),
        (
            evolve(flying(EIGHT), transfers=(EIGHT, LATE)),
            (),
            {11: True},
            "load_back transfer 11 has ended",
        ),
        (flying(EIGHT), ((8, DONE),), {}, "is reported as done, and its copy has not ended"),
        (flying(EIGHT), ((8, DONE),), {8: False}, "is reported as done; its copy failed"),
        (flying(EIGHT), ((8, FAILED),), {8: True}, "is reported as failed; its copy succeeded"),
    ],
)
def test_async_10_other_ends_are_named(
    before: Snapshot,
    ends: tuple[tuple[TransferId, TransferStatus], ...],
    ended: dict[TransferId, bool],
    words: str,
) -> None:
    """A copy that is settled too early, never, or with a wrong result is reported."""
    (text,) = polled(before, *ends, ended=ended)
    assert words in text


def test_async_10_failed_loads_are_done_where_they_are_of_use_at_once() -> None:
    """By profile, a failed load-back may be reported as done, but no failed backup."""
    at_once = Profile(load_back_usable=StoreMoment.ENQUEUED)
    loading = evolve(flying(), transfers=(LATE,))
    assert polled(loading, (11, DONE), ended={11: False}, profile=at_once) == []
    assert len(polled(loading, (11, DONE), ended={11: False})) == 1
    assert len(polled(flying(EIGHT), (8, DONE), ended={8: False}, profile=at_once)) == 1


def test_async_10_is_a_matter_of_polls() -> None:
    """Other calls need not settle copies that have ended."""
    told = evolve(step(flying(EIGHT), Match(KEY), flying(EIGHT)), ended={8: True})
    assert ask("ASYNC-10", told) == []
