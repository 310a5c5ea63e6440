"""REC-3: evictions in the order of the policy, and others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evict, Evicted, EvictHost, Match, Refused
from kvcanon.spec.snapshot import ComponentState, NodeState, Snapshot
from kvcanon.spec.types import (
    CPU,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    Medium,
    NodeId,
    make_key,
)
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, having, node, on, state_of
from states.judging import Table, step, table

WINDOWED = evolve(EVERYTHING, mamba=False)
BACK = evolve(WINDOWED, write_policy="write_back")
ALL = (1, 2, 3, 4)


def there(medium: Medium, slot: int, *, lock_refs: int = 0) -> ComponentState:
    """Data in one slot on a medium."""
    device, host = ([slot], None) if medium is GPU else (None, [slot])
    return on(device, host, lock_refs=lock_refs)


def leaves(
    *ids: NodeId, medium: Medium = GPU, config: CacheConfig = WINDOWED, locked: NodeId = 0
) -> Snapshot:
    """Leaves on a medium; a higher id means more recent use and fewer hits."""
    nodes = [
        node(
            each,
            ROOT,
            [each],
            full=there(medium, each, lock_refs=int(each == locked)),
            hit_count=4 - each,
            last_access=10 + each,
        )
        for each in ids
    ]
    return state_of(config, *nodes)


def evicted(before: Snapshot, after: Snapshot, medium: Medium = GPU, **counts: int) -> Step:
    """An eviction of one full slot, or of other slots."""
    asked = Counts(**(counts or {"full": 1}))
    evict = Evict(asked) if medium is GPU else EvictHost(asked)
    return step(before, evict, after, Evicted(Counts()))


def left(medium: Medium, *ids: NodeId) -> Step:
    """An eviction of two of four leaves from a medium, after which these are left."""
    before, after = (leaves(*each, medium=medium) for each in (ALL, ids))
    return evicted(before, after, medium, full=2)


FIRST = {
    EvictionPolicy.LRU: 1,
    EvictionPolicy.FIFO: 1,
    EvictionPolicy.LFU: 4,
    EvictionPolicy.MRU: 4,
    EvictionPolicy.FILO: 4,
    EvictionPolicy.SLRU: 3,
    EvictionPolicy.PRIORITY: 1,
}
"""The leaf that leaves first, by the policy."""


def by_policy(*, right: bool) -> Iterator[Step]:
    """Evictions of the leaf whose turn it is by a policy, or of each other."""
    for policy, first in FIRST.items():
        config = evolve(WINDOWED, eviction_policy=policy)
        for victim in ALL:
            if (victim == first) is right:
                kept = [each for each in ALL if each != victim]
                yield evicted(leaves(*ALL, config=config), leaves(*kept, config=config))


PARENT, CHILD, OTHER = (
    node(at, above, [at], full=on([at]), last_access=used)
    for at, above, used in ((1, ROOT, 1), (2, 1, 10), (3, ROOT, 20))
)
FAMILY = state_of(WINDOWED, PARENT, CHILD, OTHER)
SECOND = node(2, ROOT, [4], full=on([4]), last_access=20)


def shortened(*pages: int) -> Step:
    """An eviction of two pages that leaves these of a leaf of three, and all of another."""
    long, kept = (node(1, ROOT, each, full=on(each)) for each in ((1, 2, 3), pages or (1,)))
    after = state_of(WINDOWED, *[kept] * bool(pages), SECOND)
    return evicted(state_of(WINDOWED, long, SECOND), after, full=2)


def passed_over(config: CacheConfig, below: int) -> Step:
    """An eviction that spares a leaf that fits nowhere on the host.

    Below it hangs host data with so many lock refs.
    """
    config = evolve(config, host_slots=Counts(full=8))
    others = (
        node(7, 1, [7], full=on(None, [7], lock_refs=below)),
        node(8, ROOT, range(20, 27), full=on(None, range(7), lock_refs=1)),
    )
    before, after = (
        state_of(config, *leaves(*each).below_root(), *others) for each in (ALL, (1, 3, 4))
    )
    return evicted(before, after)


DUPLICATE = node(1, ROOT, [1], full=on([1], [1]), last_access=20)
HOST_LEAF = node(2, ROOT, [2], full=on(None, [2]), last_access=10)
BUSY = node(1, ROOT, [1], full=on([1]), swa=on([1], [1], backing=5))
TWICE = node(2, ROOT, [2], full=on([2], [2]), swa=on([2], [2]))
VICTIM = node(3, ROOT, [3], full=on([3], [3]), swa=on(None, [3]))
BOTH = [node(each, ROOT, [each], full=on([each]), swa=on([each])) for each in (1, 2, 3)]


def windows(*ids: int) -> Snapshot:
    """Leaves with full and window data."""
    return state_of(WINDOWED, *[BOTH[each - 1] for each in ids])


DATA = "...full data of page 0 in"

LEAVES: Table = {
    "REC-3": [
        *[left(medium, 3, 4) for medium in (GPU, CPU)],
        *by_policy(right=True),
        # A locked leaf stays.
        evicted(leaves(*ALL, locked=1), leaves(1, 3, 4, locked=1)),
        # A node that becomes a leaf during an eviction leaves in turn, and not before.
        evicted(FAMILY, state_of(WINDOWED, PARENT, OTHER)),
        evicted(FAMILY, state_of(WINDOWED, OTHER), full=2),
        # Only the last victim may be cut, and only its needed end may leave.
        shortened(1),
        shortened(),
        # A leaf that fits nowhere on the host, and cannot be deleted, stays.
        passed_over(BACK, 1),
        # A host copy of data that is on the device is not ranked among host leaves.
        evicted(
            state_of(BACK, DUPLICATE, HOST_LEAF),
            state_of(BACK, having(DUPLICATE, full=on([1])), HOST_LEAF),
            CPU,
        ),
        # Window data in flight, and host copies of data on the device, stay.
        evicted(
            state_of(WINDOWED, BUSY, TWICE, VICTIM),
            state_of(WINDOWED, BUSY, TWICE, having(VICTIM, swa=on())),
            CPU,
            swa=1,
        ),
        # Slots that one component frees on the way count for the next.
        evicted(windows(1, 2, 3), windows(2, 3), full=1, swa=1),
        evicted(windows(1, 2, 3), windows(3), full=1, swa=2),
        # Other calls, and refused ones, are not checked.
        step(leaves(*ALL), Match(make_key([1], 1)), leaves(1, 3, 4)),
        step(
            leaves(*ALL),
            Evict(Counts(1)),
            leaves(1, 3, 4),
            Refused(BadArgument("counts", "are wrong")),
        ),
    ],
    # A leaf that leaves before one of lower rank is reported, and too many or too few.
    **{
        (
            f"REC-3: {DATA} node 1 (tokens 0..1) should have left {medium}, and did not",
            f"{DATA} node 3 (tokens 0..1) left {medium}, and should not have",
        ): left(medium, 1, 4)
        for medium in (GPU, CPU)
    },
    "REC-3: ...node 3 (tokens 0..1) left...": [left(GPU, 4), left(CPU, 4)],
    "REC-3: ...node 2 (tokens 0..1) should have left...": [left(GPU, 2, 3, 4), left(CPU, 2, 3, 4)],
    "REC-3: ...node 2 (tokens 0..1) left GPU, and should not have": evicted(
        leaves(*ALL), leaves(1, 3, 4), full=0
    ),
    ("REC-3: ...", "..."): list(by_policy(right=False)),
    ("REC-3", ..., "...node 2 (tokens 0..1) left GPU, and should not have", ...): [
        passed_over(BACK, 0),
        passed_over(WINDOWED, 1),
    ],
    ("REC-3: ...node 1 (tokens 0..1) should have left GPU...", "...node 3 ... should not have"): (
        evicted(FAMILY, state_of(WINDOWED, PARENT), full=2)
    ),
    "REC-3: ...full data of pages 0..1 in node 1 ... should have left...": shortened(1, 2),
    ("REC-3: ...node 2 ... left...", "..."): evicted(windows(1, 2, 3), windows(3), full=1, swa=1),
}


def chained(component: Component, medium: Medium, *ids: NodeId, locked: NodeId = 0) -> Snapshot:
    """A path 1..4 on a medium, of which only some have the component there; leaf 5 lacks it."""
    nodes: list[NodeState] = []
    for each in ALL:
        full = there(medium, each, lock_refs=int(each <= locked))
        mine = full if each in ids else None
        swa, mamba = (mine, None) if component is SWA else (None, mine)
        nodes.append(node(each, each - 1, [each], full=full, swa=swa, mamba=mamba))
    return state_of(EVERYTHING, *nodes, node(5, 4, [5], full=there(medium, 5)))


def one_of(component: Component, medium: Medium, *ids: NodeId, locked: NodeId = 0) -> Step:
    """An eviction of one slot of window data or of a state, after which these are left."""
    before, after = (chained(component, medium, *each, locked=locked) for each in (ALL, ids))
    return evicted(before, after, medium, **{component.value: 1})


POOLS = list(product((SWA, MAMBA), (GPU, CPU)))

INSIDE: Table = {
    "REC-3": [
        *[one_of(*pool, 2, 3, 4) for pool in POOLS],
        *[one_of(*pool, 1, 3, 4, locked=1) for pool in POOLS],
    ],
    # Window data or a state that leaves before less recent data of its kind is reported.
    **{
        (
            f"REC-3: ...{each} data of page 0 in node 1 ... should have left {medium}, and did not",
            f"...{each} data of page 1 in node 2 (tokens 1..2) left {medium}, and should not have",
        ): one_of(each, medium, 1, 3, 4)
        for each, medium in POOLS
    },
    **{
        f"REC-3: ...{each} data of page 1 in node 2 (tokens 1..2) left {medium}, ...": (
            one_of(each, medium, 3, 4)
        )
        for each, medium in POOLS
    },
}

test_eviction_turns = table(LEAVES, INSIDE)
