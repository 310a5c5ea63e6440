"""States with copies in flight that the tests of ASYNC laws share."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.operations import Settled
from kvcanon.spec.snapshot import (
    ComponentState,
    HoldState,
    NodeState,
    Snapshot,
    TransferState,
)
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    FULL,
    Component,
    Counts,
    NodeId,
    Slot,
    TransferId,
    WritePolicy,
)
from states import node, on, state_of

POOLS = Counts(full=16, swa=16, mamba=4)

CONFIG = CacheConfig(
    device_slots=POOLS,
    host_slots=POOLS,
    write_policy=WritePolicy.WRITE_THROUGH,
    window_tokens=1,
    mamba=True,
)

BACKUP, LOAD_BACK = Direction.BACKUP, Direction.LOAD_BACK

DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED


def copy(
    transfer_id: TransferId,
    direction: Direction,
    sources: tuple[Slot, ...],
    targets: tuple[Slot, ...],
    *node_ids: NodeId,
    component: Component = FULL,
    cancelled: bool = False,
) -> TransferState:
    """A transfer of one component."""
    parts = tuple((node_id, component) for node_id in node_ids)
    return TransferState(
        transfer_id, direction, parts, {component: sources}, {component: targets}, cancelled
    )


def backups(
    *flying: TransferId,
    cancelled: tuple[TransferId, ...] = (),
    done: tuple[TransferId, ...] = (),
    profile: Profile = CANON,
) -> Snapshot:
    """Node 1 (two pages) and node 2 below it, backed up by transfers 8 and 9."""

    def full(device: tuple[Slot, ...], host: tuple[Slot, ...], by: TransferId) -> ComponentState:
        if by in done:
            return on(device, host)
        return on(device, host, backing=by) if by in flying else on(device)

    nodes = (
        node(1, 0, [1, 2], full=full((0, 1), (0, 1), 8)),
        node(2, 1, [3], full=full((2,), (2,), 9)),
    )
    copies = (
        copy(8, BACKUP, (0, 1), (0, 1), 1, cancelled=8 in cancelled),
        copy(9, BACKUP, (2,), (2,), 2, cancelled=9 in cancelled),
    )
    transfers = tuple(c for c in copies if c.transfer_id in (*flying, *cancelled))
    return evolve(state(*nodes, transfers=transfers), profile=profile)


def state(*nodes: NodeState, transfers: tuple[TransferState, ...] = ()) -> Snapshot:
    """A state with one receipt for each transfer."""
    holds = tuple(
        HoldState(100 + t.transfer_id, t.parts[-1][0], None, False, t.transfer_id)
        for t in transfers
    )
    return state_of(CONFIG, *nodes, transfers=transfers, holds=holds)


def settled(*ends: tuple[TransferId, TransferStatus]) -> Settled:
    """The outcome of a poll."""
    return Settled(ends)
