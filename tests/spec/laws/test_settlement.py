"""ASYNC-7 to ASYNC-10: when transfers are enqueued and settled, and what a settlement changes."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec import operations as op
from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.snapshot import HoldState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, FULL, Counts, Slots, TransferId, make_key
from kvcanon.spec.views import Step
from states import ROOT, copy, node, on, state_of, with_pool
from states.judging import Table, step, table

CONFIG = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
KEY = make_key([1, 2, 3], 1)
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED
End = tuple[TransferId, TransferStatus]

EIGHT, NINE, TEN = (
    copy(8 + n, Direction.BACKUP, (page,), (page,), n + 1) for n, page in enumerate((0, 1, 5))
)
"""Backups of node 1, of node 2 below it, and of node 3 elsewhere, of a page each."""
GIVEN_UP = evolve(NINE, cancelled=True)


def flying(
    *transfers: TransferState, done: tuple[int, ...] = (), hits: int = 0, extra_refs: int = 0
) -> Snapshot:
    """The three nodes with these backups in flight, each with its receipt; some done."""
    ids = [each.transfer_id for each in transfers]
    live = [each.transfer_id for each in transfers if not each.cancelled]
    below = int(9 in ids)
    refs = (int(8 in ids) + below + extra_refs, below, int(10 in ids))
    nodes = [
        node(
            n + 1,
            1 if n == 1 else ROOT,
            [page],
            full=on(
                [page],
                [page] if 8 + n in (*live, *done) else None,
                lock_refs=refs[n],
                backing=8 + n if 8 + n in live else None,
            ),
            hit_count=0 if n else hits,
        )
        for n, page in enumerate((0, 1, 5))
    ]
    holds = tuple(HoldState(100 + i, i - 7, None, False, i) for i in ids)
    return state_of(CONFIG, *nodes, transfers=transfers, holds=holds)


IDLE, ONE, BOTH = flying(), flying(EIGHT), flying(EIGHT, NINE)
ONE_DONE, STOPPED = flying(done=(8,)), flying(GIVEN_UP)


def insert(before: Snapshot, after: Snapshot, *backups: TransferId) -> Step:
    """An insert that reports these backups."""
    told = op.Inserted(3, Counts(), Counts(), backups)
    return step(before, op.Insert(KEY, 3, Slots()), after, told)


def load(after: Snapshot, told: op.LoadedBack) -> Step:
    """A load-back."""
    return step(IDLE, op.LoadBack(KEY), after, told)


def poll(
    before: Snapshot, after: Snapshot, *ends: End, ended: dict[TransferId, bool] | None = None
) -> Step:
    """A poll that reports these ends; `ended` is how copies ended in truth."""
    return evolve(step(before, op.Poll(), after, op.Settled(ends)), ended=ended or {})


EVICT, MATCH = op.Evict(Counts(1)), op.Match(KEY)
BACK = evolve(CONFIG, write_policy="write_back")

TOLD: Table = {
    # A copy that is not reported, reported wrongly, or lost is reported.
    "ASYNC-7": [
        insert(IDLE, BOTH, 8, 9),
        insert(ONE, BOTH, 9),
        insert(IDLE, IDLE),
        poll(ONE, ONE_DONE, (8, DONE)),
        poll(BOTH, flying(EIGHT, GIVEN_UP)),
        load(ONE, op.LoadedBack(op.LoadDecision.ENQUEUED, 8)),
        load(IDLE, op.LoadedBack(op.LoadDecision.NO_ROOM)),
        # An eviction under write_back may settle a backup.
        step(evolve(ONE, config=BACK), EVICT, evolve(ONE_DONE, config=BACK)),
    ],
    "ASYNC-7: Insert reported transfers [], and enqueued [8]": insert(IDLE, ONE),
    "ASYNC-7: Insert reported transfers [8], and enqueued []": [
        insert(IDLE, IDLE, 8),
        insert(ONE, ONE, 8),
    ],
    "ASYNC-7: Insert reported transfers [9, 8]...": insert(IDLE, BOTH, 9, 8),
    "ASYNC-7: Match reported transfers [], and...": step(IDLE, MATCH, ONE),
    "ASYNC-7: ...[8] and then [9] are in flight...": insert(ONE, flying(NINE, EIGHT), 9),
    "ASYNC-7: transfer 8 was in flight, and is not after...": insert(ONE, IDLE),
    "ASYNC-7: transfer 8 was in flight, and is not after Evict": step(ONE, EVICT, IDLE),
    "ASYNC-7: Match changed transfer 8...": step(
        ONE, MATCH, flying(evolve(EIGHT, targets={FULL: (7,)}))
    ),
    # A cancelled copy that builds on no failed one, or a done one without data, is reported.
    "ASYNC-8": [
        poll(BOTH, flying(NINE, done=(8,)), (8, DONE)),
        poll(BOTH, STOPPED, (8, FAILED)),
        poll(BOTH, IDLE, (8, FAILED), (9, CANCELLED)),
        poll(STOPPED, IDLE, (9, CANCELLED)),
        poll(STOPPED, STOPPED),
    ],
    "ASYNC-8: ...is done, and the full data of node 1 (tokens 0..1) is not on CPU_PINNED...": [
        poll(ONE, IDLE, (8, DONE)),
        poll(ONE, ONE, (8, DONE)),
    ],
    "ASYNC-8: ...of node 1 ... is not on CPU_PINNED...": poll(ONE, state_of(CONFIG), (8, DONE)),
    "ASYNC-8: transfer 8 ... it builds on none of []...": poll(ONE, IDLE, (8, CANCELLED)),
    "ASYNC-8: transfer 10 was cancelled; it builds on none of [8], which failed in this step": poll(
        flying(EIGHT, TEN), IDLE, (8, FAILED), (10, CANCELLED)
    ),
    "ASYNC-8: transfer 9 was cancelled; it builds on none...": poll(BOTH, flying(EIGHT, GIVEN_UP)),
    "ASYNC-8: transfer 9 was cancelled, and is not any more": poll(STOPPED, flying(NINE)),
    # A backup that fails gives no reason to cancel a load-back.
    "ASYNC-8: transfer 9 was cancelled; ...": poll(
        evolve(BOTH, transfers=(EIGHT, evolve(NINE, direction=Direction.LOAD_BACK))),
        IDLE,
        (8, FAILED),
        (9, CANCELLED),
    ),
}


def ended_to(after: Snapshot) -> Step:
    """The end of the first backup, which leads to this state without its receipt."""
    holds = tuple(each for each in after.holds if each.transfer_id != 8)
    return poll(ONE, evolve(after, holds=holds), (8, DONE))


GONE = evolve(ONE_DONE, nodes={i: n for i, n in ONE_DONE.nodes.items() if i != 3})


def exclusive(
    profile: Profile, status: TransferStatus = DONE, free: tuple[int, ...] | None = None
) -> Step:
    """The end of a load-back, after which its host copy is gone."""
    coming = node(1, ROOT, [1], full=on([0], [3], lock_refs=1, loading=8))
    hold = HoldState(90, 1, None, state_held=False, transfer_id=8)
    loading = (copy(8, Direction.LOAD_BACK, (3,), (0,), 1),)
    before = state_of(BACK, coming, transfers=loading, holds=(hold,), profile=profile)
    after = state_of(BACK, node(1, ROOT, [1], full=on([0])), profile=profile)
    return poll(before, with_pool(after, FULL, CPU, free=free), (8, status))


EXCLUSIVE = Profile(loads_keep_host_copies=False)
LOST = "...its full slot on CPU_PINNED was 3 and is none; no copy to it failed..."

CHANGES: Table = {
    # A poll that moves, releases or evicts more than ended copies do is reported.
    "ASYNC-9": [
        poll(BOTH, BOTH),
        poll(BOTH, flying(NINE, done=(8,)), (8, DONE)),
        poll(BOTH, flying(done=(8, 9)), (8, DONE), (9, DONE)),
        poll(BOTH, STOPPED, (8, FAILED)),
        poll(STOPPED, IDLE, (9, CANCELLED)),
        step(BOTH, MATCH, IDLE),
        # By profile, a poll may free the host copy of data that was loaded.
        exclusive(EXCLUSIVE),
    ],
    "ASYNC-9: page 0 in node 1 ...: hit_count was 0 and is 3": ended_to(flying(done=(8,), hits=3)),
    "ASYNC-9: ...full lock_refs went from 1 to 1 with the transfers...": ended_to(
        flying(done=(8,), extra_refs=1)
    ),
    ("ASYNC-9: ...full slot on CPU_PINNED was 0 and is none; no copy to it failed...", ...): (
        ended_to(IDLE)
    ),
    ("ASYNC-9", ..., "...was held by transfers that ended, and its lock_refs did...", ...): (
        ended_to(flying(EIGHT, done=(8,)))
    ),
    ("ASYNC-9", ..., "...waited for transfer none to fill its full slot on CPU_PINNED...", ...): (
        ended_to(flying(NINE, done=(8,)))
    ),
    "ASYNC-9: slots [7] of full on GPU became free or held, or ceased to be so": ended_to(
        with_pool(ONE_DONE, FULL, free=(2, 3, 4, 6))
    ),
    ("ASYNC-9: page 0 in node 3 (tokens 0..1) vanished", ...): ended_to(GONE),
    "ASYNC-9: slots [7] of full on CPU_PINNED became free or held, or ceased to be so": step(
        ONE, op.Flush(), with_pool(IDLE, FULL, CPU, free=range(7)), op.Settled(((8, FAILED),))
    ),
    ("ASYNC-9", ..., LOST, ...): exclusive(CANON),
    ("ASYNC-9", LOST, "slots [3] of full on CPU_PINNED became..."): exclusive(EXCLUSIVE, FAILED),
    "ASYNC-9: slots [7] of full on CPU_PINNED became...": exclusive(
        EXCLUSIVE, free=tuple(range(7))
    ),
}

LATE = evolve(copy(11, Direction.LOAD_BACK, (6,), (6,), 3))
BESIDE = evolve(ONE, transfers=(EIGHT, LATE))
"""A backup and a load-back in flight."""
AT_ONCE = Profile(load_back_usable=StoreMoment.ENQUEUED)
LOADING = evolve(IDLE, transfers=(LATE,))
NOT_SETTLED = "has ended, with all before it, and was not settled"

ENDS: Table = {
    # A copy that is settled too early, never, or with a wrong result is reported.
    "ASYNC-10": [
        poll(BOTH, IDLE, (8, DONE), (9, DONE), ended={8: True, 9: True}),
        poll(ONE, IDLE, (8, FAILED), ended={8: False}),
        poll(BOTH, IDLE, (8, FAILED), ended={8: False}),
        poll(BOTH, IDLE, (8, FAILED), (9, CANCELLED), ended={8: False, 9: True}),
        poll(flying(evolve(EIGHT, cancelled=True)), IDLE, (8, CANCELLED), ended={8: True}),
        poll(BOTH, IDLE),
        # A copy waits for those before it, of its path and direction.
        poll(BOTH, IDLE, ended={9: True}),
        poll(flying(EIGHT, TEN), IDLE, (10, DONE), ended={10: True}),
        poll(BESIDE, IDLE, (11, DONE), ended={11: True}),
        # By profile, a failed load-back may be reported as done, but no failed backup.
        poll(evolve(LOADING, profile=AT_ONCE), IDLE, (11, DONE), ended={11: False}),
        evolve(step(ONE, MATCH, ONE), ended={8: True}),
    ],
    f"ASYNC-10: backup transfer 8 {NOT_SETTLED}": [
        poll(ONE, IDLE, ended={8: True}),
        poll(ONE, IDLE, ended={8: False}),
    ],
    "ASYNC-10: ...transfer 9 has ended...": poll(BOTH, IDLE, (8, DONE), ended={8: True, 9: True}),
    f"ASYNC-10: load_back transfer 11 {NOT_SETTLED}": poll(BESIDE, IDLE, ended={11: True}),
    "ASYNC-10: ...is reported as done, and its copy has not ended": poll(ONE, IDLE, (8, DONE)),
    "ASYNC-10: ...is reported as done; its copy failed": [
        poll(ONE, IDLE, (8, DONE), ended={8: False}),
        poll(LOADING, IDLE, (11, DONE), ended={11: False}),
        poll(evolve(ONE, profile=AT_ONCE), IDLE, (8, DONE), ended={8: False}),
    ],
    "ASYNC-10: ...is ... failed; its copy succeeded": poll(ONE, IDLE, (8, FAILED), ended={8: True}),
}

test_settlement = table(TOLD, CHANGES, ENDS)
