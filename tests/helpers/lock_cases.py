"""States and receipts that the tests of LOCK laws share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import (
    Evict,
    Lock,
    Receipt,
)
from kvcanon.spec.snapshot import ComponentState, HoldState, NodeState, Snapshot
from kvcanon.spec.types import (
    Component,
    Counts,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of

POOLS = Counts(full=16, swa=16, mamba=4)

CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=POOLS,
    host_slots=POOLS,
    write_policy=WritePolicy.WRITE_THROUGH,
)

KEY = make_key([1, 2, 3, 4, 5], 1)

RECEIPT = Receipt(100, KEY)

HOLD = HoldState(100, 1, 3, state_held=True)
"""What `RECEIPT` holds: five pages of full data, the last two of window data, and the state."""


class Refs(NamedTuple):
    """Lock refs of a node."""

    full: int = 0
    swa: int = 0
    mamba: int = 0


FREE = Refs()

UP, END = Refs(1, 0, 0), Refs(1, 1, 1)
"""The lock refs of one lock of `KEY`, above its window and in it."""


def part(
    node_id: int, parent_id: int, tokens: list[int], refs: Refs, *, state: bool = False
) -> NodeState:
    """A part of the path of `KEY`: page n has slot n of every pool, the mamba state slot 0."""
    slots = [token - 1 for token in tokens]
    made = node(
        node_id,
        parent_id,
        tokens,
        full=on(slots, slots, lock_refs=refs.full),
        swa=on(slots, slots, lock_refs=refs.swa),
        mamba=on([0] if state else None, lock_refs=refs.mamba),
    )
    return evolve(made, created=1, last_access=1)


def whole(refs: Refs = FREE, *holds: HoldState) -> Snapshot:
    """The path as one node."""
    return state_of(CONFIG, part(1, ROOT, [1, 2, 3, 4, 5], refs, state=True), holds=holds)


def parted(upper: Refs = UP, lower: Refs = END, *holds: HoldState, at: int = 3) -> Snapshot:
    """The path cut before page `at`, with these refs above and below."""
    tokens = [1, 2, 3, 4, 5]
    return state_of(
        CONFIG,
        part(2, ROOT, tokens[:at], upper),
        part(1, 2, tokens[at:], lower, state=True),
        holds=holds,
    )


def with_data(
    state: Snapshot,
    node_id: int,
    component: Component,
    change: Callable[[ComponentState], ComponentState],
) -> Snapshot:
    """A state in which one component's data at one node is changed."""
    old = state.nodes[node_id]
    data = {**old.data, component: change(old[component])}
    return evolve(state, nodes={**state.nodes, node_id: evolve(old, data=data)})


EVICT = Evict(Counts(full=1))

LOCK = Lock(KEY)
