"""REC-7: which steps make nothing recent."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from kvcanon.spec import operations as op
from kvcanon.spec.config import Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, GPU, SWA, Counts, Medium, NodeId, Slots, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, node, on, state_of
from states.judging import Table, step, still, table

CONFIG = evolve(EVERYTHING, mamba=False)
KEY = make_key([1, 2], 1)
LEAF = node(2, ROOT, [7], full=on([8], [8]), swa=on([8], [8]), last_access=6)
TAIL = node(1, 9, [3, 4], full=on([2, 3], [2, 3]), swa=on([2, 3]), last_access=5)
"""What is left of node 1 below a cut."""
WHOLE = node(1, ROOT, [1, 2, 3, 4], full=on(range(4), range(4)), swa=on(range(4)), last_access=5)
UNCUT = state_of(CONFIG, WHOLE, LEAF)
"""Node 1 has four pages, two of them on the path of `KEY`."""
REUSED = state_of(CONFIG, evolve(WHOLE, last_access=7), LEAF)


def cut(
    tail: NodeState = TAIL, leaf: NodeState = LEAF, *, last_access: int = 5, priority: int = 0
) -> Snapshot:
    """Node 9 has the first two pages of what was node 1."""
    above = node(9, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1]))
    above = evolve(above, created=1, last_access=last_access, priority=priority)
    return state_of(CONFIG, above, tail, leaf)


MATCH, FOUND = op.Match(KEY), op.Matched(2, 2, Slots())
INSERT, INSERTED = op.Insert(KEY, 2, Slots()), op.Inserted(2, Counts(), Counts())
LOCK, LOAD = op.Lock(KEY), op.LoadBack(KEY)
USES: list[tuple[op.Operation, op.Outcome]] = [(MATCH, FOUND), (INSERT, INSERTED)]
NO_USES: list[tuple[op.Operation, op.Outcome]] = [
    (each, op.Done()) for each in (LOCK, op.InsertHost(KEY, 2, op.HostPayload()), LOAD)
]


def served(
    after: Snapshot, calls: Sequence[tuple[op.Operation, op.Outcome]] = (*USES, *NO_USES)
) -> list[Step]:
    """Calls that found node 1 whole; by default a match, an insert, and three that are no uses."""
    return [step(UNCUT, asked, after, told) for asked, told in calls]


def ordered(state: Snapshot, *order: NodeId, medium: Medium = GPU) -> Snapshot:
    """A state with another order of window data."""
    return evolve(state, recency={**state.recency, (SWA, medium): order})


OTHERS: list[tuple[op.Operation, op.Outcome]] = [
    (op.Evict(Counts(full=1)), op.Evicted(Counts())),
    (op.Poll(), op.Settled(())),
    (MATCH, op.Refused(PrefixNotCached(2, 1))),
    (LOAD, op.LoadedBack(op.LoadDecision.NO_ROOM)),
]
MOVED = evolve(cut(), recency={pool: order[::-1] for pool, order in cut().recency.items()})
REFRESHED = step(UNCUT, MATCH, cut(evolve(TAIL, last_access=8), last_access=7), FOUND)
DECLARED = Profile(split_keeps_recency=False)
"""By profile, a cut may change the recency of the nodes that it cuts."""
STILL = evolve(UNCUT, profile=DECLARED)
BACK_AGAIN = cut(leaf=node(2, ROOT, [7], full=on([8], [8]), swa=on([8], [9]), last_access=6))
"""The host copy of the leaf's window data was evicted and made again."""

BYSTANDERS: Table = {
    "REC-7": [
        # A cut that leaves every place and tick as it was holds; a use may refresh its prefix.
        *served(cut()),
        *served(cut(last_access=7), USES),
        step(UNCUT, evolve(INSERT, priority=3), cut(last_access=7, priority=3), INSERTED),
        *[still(UNCUT, *each) for each in OTHERS],
        step(ordered(UNCUT, 2, 1, medium=CPU), LOAD, BACK_AGAIN),
    ],
    # A cache that does not cut where a match ends may move the whole node, a lock may not.
    "REC-1, REC-2, REC-7": [
        step(UNCUT, MATCH, REUSED, FOUND),
        step(STILL, MATCH, evolve(REFRESHED.after, profile=DECLARED), FOUND),
    ],
    ("REC-7: Lock did not use...its last_access was 5 and is 7", ...): step(UNCUT, LOCK, REUSED),
    # A cut refreshes nothing unless that is declared, and then only what it cuts.
    ("REC-1, REC-2, REC-7: ...", ...): REFRESHED,
    ("REC-7: Lock...in the order of swa on GPU", ...): step(STILL, LOCK, ordered(STILL, 2, 1)),
    **{
        # A lock, a host insert or a load-back that makes its prefix recent is reported.
        (
            f"REC-7: {type(each.operation).__name__} did not use page 0 in node 1 (tokens...",
            ...,
            "...node 9 (tokens 0..2), but it has overtaken...",
            ...,
        ): each
        for each in served(cut(last_access=7), NO_USES)
    },
    # A call that changes tick, priority or age of a path that it cuts is reported.
    ("REC-7", ..., "...page 2 in node 1...its last_access was 5 and is 8", ...): served(
        cut(evolve(TAIL, last_access=8))
    ),
    ("REC-7", ..., "...page 2 in node 1...its priority was 0 and is 2", ...): served(
        cut(evolve(TAIL, priority=2))
    ),
    ("REC-7", ..., "...page 2 in node 1...its created was 1 and is 7", ...): served(
        cut(evolve(TAIL, created=7))
    ),
    ("REC-7: ...its priority was 0 and is 3", "..."): step(
        UNCUT, MATCH, cut(last_access=7, priority=3), FOUND
    ),
    # A change of an order is reported even if every tick stays.
    (
        "REC-7",
        ...,
        "Match did not use node 1 (tokens 2..4), but it has overtaken node 2...of swa on GPU",
        ...,
    ): step(UNCUT, MATCH, MOVED, FOUND),
    "REC-7: ...in the order of swa on GPU...": [
        step(UNCUT, asked, ordered(UNCUT, 2, 1), told) for asked, told in OTHERS
    ],
}

test_bystanders = table(BYSTANDERS)
