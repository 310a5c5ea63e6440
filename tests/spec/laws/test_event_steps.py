"""EVENT-5, -7, -8, -10, -11, -12 and -14: the events of one operation."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec import operations as op
from kvcanon.spec.config import CANON, Profile, StoreMoment
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, Event
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, Counts, Slots, make_key
from kvcanon.spec.views import Step
from states import having, node, on, state_of
from states.events import BACK, MUTE, PAGED, THROUGH, UPPER, names_of, paged, removes, stores
from states.judging import Table, step, still, table

KEY = make_key([1, 2, 3, 4, 5, 6], 2)
INSERT, POLL, RESET = op.Insert(KEY, 0, Slots((0, 1, 2))), op.Poll(), op.Reset()
EVICT, LOAD = op.Evict(Counts(1)), op.LoadBack(KEY)
FETCH = op.InsertHost(KEY, 2, op.HostPayload((b"",)))
CLEARED = AllBlocksCleared()
REFUSED = op.Refused(OutOfSlots("full on GPU", 9, 1))

THERE, EMPTY, LEFT = paged(), paged(upper=None, lower=None), paged(lower=None)
UP, DOWN, DOWN_CPU = stores(THERE, 1), stores(THERE, 2), stores(THERE, 2, CPU)
UP_GONE, DOWN_GONE, DOWN_GONE_CPU = (
    removes(THERE, 1),
    removes(THERE, 2),
    removes(THERE, 2, CPU),
)

QUIET: list[op.Operation] = [
    op.Match(KEY),
    op.Lock(KEY),
    op.Unlock(op.Receipt(1, KEY)),
    op.UnlockWindow(op.Receipt(1, KEY)),
    op.Allocate(Counts(1)),
    op.Free(Slots((5,))),
    op.TakeEvents(),
]

SILENCE: Table = {
    # Matches, locks and allocations, and refused calls, emit no events.
    "EVENT-5": [*[still(THERE, each) for each in QUIET], still(THERE, INSERT, REFUSED)],
    **{
        f"EVENT-5: {type(each).__name__} sent BlockStored...": step(
            THERE, each, THERE, None, UP[:1]
        )
        for each in QUIET
    },
    "EVENT-5: Insert was refused and sent...": step(THERE, INSERT, THERE, REFUSED, DOWN),
    "EVENT-5: ...events are off...": step(paged(MUTE), INSERT, paged(MUTE), None, UP),
    # Step laws of events demand none where events are off.
    "EVENT-7, EVENT-8, EVENT-10, EVENT-12": [
        step(paged(MUTE, upper=None, lower=None), INSERT, paged(MUTE))
    ],
}

JOINED = state_of(PAGED, node(1, 0, UPPER, full=on((0, 1)), page_size=2))
PARTED = (
    node(2, 0, UPPER[:2], full=on((0,)), page_size=2),
    node(1, 2, UPPER[2:], full=on((1,)), page_size=2),
)
BRANCHED = state_of(PAGED, *PARTED, node(3, 2, (7, 8), full=on((2,)), page_size=2))
BRANCH = op.Insert(make_key([1, 2, 7, 8], 2), 0, Slots((3, 2)))
(NEW,) = stores(BRANCHED, 3)
BACKED, BACK_LEFT = paged(BACK), paged(BACK, lower=None)

CONTENT: Table = {
    # The parent of a new branch is the last page that the branches share (sgl#24718).
    "EVENT-7": [
        step(JOINED, BRANCH, BRANCHED, events=(NEW,)),
        # A page that a step stored and removed again is checked where it was before the step.
        step(BACKED, EVICT, BACK_LEFT, events=DOWN_CPU),
    ],
    (
        "EVENT-7: ...tokens 2..4 (node 3)...the page before it is "
        f"{names_of(BRANCHED, 2)[0].hex()[:8]}..."
    ): step(JOINED, BRANCH, BRANCHED, None, [evolve(NEW, parent_hash=names_of(BRANCHED, 1)[-1])]),
    "EVENT-7: ...tokens 4..6...the page before it...": step(
        BACKED, EVICT, BACK_LEFT, None, [evolve(DOWN_CPU[0], parent_hash=None)]
    ),
    "EVENT-7: ...tokens 2..4 (node 1) was stored as (9, 9)...": step(
        EMPTY, INSERT, LEFT, None, [UP[0], evolve(UP[1], page=(9, 9))]
    ),
}

ENQUEUED = Profile(load_back_announced=StoreMoment.ENQUEUED)
EXCLUSIVE = Profile(loads_keep_host_copies=False)


def tiered(lower: tuple[tuple[int, ...] | None, tuple[int, ...] | None] | None) -> Snapshot:
    """Node 1 on both media, and node 2 in these slots, if anywhere."""
    there = None if lower is None else on(*lower)
    return paged(THROUGH, upper=on((0, 1), (0, 1)), lower=there)


DEVICE, COPIED, HALF, SHORT = (
    paged(THROUGH),
    tiered(((2,), (2,))),
    tiered((None, (2,))),
    tiered(None),
)
HOST_ALONE = paged(THROUGH, lower=on(None, (0,)))
ON_BOTH = paged(THROUGH, lower=on((2,), (0,)))
LOADING = paged(THROUGH, lower=on((2,), (0,), loading=9), profile=ENQUEUED)
IN_VAIN: tuple[Event, ...] = (*DOWN_CPU, *DOWN_GONE, *DOWN_GONE_CPU)
"""A page that a write_back eviction copied and then evicted."""
LEAF = node(1, 0, UPPER, full=on((0, 1)), swa=on((0, 1)), page_size=2)
WINDOWED, TOMBSTONE = (
    state_of(evolve(THROUGH, window_tokens=2), each) for each in (LEAF, having(LEAF, swa=on()))
)


def gives_up(profile: Profile) -> Step:
    """A poll that settles a load-back, after which the host copy is gone."""
    before = paged(BACK, lower=on((2,), (0,), loading=9), profile=profile)
    return step(before, POLL, paged(BACK, profile=profile), None, (*DOWN, *DOWN_GONE_CPU))


MOVES: Table = {
    # Pages that are stored where they came, and removed where they left, hold.
    "EVENT-10": [
        step(EMPTY, INSERT, THERE, events=(*UP, *DOWN)),
        step(paged(THROUGH, upper=None, lower=None), INSERT, DEVICE, events=(*UP, *DOWN)),
        step(HALF, INSERT, COPIED, events=DOWN),
        step(DEVICE, POLL, COPIED, events=(*stores(THERE, 1, CPU), *DOWN_CPU)),
        step(COPIED, EVICT, HALF, events=DOWN_GONE),
        step(HALF, op.EvictHost(Counts(1)), SHORT, events=DOWN_GONE_CPU),
        step(HALF, op.Flush(), COPIED, events=DOWN),
        step(SHORT, FETCH, HALF, events=DOWN_CPU),
        step(JOINED, op.Match(KEY), state_of(PAGED, *PARTED)),
        step(THERE, RESET, EMPTY, events=[CLEARED]),
        step(BACKED, EVICT, BACK_LEFT, events=IN_VAIN),
        # By profile, a load-back is stored at its enqueue, and removed when it fails.
        step(evolve(HOST_ALONE, profile=ENQUEUED), LOAD, LOADING, events=DOWN),
        step(LOADING, POLL, evolve(HOST_ALONE, profile=ENQUEUED), events=DOWN_GONE),
        # By profile, the host copy may go in the poll that settles its load-back.
        gives_up(EXCLUSIVE),
        # The page of a new tombstone keeps its full data (sgl#24718).
        step(WINDOWED, op.Evict(Counts(swa=2)), TOMBSTONE),
    ],
    # Deleting what has a host copy is no eviction from the device, and a load frees no host slot.
    ("EVENT-10: Evict may not remove from CPU_PINNED...", ...): [
        step(COPIED, EVICT, SHORT, events=(*DOWN_GONE, *DOWN_GONE_CPU)),
        step(ON_BOTH, EVICT, HOST_ALONE, events=DOWN_GONE_CPU),
    ],
    ("EVENT-10: LoadBack may not remove from CPU_PINNED...", ...): step(
        HALF, LOAD, SHORT, None, DOWN_GONE_CPU
    ),
    # sgl#32537
    "EVENT-10: ...tokens 4..6 (node 2) came to GPU in this Insert...stored 0 times...": step(
        HOST_ALONE, INSERT, ON_BOTH
    ),
    "EVENT-10: ...tokens 4..6 (node 2) left GPU in this Evict...": step(THERE, EVICT, LEFT),
    "EVENT-10: ...stored 2 times...": step(EMPTY, INSERT, THERE, None, (*UP, *DOWN, *DOWN)),
    "EVENT-10: ...neither came to nor left GPU...": step(THERE, INSERT, THERE, None, DOWN),
    ("EVENT-10: Evict may not remove from CPU_PINNED...", "...", "..."): step(
        ON_BOTH, EVICT, HOST_ALONE, None, DOWN_GONE_CPU
    ),
    ("EVENT-10", ..., "...CPU_PINNED...", ...): [
        # Only under write_back may an eviction copy a page in vain.
        step(DEVICE, EVICT, paged(THROUGH, lower=None), events=IN_VAIN),
        gives_up(CANON),
    ],
    ("EVENT-10: ...left GPU in this Poll...", ...): step(
        LOADING, POLL, evolve(HOST_ALONE, profile=ENQUEUED)
    ),
    ("EVENT-10", ..., "...neither came to nor left GPU in this LoadBack...", ...): step(
        HOST_ALONE, LOAD, evolve(LOADING, profile=CANON), None, DOWN
    ),
    # A backup that is stored at its enqueue is reported (sgl#22894).
    (
        "EVENT-10: Insert may not store on CPU_PINNED...",
        "...tokens 4..6 (node 2), whose slots transfer 9 has yet to fill, neither came...",
    ): step(DEVICE, INSERT, paged(THROUGH, lower=on((2,), (0,), backing=9)), None, DOWN_CPU),
    # A store of a page that is not in the tree, or has no slot there, is reported.
    "EVENT-10: ..., which is not in the tree, neither came to nor left GPU in this Insert...": step(
        LEFT, INSERT, LEFT, None, DOWN
    ),
    "EVENT-10: ...tokens 4..6 (node 2) neither came to nor left CPU_PINNED in this InsertHost...": (
        step(DEVICE, FETCH, DEVICE, None, DOWN_CPU)
    ),
    (
        "EVENT-10: ...(node 1) neither came to nor left GPU in this Evict...stored 0 times...",
        "...",
    ): (step(WINDOWED, op.Evict(Counts(swa=2)), TOMBSTONE, None, UP_GONE)),
}

MUTED = paged(MUTE, upper=None, lower=None)
WAITING = evolve(THERE, events=UP)

RESETS: Table = {
    # A reset emits one AllBlocksCleared, and nothing else does.
    "EVENT-8": [
        step(THERE, RESET, EMPTY, events=[CLEARED]),
        step(paged(MUTE), RESET, MUTED),
        still(THERE, RESET, REFUSED),
    ],
    "EVENT-8: ...not one AllBlocksCleared...": [
        step(THERE, RESET, EMPTY, events=events) for events in ((), (CLEARED, CLEARED), DOWN_GONE)
    ],
    "EVENT-8: Poll sent AllBlocksCleared...": step(THERE, POLL, THERE, None, [CLEARED]),
    # Waiting events are handed out once; other operations only add to them.
    "EVENT-11": [
        step(evolve(THERE, events=UP[:1]), op.TakeEvents(), THERE, op.Taken(UP[:1])),
        step(evolve(THERE, events=UP[:1]), INSERT, WAITING),
    ],
    "EVENT-11: 2 events waited...": step(WAITING, op.TakeEvents(), THERE, op.Taken(UP[1:])),
    "EVENT-11: ...still wait...": still(WAITING, op.TakeEvents(), op.Taken(UP)),
    "EVENT-11: ...Poll changed them": step(WAITING, POLL, evolve(WAITING, events=UP[1:])),
}

FRONT_FIRST = Profile(removes_end_first=False)
EVICT_ALL = op.Evict(Counts(3))


def all_leave(*events: Event, profile: Profile = CANON) -> Step:
    """An eviction of both nodes."""
    return step(paged(profile=profile), EVICT_ALL, EMPTY, None, events)


def host_empties(policy: str) -> Step:
    """An eviction of both nodes from the host, from the first page on."""
    config = evolve(THROUGH, write_policy=policy)
    before = paged(config, upper=on(None, (0, 1)), lower=on(None, (2,)))
    events = (*reversed(removes(THERE, 1, CPU)), *DOWN_GONE_CPU)
    return step(
        before, op.EvictHost(Counts(3)), paged(config, upper=None, lower=None), None, events
    )


def demoted(*events: Event) -> Step:
    """An eviction under write_back that copies the lower node to the host."""
    return step(BACKED, EVICT, paged(BACK, lower=on(None, (2,))), None, events)


GAP = demoted(*DOWN_GONE, *DOWN_CPU)
FRONT = UP_GONE[::-1]

ORDER: Table = {
    # A page that is removed before one that builds on it is reported, in a node or below it.
    "EVENT-12": [
        all_leave(*DOWN_GONE, *UP_GONE),
        # By profile, a node may be removed from its front, but not before nodes below it.
        all_leave(*DOWN_GONE, *FRONT, profile=FRONT_FIRST),
        # Under write_back pages may leave the host in any order.
        host_empties("write_back"),
    ],
    (
        "EVENT-12: ...tokens 2..4 (node 1) was removed from GPU after the page before it...",
        "...",
    ): all_leave(*FRONT, *DOWN_GONE),
    "EVENT-12: ...tokens 4..6 (node 2) was removed from GPU after the page before it...": all_leave(
        *FRONT, *DOWN_GONE, profile=FRONT_FIRST
    ),
    "EVENT-12: ...was removed from GPU after a page of node 1, which is above it...": all_leave(
        FRONT[0], *DOWN_GONE, FRONT[1], profile=FRONT_FIRST
    ),
    ("EVENT-12: ...was removed from CPU_PINNED after the page before it...", "..."): host_empties(
        "write_through"
    ),
    # A page that is removed from one medium before it is stored on the other is reported.
    "EVENT-14": [
        demoted(*DOWN_CPU, *DOWN_GONE),
        demoted(*DOWN_GONE),
        demoted(*DOWN_GONE_CPU, *DOWN_CPU, *DOWN_GONE),
        demoted(*UP_GONE, *DOWN_CPU, *DOWN_GONE),
        demoted(),
        evolve(GAP, after=evolve(GAP.after, config=evolve(BACK, events=False))),
    ],
    "EVENT-14: ...was removed from one medium before it was stored on CPU_PINNED": GAP,
}

test_event_steps = table(SILENCE, CONTENT, MOVES, RESETS, ORDER)
