"""Faults of copies in flight: their order, their failures, and what they hold."""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import backup, cache, events, insert, lock, slots, transfer, tree
from kvcanon.reference.state import Data, Hold, Node, State, Transfer
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, Component, Medium, TransferId


@mutant("ASYNC-3", "B3 sgl#16946")
@instead(tree._follow_cut)
def cut_forgets_copies_in_flight(
    state: State, upper: Node, lower: Node, component: Component, data: Data
) -> None:
    """When a node is cut during its copy, the upper part is no longer part of the copy."""
    for medium in (GPU, CPU):
        if data.slots(medium) is not None:
            state.owners[component, medium][upper] = None


@mutant("ASYNC-1")
@instead(transfer.settle, cache)
def settle_as_they_come(
    state: State, direction: Direction | None = None
) -> tuple[tuple[TransferId, TransferStatus], ...]:
    """Copies settle in the order in which they end, even before copies that they build on."""
    settled = []
    for completion in state.engine.poll():
        arrived = state.transfers[completion.transfer_id]
        status = transfer._settle_one(state, arrived, ok=completion.ok)
        settled.append((completion.transfer_id, status))
    return tuple(settled)


@mutant("ASYNC-5", "B2 sgl#27108")
def failure_cancels_nothing(patch: Overrides) -> None:
    """When a copy fails, the copies that build on it are not cancelled."""
    patch.setattr(transfer, "_builds_on", lambda later, failed: False)


@mutant("ASYNC-2", "D11 vllm#49829")
def ended_copies_keep_their_receipts(patch: Overrides) -> None:
    """When a copy ends, its receipt stays open, and its lock refs stay."""
    patch.setattr(transfer, "release_hold", lambda *_: None)


@mutant("ASYNC-4", "B3 sgl#27072")
@instead(events.emit_stored, transfer)
def upper_part_of_a_cut_copy_is_not_announced(state: State, node: Node, medium: Medium) -> None:
    """When a node is cut during its copy, stores are emitted for its lower part only."""
    waits = (
        child.data[FULL].backing if medium is CPU else child.data[FULL].loading
        for child in node.children.values()
    )
    if not any(waits):
        events.emit_stored(state, node, medium)


@mutant("ASYNC-5", "B2 sgl#27108")
@around(transfer._undo)
def failed_backup_counts_as_one(undo: Original[None], state: State, failed: Transfer) -> None:
    """The nodes of a failed backup keep its host slots, as if it had succeeded."""
    if failed.direction is Direction.LOAD_BACK:
        undo(state, failed)
    else:
        for node, component in failed.parts:
            transfer._mark_filled(node, component, failed)


@mutant("ASYNC-6")
def flush_is_a_poll(patch: Overrides) -> None:
    """A flush settles the copies that have ended, and does not wait for the others."""
    patch.setattr(cache, "flush", transfer.settle)


@mutant("ASYNC-7")
@instead(backup.back_up, insert)
def inserts_do_not_tell_their_backups(state: State, node: Node) -> tuple[TransferId, ...]:
    """An insert enqueues backups, and does not report them."""
    backup.back_up(state, node)
    return ()


@mutant("ASYNC-7", "D11 vllm#49829")
@instead(backup.back_up, insert)
def inserts_name_backups_that_are_none(state: State, node: Node) -> tuple[TransferId, ...]:
    """An insert reports a backup that was never enqueued, so that its caller waits for ever."""
    enqueued = backup.back_up(state, node)
    return enqueued or (state.new_id(),)


@mutant("ASYNC-8", "dynamo#15079")
def failure_cancels_everything(patch: Overrides) -> None:
    """When a copy fails, all other copies of its direction are cancelled."""
    patch.setattr(transfer, "_builds_on", lambda later, failed: True)


@mutant("ASYNC-8")
@around(transfer._settle_one)
def done_loads_are_forgotten(
    settle_one: Original[TransferStatus], state: State, ending: Transfer, *, ok: bool
) -> TransferStatus:
    """When a load-back is done, the last part of what it loaded is dropped."""
    parts = list(ending.parts)
    status = settle_one(state, ending, ok=ok)
    if status is TransferStatus.DONE and ending.direction is Direction.LOAD_BACK:
        for node, component in reversed(parts[-1:]):
            slots.drop(state, node, component, GPU)
    return status


@mutant("ASYNC-9", "D13 lmc#4133")
@around(lock.release_hold, transfer)
def copies_release_twice(release_hold: Original[None], state: State, held: Hold) -> None:
    """When a copy ends its lock is released twice, once at the expense of another lock."""
    release_hold(state, held)
    if held.node.data[FULL].lock_refs:
        lock._count(held, -1)


@mutant("ASYNC-9")
@around(transfer._settle_one)
def done_backups_leave_the_device(
    settle_one: Original[TransferStatus], state: State, ending: Transfer, *, ok: bool
) -> TransferStatus:
    """When a backup is done, the window data and the state that it copied leave the device."""
    parts = list(ending.parts)
    status = settle_one(state, ending, ok=ok)
    if status is TransferStatus.DONE and ending.direction is Direction.BACKUP:
        for node, component in reversed(parts):
            if component is not FULL and not node.data[component].lock_refs:
                slots.drop(state, node, component, GPU)
    return status


@mutant("ASYNC-10", "D11 vllm#49829")
def polls_settle_nothing(patch: Overrides) -> None:
    """A poll settles nothing: copies stay in flight until a flush."""
    patch.setattr(cache, "settle", lambda _: ())


@mutant("ASYNC-10")
@around(transfer._settle_one)
def good_copies_are_reported_failed(
    settle_one: Original[TransferStatus], state: State, settling: Transfer, *, ok: bool
) -> TransferStatus:
    """Every other copy that succeeds is reported as failed."""
    return settle_one(state, settling, ok=ok and settling.transfer_id % 2 == 0)


@mutant("ASYNC-10", "dynamo#15079")
@around(transfer._settle_one)
def failed_backups_are_reported_done(
    settle_one: Original[TransferStatus], state: State, settling: Transfer, *, ok: bool
) -> TransferStatus:
    """A backup that failed is settled as done."""
    backup = settling.direction is Direction.BACKUP
    return settle_one(state, settling, ok=ok or backup)
