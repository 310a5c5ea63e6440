"""States that the tests of ALLOC laws share."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.snapshot import NodeState, PoolState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import (
    FULL,
    GPU,
    SWA,
    Component,
    Counts,
    Medium,
    Slot,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of

POOLS = Counts(full=8, swa=8, mamba=2)

CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=POOLS,
    host_slots=POOLS,
    write_policy=WritePolicy.WRITE_THROUGH,
)

TOP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1], lock_refs=1), swa=on(None, [4, 5]))
"""A tombstone, locked; its window data is on the host."""

TIP = node(2, 1, [3, 4], full=on([2, 3]), swa=on([5, 6]), mamba=on([0]))

KEY = make_key([1, 2, 3, 4], 1)

HELD: dict[Component, set[Slot]] = {FULL: {6, 7}, SWA: {7}}


def state(*nodes: NodeState, held: dict[Component, set[Slot]] | None = None) -> Snapshot:
    """A state with these nodes; requests hold slots 6 and 7, which are a full and window pair."""
    made = state_of(CONFIG, *(nodes or (TOP, TIP)), held=HELD if held is None else held)
    pair = {7: 7} if held is None else {}
    return evolve(made, swa_of_full={**made.swa_of_full, **pair})


def with_pool(
    before: Snapshot,
    component: Component,
    *,
    free: tuple[Slot, ...] | None = None,
    held: set[Slot] | None = None,
    medium: Medium = GPU,
) -> Snapshot:
    """A state in which a pool has other free or held slots."""
    pool = before.pools[component, medium]
    changed = PoolState(
        pool.capacity,
        pool.free if free is None else free,
        pool.held if held is None else frozenset(held),
    )
    return evolve(before, pools={**before.pools, (component, medium): changed})


CANCELLED = TransferState(
    9, Direction.LOAD_BACK, (), {FULL: (0,), SWA: (4,)}, {FULL: (4,), SWA: (2,)}, cancelled=True
)


def orphaned() -> Snapshot:
    """A state in which full slot 4 and swa slot 2 belong to a cancelled copy."""
    return state_of(CONFIG, TOP, TIP, transfers=(CANCELLED,))
