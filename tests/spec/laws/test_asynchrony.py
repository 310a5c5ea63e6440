"""ASYNC-1 to ASYNC-6: the order in which copies settle, what they hold, what their ends leave."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CANON, Profile, StoreMoment
from kvcanon.spec.operations import Evict, Flush, Match, Operation, Poll, Settled
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    CPU,
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    NodeId,
    TransferId,
    make_key,
)
from kvcanon.spec.views import Step
from states import EVERYTHING, copy, having, node, on, state_of, with_pool
from states.events import stores
from states.judging import Table, step, table

CONFIG = evolve(EVERYTHING, window_tokens=1)
BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED
End = tuple[TransferId, TransferStatus]


def state(*nodes: NodeState, transfers: tuple[TransferState, ...] = ()) -> Snapshot:
    """A state with one receipt for each transfer."""
    holds = tuple(
        HoldState(100 + t.transfer_id, t.parts[-1][0], None, False, t.transfer_id)
        for t in transfers
    )
    return state_of(CONFIG, *nodes, transfers=transfers, holds=holds)


def backups(
    *flying: TransferId,
    cancelled: tuple[TransferId, ...] = (),
    done: tuple[TransferId, ...] = (),
    profile: Profile = CANON,
) -> Snapshot:
    """Node 1 (two pages) and node 2 below it, backed up by transfers 8 and 9."""

    def part(node_id: NodeId, tokens: list[int], by: TransferId) -> NodeState:
        slots = [token - 1 for token in tokens]
        host = slots if by in (*flying, *done) else None
        data = on(slots, host, backing=by if by in flying and by not in done else None)
        return node(node_id, node_id - 1, tokens, full=data)

    copies = (
        copy(8, BACKUP, (0, 1), (0, 1), 1, cancelled=8 in cancelled),
        copy(9, BACKUP, (2,), (2,), 2, cancelled=9 in cancelled),
    )
    there = tuple(each for each in copies if each.transfer_id in (*flying, *cancelled))
    return evolve(state(part(1, [1, 2], 8), part(2, [3], 9), transfers=there), profile=profile)


def polled(before: Snapshot, after: Snapshot, *ends: End, asked: Operation = Poll()) -> Step:  # noqa: B008
    """A poll, or another call, that reports these ends."""
    return step(before, asked, after, Settled(ends))


BOTH, FIRST, SECOND, NONE = backups(8, 9), backups(8), backups(9), backups()
ENDED = backups(done=(8, 9))
"""Both backups are done."""
GIVEN_UP = backups(cancelled=(9,))
"""The first backup has failed, and the second is cancelled."""


def beside(*flying: TransferId, component: Component = FULL) -> Snapshot:
    """Nodes 1 and 3 beside each other, and node 2 below node 1; transfers 7, 8 and 9 copy them."""
    places = ((7, 1, 0, 1), (8, 2, 1, 2), (9, 3, 0, 9))
    nodes = [
        node(at, above, [token], full=on([at - 1], [at - 1], backing=by if by in flying else None))
        for by, at, above, token in places
    ]
    copies = (
        copy(7, BACKUP, (0,), (0,), 1, component=component),
        copy(8, BACKUP, (1,), (1,), 2),
        copy(9, BACKUP, (2,), (2,), 3),
    )
    return state(*nodes, transfers=tuple(each for each in copies if each.transfer_id in flying))


ORDER: Table = {
    # The first copy settles first, and alone if the second is not done. What copies another path,
    # what builds on window data alone, in the other direction, or is cancelled need not wait.
    "ASYNC-1": [
        polled(BOTH, backups(9, done=(8,)), (8, DONE)),
        polled(BOTH, ENDED, (8, DONE), (9, DONE), asked=Flush()),
        polled(BOTH, BOTH),
        step(BOTH, Evict(Counts(1)), ENDED),
        polled(beside(7, 8, 9), beside(7, 8), (9, DONE)),
        polled(beside(7, 8, 9), beside(), (9, DONE), (7, DONE), (8, DONE)),
        polled(beside(7, 8, component=SWA), beside(7, component=SWA), (8, DONE)),
        polled(backups(8, cancelled=(9,)), FIRST, (9, CANCELLED)),
        polled(
            evolve(FIRST, transfers=(*FIRST.transfers, copy(9, LOAD_BACK, (5,), (5,), 2))),
            FIRST,
            (9, DONE),
        ),
    ],
    (
        "ASYNC-1: backup transfer 9 settled before transfer 8, on which it builds, and which is "
        "still in flight"
    ): [
        polled(BOTH, backups(8, done=(9,)), (9, DONE)),
        step(BOTH, Evict(Counts(1)), backups(8, done=(9,))),
    ],
    "ASYNC-1: backup transfer 9 settled before transfer 8, on which it builds": polled(
        BOTH, ENDED, (9, DONE), (8, DONE)
    ),
    "ASYNC-1: backup transfer 8 ... transfer 7...": polled(beside(7, 8), beside(7), (8, DONE)),
    # A settled copy that is not reported, is reported twice, or was not in flight is reported.
    "ASYNC-1: backup transfers [8, 9] settled; reported are...": [
        polled(BOTH, ENDED, (8, DONE)),
        polled(BOTH, ENDED, (8, DONE), (8, DONE), (9, DONE)),
    ],
    "ASYNC-1: transfer 7 ... as settled, and was not in flight": polled(NONE, NONE, (7, DONE)),
    # After a flush nothing is in flight, cancelled or not; a poll may leave copies.
    "ASYNC-6": [polled(BOTH, ENDED, (8, DONE), (9, DONE), asked=Flush()), polled(BOTH, BOTH)],
    "ASYNC-6: backup transfer 9 ... a flush": polled(BOTH, GIVEN_UP, (8, FAILED), asked=Flush()),
}

MATCH = Match(make_key([1], 1))


def cut_in_flight(*parts: tuple[NodeId, Component]) -> Snapshot:
    """Node 1 was loaded back with all its data, and cut: node 2 is its upper part."""
    sources = {FULL: (0, 1, 2), SWA: (0, 1, 2), MAMBA: (0,)}
    targets = {FULL: (5, 6, 7), SWA: (8, 9, 10), MAMBA: (3,)}
    upper, lower = node(2, 0, [1], full=on((5,), (0,), loading=9)), node(1, 2, [2, 3], full=on())
    return state(
        having(upper, swa=on((8,), (0,), loading=9), mamba=on()),
        having(
            lower,
            full=on((6, 7), (1, 2), loading=9),
            swa=on((9, 10), (1, 2), loading=9),
            mamba=on((3,), (0,), loading=9),
        ),
        transfers=(TransferState(9, LOAD_BACK, parts, sources, targets),),
    )


LOADED = state(node(1, 0, [1], full=on((5,), (0,))), transfers=(copy(9, LOAD_BACK, (0,), (5,), 1),))
"""A load-back in flight, for which no node waits."""
EARLY = Profile(load_back_usable=StoreMoment.ENQUEUED)
IDLE = evolve(backups(done=(8,)), transfers=FIRST.transfers)
"""A backup in flight, for which no node waits."""

HOLDS: Table = {
    # Copies hold a receipt from enqueue to settlement, cancelled ones too.
    "ASYNC-2": [
        step(NONE, MATCH, BOTH),
        step(BOTH, Poll(), ENDED),
        step(BOTH, Poll(), backups(8, cancelled=(9,))),
    ],
    "ASYNC-2: 1 receipts belong to transfer 8, which is not in flight...": step(
        FIRST, Poll(), evolve(backups(done=(8,)), holds=FIRST.holds)
    ),
    "ASYNC-2: transfer 8 ... and has 0 receipts...": step(FIRST, MATCH, evolve(FIRST, holds=())),
    "ASYNC-2: ...has 2 receipts...": step(FIRST, MATCH, evolve(FIRST, holds=FIRST.holds * 2)),
    "ASYNC-2: transfer 8 has settled, and node 1 (tokens 0..2) still waits for its full data": step(
        FIRST, Poll(), evolve(FIRST, transfers=(), holds=())
    ),
    # A copy names both parts of a node that was cut, the upper first; its state stays below.
    "ASYNC-3": [
        cut_in_flight((2, FULL), (2, SWA), (1, FULL), (1, SWA), (1, MAMBA)),
        cut_in_flight((2, FULL), (1, FULL), (2, SWA), (1, SWA), (1, MAMBA)),
        BOTH,
        backups(8, cancelled=(9,)),
        # By profile, no node waits for a load-back that can be used at once.
        evolve(LOADED, profile=EARLY),
    ],
    # sgl#16946
    (
        "ASYNC-3",
        ...,
        "transfer 9 fills full slots [5, 6, 7], and the nodes that it names own [6, 7]",
        ...,
        "node 2 (tokens 0..1) waits... does not name its full...",
        ...,
    ): cut_in_flight((1, FULL), (2, SWA), (1, SWA), (1, MAMBA)),
    ("ASYNC-3", ..., "transfer 9 names node 2 (tokens 0..1) after one below it", ...): (
        cut_in_flight((1, FULL), (2, FULL), (2, SWA), (1, SWA), (1, MAMBA))
    ),
    # A named node that does not wait, or is not in the tree, is reported.
    "ASYNC-3: ...names the full data of node 1 (tokens 0..2), which does not wait for it": [
        IDLE,
        evolve(IDLE, profile=EARLY),
    ],
    "ASYNC-3: ...names the full data of node 1 (tokens 0..1), which does not wait...": LOADED,
    ("ASYNC-3", ..., "...names node 1, which is not in the tree...", ...): evolve(
        state(), transfers=FIRST.transfers
    ),
    # A node that waits for no copy in flight, or for a cancelled one, is reported.
    "ASYNC-3: node 1 (tokens 0..2) waits for transfer 8 on CPU_PINNED...no such copy...": [
        evolve(FIRST, transfers=()),
        evolve(FIRST, transfers=(evolve(FIRST.transfers[0], cancelled=True),)),
    ],
}

ONE_DONE, MUTE = backups(done=(8,)), evolve(CONFIG, events=False)
TOLD = stores(ONE_DONE, 1, CPU)
JOINED = state(node(2, 0, [1, 2, 3], full=on((0, 1, 2), (0, 1, 2))))
BOTH_DONE = Settled(((8, DONE), (9, DONE)))
LOADING = state(
    node(1, 0, [1], full=on((4,), (5,), loading=9)), transfers=(copy(9, LOAD_BACK, (5,), (4,), 1),)
)
THERE = state(node(1, 0, [1], full=on((4,), (5,))))
AT_ENQUEUE = Profile(load_back_announced=StoreMoment.ENQUEUED)

NEWS: Table = {
    # Copied data that is there is stored, parents first.
    "ASYNC-4": [
        step(BOTH, Poll(), ENDED, BOTH_DONE, (*stores(ENDED, 1, CPU), *stores(ENDED, 2, CPU))),
        polled(BOTH, BOTH),
        # A cache may join nodes when their copies have settled.
        step(BOTH, Poll(), JOINED, BOTH_DONE, stores(JOINED, 2, CPU)),
        # By profile, a load-back is stored at the enqueue and not again when done.
        polled(LOADING, evolve(THERE, profile=AT_ENQUEUE), (9, DONE)),
        polled(evolve(FIRST, config=MUTE), evolve(ONE_DONE, config=MUTE), (8, DONE)),
    ],
    # A part of a node that was cut in flight without a store is reported (sgl#16946).
    (
        "ASYNC-4: transfer 8 brought 2 pages to CPU_PINNED; no store was emitted for..."
        f"{TOLD[0].block_hash.hex()[:8]}..."
    ): step(FIRST, Poll(), ONE_DONE, Settled(((8, DONE),)), TOLD[1:]),
    "ASYNC-4: ...stores are out of order...": step(
        FIRST, Poll(), ONE_DONE, Settled(((8, DONE),)), TOLD[::-1]
    ),
    "ASYNC-4: transfer 9 brought 1 pages to CPU_PINNED...": step(
        BOTH, Poll(), JOINED, BOTH_DONE, stores(JOINED, 2, CPU)[:2]
    ),
    "ASYNC-4: transfer 9 brought 1 pages to GPU...": polled(LOADING, THERE, (9, DONE)),
}

BACK = evolve(CONFIG, write_policy="write_back")
NEIGHBOURS = (
    node(1, 0, [1], full=on((0,), (0,), backing=7)),
    node(2, 1, [2], full=on((1,), (1,), backing=8)),
    node(3, 0, [3], full=on((2,), (2,), backing=9)),
    node(4, 2, [4], full=on((3,), (3,), loading=10)),
)
SEVEN, EIGHT = copy(7, BACKUP, (0,), (0,), 1), copy(8, BACKUP, (1,), (1,), 2)
OTHERS = (SEVEN, copy(9, BACKUP, (2,), (2,), 3), copy(10, LOAD_BACK, (3,), (3,), 4))
FORGOT = node(2, 1, [2], full=on((1,)))
FULL_LOAD, SWA_LOAD = (
    copy(by, LOAD_BACK, (0,), (0,), 1, component=each) for by, each in ((8, FULL), (9, SWA))
)


def loading(*transfers: TransferState) -> Snapshot:
    """Node 1 on the host, whose full data transfer 8 loads, and its window data transfer 9."""
    there = {each.transfer_id: each.transfer_id for each in transfers}
    full, swa = (on((0,) if by in there else None, (0,), loading=there.get(by)) for by in (8, 9))
    return state(node(1, 0, [1], full=full, swa=swa), transfers=transfers)


FAILURES: Table = {
    # A failed copy frees its slots at once; what builds on it is cancelled, then freed.
    "ASYNC-5": [
        polled(BOTH, GIVEN_UP, (8, FAILED)),
        polled(GIVEN_UP, NONE, (9, CANCELLED)),
        polled(BOTH, NONE, (8, FAILED), (9, CANCELLED)),
        polled(BOTH, FIRST, (9, FAILED)),
        # Under write_back a child's backup does not build on its parent's.
        polled(evolve(BOTH, config=BACK), evolve(SECOND, config=BACK), (8, FAILED)),
        # A copy elsewhere, above it, or in the other direction does not build on a failed one.
        polled(
            state(*NEIGHBOURS, transfers=(EIGHT, *OTHERS)),
            state(NEIGHBOURS[0], FORGOT, *NEIGHBOURS[2:], transfers=OTHERS),
            (8, FAILED),
        ),
        # Full data does not build on window data, which builds on it.
        polled(loading(SWA_LOAD, FULL_LOAD), loading(FULL_LOAD), (9, FAILED)),
    ],
    "ASYNC-5: transfer 8 failed, and its full slots [1] on CPU_PINNED did not come free...": polled(
        FIRST, with_pool(NONE, FULL, CPU, free=(0, 2)), (8, FAILED)
    ),
    # sgl#27108
    (
        "ASYNC-5",
        ...,
        "transfer 8 failed, and node 1 (tokens 0..2) has its full slots on CPU_PINNED",
        ...,
    ): polled(FIRST, ONE_DONE, (8, FAILED)),
    # What builds on a failed copy is cancelled, however it would have ended.
    ("ASYNC-5: transfer 8 failed, and transfer 9, which builds on it, was not cancelled", ...): [
        polled(BOTH, SECOND, (8, FAILED)),
        polled(BOTH, backups(done=(9,)), (8, FAILED), (9, DONE)),
        polled(BOTH, NONE, (8, FAILED), (9, FAILED)),
        polled(loading(FULL_LOAD, SWA_LOAD), loading(SWA_LOAD), (8, FAILED)),
    ],
    "ASYNC-5: transfer 9 was cancelled and is reported as done": polled(GIVEN_UP, NONE, (9, DONE)),
    "ASYNC-5: transfer 9 ... and is reported as failed": polled(GIVEN_UP, NONE, (9, FAILED)),
}

test_asynchrony = table(ORDER, HOLDS, NEWS, FAILURES)
