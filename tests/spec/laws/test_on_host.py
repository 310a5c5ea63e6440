"""Laws where, by profile, the host has parts of nodes, or locks do not hold host copies."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    Insert,
    Inserted,
    LoadBack,
    LoadDecision,
    LoadedBack,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, SWA, Counts, Slots, make_key
from kvcanon.spec.views import Step
from states import ROOT, having, node, on, state_of
from states.judging import Table, step, table

SLOTS = Counts(full=8, swa=8)
CONFIG = CacheConfig(
    window_tokens=2, device_slots=SLOTS, host_slots=SLOTS, write_policy="write_back"
)
THROUGH = evolve(CONFIG, write_policy="write_through")
PARTS = Profile(whole_nodes_on_host=False)
LOOSE = Profile(locks_hold_host_copies=False)

WHOLE = node(1, ROOT, [1, 2], full=on([0, 1]), swa=on([0, 1]))
TOMBSTONE = having(WHOLE, swa=on(None, [0, 1]))
TWICE = having(TOMBSTONE, full=on([0, 1], [0, 1]))
END = node(2, 1, [3], full=on([2]), swa=on([2]))
COPIED = having(END, full=on(None, [2]), swa=on(None, [2]))
BOTH, MOVED = having(WHOLE, swa=on([0, 1], [0, 1])), having(WHOLE, swa=on([5, 6], [0, 1]))


def under(profile: Profile, *nodes: NodeState, config: CacheConfig = CONFIG) -> Snapshot:
    """These nodes, in a cache of this profile."""
    return state_of(config, *nodes, profile=profile)


def halved(profile: Profile) -> Step:
    """A host eviction of full data alone."""
    evict, told = EvictHost(Counts(full=2)), Evicted(Counts(full=2))
    return step(under(profile, TWICE), evict, under(profile, TOMBSTONE), told)


def copied(profile: Profile, *after: NodeState) -> Step:
    """An eviction of `END`."""
    evict, told = Evict(Counts(full=1)), Evicted(Counts(full=1, swa=1))
    return step(under(profile, WHOLE, END), evict, under(profile, *after), told)


def deleted(host_swa: int) -> Step:
    """An eviction of two leaves without a copy, with so many window slots on the host."""
    config = evolve(CONFIG, host_slots=Counts(full=8, swa=host_swa))
    leaves = END, node(3, 1, [4], full=on([3]), swa=on([3]))
    evict, told = Evict(Counts(full=2)), Evicted(Counts(full=2, swa=2))
    before, after = (under(PARTS, WHOLE, *each, config=config) for each in (leaves, ()))
    return step(before, evict, after, told)


PARTIAL: Table = {
    # By profile, window data may be on the host alone while full data is on the device.
    "RES-2": [under(PARTS, TOMBSTONE)],
    "RES-2: node 1 (tokens 0..2) has swa data on CPU_PINNED and no full data there": [
        under(CANON, TOMBSTONE),
        under(PARTS, TOMBSTONE, config=THROUGH),
        under(PARTS, having(TOMBSTONE, full=on())),
    ],
    # By profile, a node may give up the host copy of its full data and keep its window there.
    "EVICT-3": [halved(PARTS)],
    ("EVICT-3: ...", ...): halved(CANON),
    # By profile, the window before a victim may be copied with it.
    "EVICT-6": [copied(PARTS, BOTH, COPIED), copied(PARTS, WHOLE, COPIED)],
    ("EVICT-6: ...swa slot on CPU_PINNED was none and is 0", ...): copied(CANON, BOTH, COPIED),
    ("EVICT-6: ...swa slot on GPU was 0 and is 5", ...): copied(PARTS, MOVED, COPIED),
    # By profile, a victim may be lost if the window before it does not fit on the host.
    "EVICT-8": [deleted(3)],
    ("EVICT-8: ...", ...): deleted(5),
}


def locked(host: tuple[int, int] | None, *, on_device: bool = True) -> NodeState:
    """A locked node, with these slots on the host."""
    full = on([0, 1] if on_device else None, host, lock_refs=1)
    return node(1, ROOT, [1, 2], full=full, swa=on([0, 1], lock_refs=1))


def evicted(profile: Profile, before: NodeState, after: NodeState) -> Step:
    """An eviction of window data, after which the locked node is so."""
    states = under(profile, before), under(profile, after)
    return step(states[0], Evict(Counts(swa=2)), states[1], Evicted(Counts()))


MINE = node(2, ROOT, [7], full=on(None, [2]), swa=on(None, [2]))
COMING, LOST = having(MINE, on([2], [2]), on([2], [2])), having(MINE, swa=on())
KEY = make_key([7], 1)
HELD = having(TWICE, swa=on(None, [0, 1], lock_refs=1))
WITHOUT_WINDOW = having(TWICE, swa=on(lock_refs=1))
NO_ROOM = LoadedBack(LoadDecision.NO_ROOM)


def loaded(profile: Profile) -> Step:
    """A load-back for which the locked host copy of another prompt leaves."""
    before, after = under(profile, locked((0, 1)), MINE), under(profile, locked(None), COMING)
    return step(
        before, LoadBack(KEY), after, LoadedBack(LoadDecision.ENQUEUED, 1, Counts(full=1, swa=1))
    )


def inserted(profile: Profile) -> Step:
    """An insert, for whose backup the locked window data of another prompt leaves the host."""
    before, after = (under(profile, each, MINE, config=THROUGH) for each in (HELD, WITHOUT_WINDOW))
    return step(before, Insert(KEY, 1, Slots()), after, Inserted(1, Counts(), Counts()))


def reordered(profile: Profile) -> Step:
    """A load-back that makes its own path most recent on the host."""
    pages = [
        node(each, ROOT, [each], full=on([each], [each]), swa=on([each], [each])) for each in (1, 2)
    ]
    before = under(profile, *pages)
    after = evolve(before, recency={**before.recency, (SWA, CPU): (2, 1)})
    return step(before, LoadBack(make_key([1], 1)), after, NO_ROOM)


GONE = [
    evicted(CANON, locked((0, 1)), locked(None)),
    evicted(LOOSE, locked((0, 1)), locked(None, on_device=False)),
    evicted(LOOSE, locked((0, 1), on_device=False), locked(None, on_device=False)),
]

UNLOCKED: Table = {
    # By profile, a locked node's host copy may leave, unless its data is nowhere else.
    "LOCK-4, EVICT-6": [evicted(LOOSE, locked((0, 1)), locked(None))],
    ("LOCK-4, EVICT-6: ...", ...): GONE,
    # By profile, it may make way for another and be copied again, but not in an eviction.
    "LOCK-4": [evicted(LOOSE, locked((0, 1)), locked((4, 5)))],
    ("LOCK-4: ...is now in slot 4", ...): evicted(CANON, locked((0, 1)), locked((4, 5))),
    ("EVICT-6: ...full slot on CPU_PINNED was 0 and is 4", ...): evicted(
        LOOSE, locked((0, 1)), locked((4, 5))
    ),
    # By profile, locked host copies of other prompts may make room, not one's own.
    "TREE-5": [loaded(LOOSE), inserted(LOOSE)],
    ("TREE-5: ...node 1...", ...): [loaded(CANON), inserted(CANON)],
    ("LOAD-2: ...", ...): step(
        under(LOOSE, locked((0, 1)), MINE),
        LoadBack(KEY),
        under(LOOSE, locked((0, 1)), LOST),
        NO_ROOM,
    ),
    # By profile, and only then, a load-back may reorder its own path on the host.
    "REC-7": [reordered(Profile(host_order_by_use=False))],
    ("REC-7: ...", ...): reordered(CANON),
}

test_on_host = table(PARTIAL, UNLOCKED)
