"""States and load-backs that the tests of LOAD laws share."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import (
    LoadBack,
    LoadDecision,
    LoadedBack,
)
from kvcanon.spec.snapshot import ComponentState, HoldState, NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    WritePolicy,
    make_key,
)
from kvcanon.spec.views import Step
from states import ROOT, node, on, state_of
from telling import step

KEY = make_key([1, 2, 3, 4], 1)

ENQUEUED, NO_ROOM = LoadDecision.ENQUEUED, LoadDecision.NO_ROOM


def config(device: Counts, threshold: int = 0) -> CacheConfig:
    """A cache with a window of two pages and enough host slots."""
    return CacheConfig(
        window_tokens=2,
        mamba=True,
        device_slots=device,
        host_slots=Counts(full=16, swa=16, mamba=4),
        write_policy=WritePolicy.WRITE_THROUGH,
        load_back_threshold_pages=threshold,
    )


ROOMY = config(Counts(full=16, swa=16, mamba=4))

STEM = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on(None, [0, 1]))
"""The first half of `KEY`, on the device; its window data is out of reach."""

COLD = node(2, 1, [3, 4], full=on(None, [2, 3]), swa=on(None, [2, 3]), mamba=on(None, [0]))
"""The second half, on the host."""

STEM_HELD = evolve(STEM, data={**STEM.data, FULL: on([0, 1], [0, 1], lock_refs=1)})

COMING = node(
    2,
    1,
    [3, 4],
    full=on([2, 3], [2, 3], lock_refs=1, loading=7),
    swa=on([0, 1], [2, 3], lock_refs=1, loading=7),
    mamba=on([1], [0], lock_refs=1, loading=7),
)
"""`COLD` once its load is enqueued."""

TRANSFER = TransferState(
    7,
    Direction.LOAD_BACK,
    ((2, FULL), (2, SWA), (2, MAMBA)),
    {FULL: (2, 3), SWA: (2, 3), MAMBA: (0,)},
    {FULL: (2, 3), SWA: (0, 1), MAMBA: (1,)},
)

HOLD = HoldState(90, 2, 2, state_held=True, transfer_id=7)

LOADED = LoadedBack(ENQUEUED, 7, loading=Counts(2, 2, 1))


def cold(*others: NodeState, room: CacheConfig = ROOMY) -> Snapshot:
    """The state before a load-back."""
    return state_of(room, STEM, COLD, *others)


def coming(
    *others: NodeState,
    room: CacheConfig = ROOMY,
    stem: NodeState = STEM_HELD,
    tip: NodeState = COMING,
    transfer: TransferState = TRANSFER,
) -> Snapshot:
    """The state after the load-back was enqueued."""
    return state_of(room, stem, tip, *others, transfers=(transfer,), holds=(HOLD,))


def loaded(
    before: Snapshot,
    after: Snapshot,
    outcome: LoadedBack = LOADED,
    key: Key = KEY,
    quota: int | None = None,
) -> Step:
    """A load-back of `KEY`."""
    return step(before, LoadBack(key, quota), after, outcome)


def changed(old: NodeState, component: Component, data: ComponentState) -> NodeState:
    """A node with other data of one component."""
    return evolve(old, data={**old.data, component: data})


BRIEF = node(2, 1, [3, 4], full=on(None, [2, 3]))
"""The second half of `KEY`, of which only full data is to be loaded."""
