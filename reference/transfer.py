"""Transfers: enqueues copies, and settles them when the engine has completed them.

When a copy fails, copies of nodes below in the same direction can no longer become part of a
prefix: they are cancelled, and their target slots are freed when the engine has completed them.
"""

from __future__ import annotations

from functools import partial

from kvcanon.reference.events import emit_stored
from kvcanon.reference.lock import release_hold
from kvcanon.reference.slots import drop, place, release, take
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.reference.tree import upwards
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Copy, Direction, TransferOrder, TransferStatus
from kvcanon.spec.types import FULL, Component, Slot, TransferId


def enqueue(
    state: State, direction: Direction, parts: list[tuple[Node, Component]], held: Hold
) -> Transfer:
    """Enqueue the copy of nodes' data, root first, into free slots on the other medium.

    The caller has made sure that enough slots are free. The transfer keeps the hold `held`.
    """
    transfer = begin(state, direction, held)
    add_parts(state, transfer, parts)
    submit(state, transfer)
    return transfer


def begin(state: State, direction: Direction, held: Hold) -> Transfer:
    """Begin a transfer, with the hold `held` and without parts yet; `submit` must follow."""
    transfer = Transfer(state.new_id(), direction, [], {}, {}, held)
    held.transfer = transfer
    state.transfers[transfer.transfer_id] = transfer
    return transfer


def add_parts(state: State, transfer: Transfer, parts: list[tuple[Node, Component]]) -> None:
    """Add the copies of nodes' data, into free slots, to a transfer that is not submitted yet."""
    for node, component in parts:
        sources = node.data[component].slots(transfer.source_medium) or ()
        targets = state.pools[component, transfer.target_medium].take(len(sources))
        place(state, node, component, transfer.target_medium, targets, filled_by=transfer)
        transfer.sources[component] = transfer.sources.get(component, ()) + sources
        transfer.targets[component] = transfer.targets.get(component, ()) + targets
    transfer.parts.extend(parts)


def submit(state: State, transfer: Transfer) -> None:
    """Order a transfer from the engine."""
    copies = tuple(Copy(c, transfer.sources[c], transfer.targets[c]) for c in transfer.sources)
    state.engine.submit(
        TransferOrder(
            transfer.transfer_id,
            transfer.direction,
            copies,
            partial(_perform, state, transfer, copies),
        )
    )


def settle(
    state: State, direction: Direction | None = None
) -> tuple[tuple[TransferId, TransferStatus], ...]:
    """Take acknowledgements, and settle the transfers of each direction (or of one) in order."""
    for completion in state.engine.poll():
        transfer_id = completion.transfer_id
        if transfer_id not in state.transfers or transfer_id in state.arrived:
            raise SpecViolation(f"the engine completed {transfer_id}, for which nothing waits")
        state.arrived[transfer_id] = completion.ok
    settled = []
    waiting = set(Direction) - {direction} if direction is not None else set()
    for transfer in list(state.transfers.values()):
        if transfer.transfer_id not in state.arrived:
            waiting.add(transfer.direction)
        if transfer.direction not in waiting:
            ok = state.arrived.pop(transfer.transfer_id)
            settled.append((transfer.transfer_id, _settle_one(state, transfer, ok=ok)))
    return tuple(settled)


def flush(state: State) -> tuple[tuple[TransferId, TransferStatus], ...]:
    """Wait for every transfer in flight, and settle it."""
    for transfer_id in list(state.transfers):
        state.engine.wait(transfer_id)
    return settle(state)


def _settle_one(state: State, transfer: Transfer, *, ok: bool) -> TransferStatus:
    del state.transfers[transfer.transfer_id]
    assert transfer.hold is not None
    release_hold(state, transfer.hold)
    if transfer.cancelled:
        _free_targets(state, transfer)
        return TransferStatus.CANCELLED
    if not ok:
        _undo(state, transfer)
        return TransferStatus.FAILED
    for node, component in transfer.parts:
        _mark_filled(node, component, transfer)
        if component is FULL:
            emit_stored(state, node, transfer.target_medium)
    return TransferStatus.DONE


def _mark_filled(node: Node, component: Component, transfer: Transfer) -> None:
    data = node.data[component]
    if transfer.direction is Direction.BACKUP:
        data.backing = None
    else:
        data.loading = None


def _undo(state: State, transfer: Transfer) -> None:
    """Free the targets of a failed copy, and cancel the transfers that build on it."""
    for node, component in reversed(transfer.parts):
        drop(state, node, component, transfer.target_medium)
    failed = {node for node, component in transfer.parts if component is FULL}
    for later in state.transfers.values():
        if later.direction is transfer.direction and _builds_on(later, failed):
            cancel(state, later)


def _builds_on(transfer: Transfer, failed: set[Node]) -> bool:
    return any(above in failed for node, _ in transfer.parts for above in upwards(node))


def cancel(state: State, transfer: Transfer) -> None:
    """Detach a transfer from its nodes; it owns its targets until the engine has completed it."""
    for node, component in reversed(transfer.parts):
        take(state, node, component, transfer.target_medium)
    transfer.parts = []
    transfer.cancelled = True


def _free_targets(state: State, transfer: Transfer) -> None:
    for component, slots in transfer.targets.items():
        release(state, component, transfer.target_medium, slots)


def _perform(state: State, transfer: Transfer, copies: tuple[Copy, ...]) -> None:
    """Copy the bytes; slots that were never written have none."""
    for copy in copies:
        sources = state.pools[copy.component, transfer.source_medium].payloads
        targets = state.pools[copy.component, transfer.target_medium].payloads
        for source, target in zip(copy.sources, copy.targets, strict=True):
            _copy_slot(sources, source, targets, target)


def _copy_slot(
    sources: dict[Slot, bytes], source: Slot, targets: dict[Slot, bytes], target: Slot
) -> None:
    if source in sources:
        targets[target] = sources[source]
    else:
        targets.pop(target, None)
