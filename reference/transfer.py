"""Transfers: enqueues copies, and settles them when the engine has completed them.

What the engine has completed has *arrived* here. Where ranks share their decisions, only what has
arrived on all of them is settled, so that it does not matter when.

When a copy fails, copies of nodes below in the same direction can no longer become part of a
prefix: they are cancelled, and their target slots are freed when the engine has completed them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from kvcanon.reference.events import emit_stored
from kvcanon.reference.lock import release_hold
from kvcanon.reference.slots import drop, place, release, take
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.reference.tree import upwards
from kvcanon.spec.errors import BadArgument, SpecViolation
from kvcanon.spec.transfer import (
    Arrival,
    Completion,
    Copy,
    Direction,
    TransferOrder,
    TransferStatus,
)
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


def arrived(state: State) -> tuple[Completion, ...]:
    """The transfers that can settle: of each direction the ended ones, up to the first open one."""
    _take_completions(state)
    ends = state.arrived
    return tuple(Completion(t.transfer_id, ends[t.transfer_id]) for t in _in_order(state, ends))


def settle(
    state: State, direction: Direction | None = None
) -> tuple[tuple[TransferId, TransferStatus], ...]:
    """Settle what has arrived, on all ranks if there are others, of each direction or of one."""
    _take_completions(state)
    flying = [t for t, each in state.transfers.items() if direction in (None, each.direction)]
    ends = {t: state.arrived[t] for t in flying if t in state.arrived}
    if state.agree is not None and flying:
        ends = _arrived_on_all_ranks(state, flying)
    return _settle_all(state, ends)


def settle_these(
    state: State, completions: Sequence[Completion]
) -> tuple[tuple[TransferId, TransferStatus], ...]:
    """Settle exactly these transfers. Raises: BadArgument."""
    _take_completions(state)
    _check_named(state, completions)
    return _settle_all(state, {each.transfer_id: each.ok for each in completions})


def flush(state: State) -> tuple[tuple[TransferId, TransferStatus], ...]:
    """Wait for every transfer in flight, and settle it."""
    for transfer_id in list(state.transfers):
        state.engine.wait(transfer_id)
    settled = settle(state)
    if state.agree is not None and state.transfers:
        raise SpecViolation(
            f"flush waited here, and transfer {next(iter(state.transfers))} is in flight on "
            "another rank; all ranks must call flush"
        )
    return settled


def _take_completions(state: State) -> None:
    for completion in state.engine.poll():
        transfer_id = completion.transfer_id
        if transfer_id not in state.transfers or transfer_id in state.arrived:
            raise SpecViolation(f"the engine completed {transfer_id}, for which nothing waits")
        state.arrived[transfer_id] = completion.ok


def _arrived_on_all_ranks(state: State, flying: Sequence[TransferId]) -> dict[TransferId, bool]:
    """How transfers ended, of those in flight that have ended on all ranks."""
    assert state.agree is not None
    ours = [_arrival_of(state, transfer_id) for transfer_id in flying]
    least = list(state.agree(ours))
    if len(least) != len(ours) or any(
        not Arrival.WAITING <= all_ranks <= here
        for all_ranks, here in zip(least, ours, strict=True)
    ):
        raise SpecViolation(
            f"agree got {[int(each) for each in ours]} and returned {least}; return the least of "
            "all ranks for each number"
        )
    ends = dict(zip(flying, least, strict=True))
    return {t: end == Arrival.DONE for t, end in ends.items() if end != Arrival.WAITING}


def _arrival_of(state: State, transfer_id: TransferId) -> Arrival:
    ok = state.arrived.get(transfer_id)
    return Arrival.WAITING if ok is None else Arrival.DONE if ok else Arrival.FAILED


def _in_order(state: State, ends: Mapping[TransferId, bool]) -> list[Transfer]:
    """The transfers of each direction that have an end, up to the first that has none."""
    waiting: set[Direction] = set()
    found = []
    for transfer in state.transfers.values():
        if transfer.transfer_id not in ends:
            waiting.add(transfer.direction)
        elif transfer.direction not in waiting:
            found.append(transfer)
    return found


def _check_named(state: State, completions: Sequence[Completion]) -> None:
    """Refuse completions that cannot settle here."""
    mend = "settle what `arrived` returned on every rank"
    named = {each.transfer_id: each.ok for each in completions}
    for each in sorted(completions, key=lambda each: each.transfer_id):
        here = _arrival_of(state, each.transfer_id)
        which = f"names transfer {each.transfer_id}"
        if sum(other.transfer_id == each.transfer_id for other in completions) > 1:
            raise BadArgument("completions", f"{which} twice; name it once")
        if each.transfer_id not in state.transfers:
            raise BadArgument("completions", f"{which}, which is not in flight; {mend}")
        if here is Arrival.WAITING:
            raise BadArgument("completions", f"{which}, whose copy has not ended here; {mend}")
        if each.ok and here is Arrival.FAILED:
            raise BadArgument(
                "completions",
                f"{which} as done, and its copy failed here; settle it as failed on every rank",
            )
    ordered = {transfer.transfer_id for transfer in _in_order(state, named)}
    for transfer_id in sorted(named.keys() - ordered):
        which = f"names transfer {transfer_id} before an earlier copy of its direction"
        raise BadArgument("completions", f"{which}; {mend}")


def _settle_all(
    state: State, ends: Mapping[TransferId, bool]
) -> tuple[tuple[TransferId, TransferStatus], ...]:
    settled = []
    for transfer in _in_order(state, ends):
        transfer_id = transfer.transfer_id
        del state.arrived[transfer_id]
        settled.append((transfer_id, _settle_one(state, transfer, ok=ends[transfer_id])))
    return tuple(settled)


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
