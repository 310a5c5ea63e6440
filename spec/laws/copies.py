"""Copies in a step: how they ended, which build on which, and which data they release.

A copy builds on full data at or above its own nodes. It does not build on window data above them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvcanon.spec.laws.comparison import writes_back
from kvcanon.spec.operations import Settled
from kvcanon.spec.snapshot import NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import FULL, GPU, Component, NodeId, Slot
from kvcanon.spec.views import PageRow, Step


def settled_transfers(step: Step) -> list[tuple[TransferState, TransferStatus]]:
    """The transfers that a step settled, as they were before it, with their statuses."""
    if not isinstance(step.outcome, Settled):
        return []
    flying = {transfer.transfer_id: transfer for transfer in step.before.transfers}
    return [(flying[each], status) for each, status in step.outcome.transfers if each in flying]


def copies_changed(step: Step) -> bool:
    """Whether other copies are in flight than before, or other nodes wait for them."""
    return "transfers" in step.difference.fields


def builds_on(state: Snapshot, later: TransferState, earlier: TransferState) -> bool:
    """Whether a transfer copies data at or below full data that another of its direction copies."""
    if later.direction is not earlier.direction:
        return False
    tops = {node_id for node_id, component in earlier.parts if component is FULL}
    nodes = (state.nodes.get(node_id) for node_id, _ in later.parts)
    return any(node is not None and _is_below(state, node, tops) for node in nodes)


def _is_below(state: Snapshot, node: NodeState, tops: set[NodeId]) -> bool:
    """Whether a node is one of `tops` or below one of them."""
    return any(up.node_id in tops for up in state.upwards[node.node_id])


def may_be_given_up(step: Step, was: PageRow, now: PageRow | None, component: Component) -> bool:
    """Whether a page's host copy may go in a step, by profile: its load-back is done.

    Then everything that the device has of the node may leave the host, except what another
    load-back still reads.
    """
    if step.before.profile.loads_keep_host_copies or not writes_back(step.before):
        return False
    if now is None or not now.resident(component, GPU):
        return False
    read = {part for each in step.after.transfers for part in each.parts}
    return (now.node_id, component) not in read and any(
        node_id == was.node_id
        for transfer, status in settled_transfers(step)
        if transfer.direction is Direction.LOAD_BACK and status is TransferStatus.DONE
        for node_id, _ in transfer.parts
    )


def failed_victims(step: Step) -> Mapping[tuple[Component, Slot], Slot]:
    """The device slots whose copy failed in a step, and the host slots that it was to fill."""
    asked = step.asked
    if asked is None or not asked.failed:
        return {}
    return {
        (copy.component, source): target
        for order in asked.orders
        if order.transfer_id in asked.failed and order.direction is Direction.BACKUP
        for copy in order.copies
        for source, target in zip(copy.sources, copy.targets, strict=False)
    }
