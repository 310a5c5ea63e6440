"""States and evictions that the tests of EVICT laws share."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.laws.comparison import losses as losses_of
from kvcanon.spec.laws.comparison import total
from kvcanon.spec.operations import Evict, Evicted, EvictHost
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import (
    GPU,
    Component,
    Counts,
    Medium,
    WritePolicy,
)
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from telling import step

POOLS = Counts(full=16, swa=16, mamba=4)

THROUGH, BACK = (
    CacheConfig(
        window_tokens=2, mamba=True, device_slots=POOLS, host_slots=POOLS, write_policy=policy
    )
    for policy in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK)
)

STEM = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1], [0, 1]))

BACKED = node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([2, 3]), mamba=on([0]))
"""A leaf whose full data is on the host, too."""

BARE = node(3, 1, [5], full=on([4]), swa=on([4]), mamba=on([1]))
"""A leaf that is on the device only."""

TOMBSTONE = node(4, ROOT, [6, 7, 8], full=on([5, 6, 7]), swa=on())
"""A leaf without window data, on the device only."""

ALL = (STEM, BACKED, BARE, TOMBSTONE)


def tree(*nodes: NodeState, config: CacheConfig = THROUGH) -> Snapshot:
    """A state of these nodes."""
    return state_of(config, *(nodes or ALL))


def without(old: NodeState, medium: Medium, *components: Component) -> NodeState:
    """A node without these components' data on a medium."""
    data = dict(old.data)
    for component in components:
        had = data[component]
        data[component] = evolve(had, device=None) if medium is GPU else evolve(had, host=None)
    return evolve(old, data=data)


def evicted(
    before: Snapshot,
    asked: Counts,
    *left: NodeState,
    medium: Medium = GPU,
    freed: Counts | None = None,
) -> Step:
    """An eviction that left these nodes; it reports what it freed unless `freed` is given."""
    after = state_of(before.config, *left)
    operation = Evict(asked) if medium is GPU else EvictHost(asked)
    moved = step(before, operation, after)
    return step(before, operation, after, Evicted(freed or total(losses_of(moved, medium))))
