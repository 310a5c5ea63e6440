"""EVICT-8: data that leaves the device under write_back is copied, unless the host is full."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evict, Evicted, LoadBack, LoadDecision, LoadedBack, Refused
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.types import FULL, Counts, make_key
from kvcanon.spec.views import Step
from states import ROOT, having, node, on, state_of
from states.judging import Table, step, table

CONFIG = CacheConfig(
    window_tokens=2,
    device_slots=Counts(8, 8),
    host_slots=Counts(4, 4),
    write_policy="write_back",
)
NARROW = evolve(CONFIG, host_slots=Counts(4, 1))
THROUGH = evolve(CONFIG, write_policy="write_through")

VICTIM = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on([0, 1]))
BACKED = having(VICTIM, on([0, 1], [0, 1]), on([0, 1], [0, 1]))
COPIED = having(VICTIM, on(None, [0, 1]), on(None, [0, 1]))
TOMBSTONE = evolve(VICTIM, data={FULL: on([0, 1])})
OTHER = node(2, ROOT, [5], full=on([2]), swa=on([2]))
THREE = [1, 2, 3]
ON_HOST = node(3, ROOT, [7, 8, 9], full=on(None, THREE), swa=on(None, THREE))
LOCKED = having(ON_HOST, on(None, THREE, lock_refs=1), on(None, THREE, lock_refs=1))
PARENT = (
    having(ON_HOST, on(None, THREE, lock_refs=1), on()),
    node(4, 3, [6], full=on(None, [0], lock_refs=1), swa=on(None, [0])),
)
"""A node above a locked one, which makes no room."""


def evicted(
    before: tuple[NodeState, ...], *after: NodeState, full: int = 2, config: CacheConfig = CONFIG
) -> Step:
    """An eviction of so many full slots."""
    told = Evicted(Counts(full=2, swa=2))
    return step(state_of(config, *before), Evict(Counts(full)), state_of(config, *after), told)


def loaded(before: tuple[NodeState, ...], *after: NodeState) -> Step:
    """A load-back that finds no room, and evicts in vain."""
    asked, told = LoadBack(make_key([7, 8, 9], 1)), LoadedBack(LoadDecision.NO_ROOM)
    return step(state_of(CONFIG, *before), asked, state_of(CONFIG, *after), told)


REFUSED = Refused(BadArgument("full", "is wrong"))

COPIES: Table = {
    "EVICT-8": [
        evicted((VICTIM, OTHER), COPIED, OTHER),
        # Room may be made of what is evictable; nodes above a locked one are not.
        evicted((VICTIM, LOCKED), LOCKED),
        evicted((VICTIM, *PARENT), *PARENT),
        # A victim need not be copied where one of the host's pools is too short for it.
        evicted((VICTIM,), config=NARROW),
        # Where copies have to make room for each other one may be given up again.
        evicted((VICTIM, OTHER, ON_HOST), ON_HOST, full=3),
        # What has a host copy may lose it to another's.
        evicted((BACKED,)),
        # What a load may make room of on the host depends on its own path: free slots count.
        loaded((VICTIM, ON_HOST), ON_HOST),
        # Other policies and calls are not checked.
        evicted((VICTIM,), config=THROUGH),
        step(state_of(CONFIG, VICTIM), Evict(Counts(full=2)), state_of(CONFIG), REFUSED),
    ],
    # A victim without a copy, or with half of one, is reported.
    (
        "EVICT-8: page ... in node 1 ... 2 full, 2 swa and 0 ... and 4, 4 and 0 were free...",
        ...,
    ): [
        evicted((VICTIM, OTHER), OTHER),
        evicted((VICTIM, OTHER), evolve(COPIED, data={FULL: on(None, [0, 1])}), OTHER),
        evicted((VICTIM, OTHER), TOMBSTONE, OTHER),
        evicted((VICTIM, OTHER), having(TOMBSTONE, full=on([0, 1], [0, 1])), OTHER),
    ],
    ("EVICT-8: page 0 in node 1 ...", ...): evicted((VICTIM, ON_HOST), ON_HOST),
    ("EVICT-8", ..., "...node 2 ... its swa data..."): evicted((VICTIM, OTHER), COPIED, full=3),
    ("EVICT-8: ...", "...", "...", "..."): loaded((VICTIM,)),
}

test_write_back = table(COPIES)
