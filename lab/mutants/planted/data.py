"""Faults of bytes: a slot holds other bytes than those of its key."""

from __future__ import annotations

from functools import partial

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import backup, host_insert, load, lock, slots, transfer, tree
from kvcanon.reference.state import Hold, Node, Pool, State, Transfer
from kvcanon.spec.transfer import Copy, TransferOrder, TransferStatus
from kvcanon.spec.types import MAMBA, Key, Slot


@mutant("DATA-2", "B1 sgl#27444")
@instead(lock.hold, load)
def load_holds_nothing(state: State, end: Node, key: Key, window_from: int | None) -> Hold:
    """A load-back holds no lock: its source and target may be evicted while it is in flight."""
    if window_from is not None:
        tree.cut_path_at(state, end, window_from)
    return lock.hold(state, state.root, key, None)


@mutant("DATA-1", "dynamo#15079")
@around(transfer._settle_one)
def failure_counts_as_done(
    settle_one: Original[TransferStatus], state: State, settling: Transfer, *, ok: bool
) -> TransferStatus:
    """A copy that failed is settled as done."""
    return settle_one(state, settling, ok=True)


@mutant("DATA-1", "D20 trt#8830")
def copy_moves_nothing(patch: Overrides) -> None:
    """A copy is acknowledged, and has moved no bytes."""
    patch.setattr(transfer, "_copy_slot", lambda *_: None)


@mutant("DATA-1", "D12 lmc#4385")
@around(host_insert._Fetched.full, host_insert._Fetched)
def fetched_pages_are_one_off(
    full: Original[tuple[bytes, ...]], fetched: host_insert._Fetched, begin: int, end: int
) -> tuple[bytes, ...]:
    """A host insert places the bytes of the fetched pages in reverse order."""
    return tuple(reversed(full(fetched, begin, end)))


@mutant("DATA-1", "D4 vllm#56525")
@instead(TransferOrder, transfer)
def states_are_not_copied(
    transfer_id: int, direction: object, copies: tuple[Copy, ...], perform: partial[None]
) -> TransferOrder:
    """A mamba state counts as copied, and its bytes were never copied."""
    state, copying, _ = perform.args
    moved = tuple(copy for copy in copies if copy.component is not MAMBA)
    return TransferOrder(
        transfer_id, copying.direction, copies, partial(transfer._perform, state, copying, moved)
    )


@mutant("DATA-2", "B12 sgl#35769")
def cancelled_targets_come_free_at_once(patch: Overrides) -> None:
    """The target slots of a cancelled copy are freed before the copy has ended."""

    def forget(state: State, cancelled: Transfer) -> None:
        for node, component in reversed(cancelled.parts):
            slots.drop(state, node, component, cancelled.target_medium)
        cancelled.parts = []
        cancelled.cancelled = True

    patch.setattr(transfer, "cancel", forget)
    patch.setattr(transfer, "_free_targets", lambda *_: None)


@mutant("DATA-2", "D6 vllm#47282")
@instead(lock.hold, backup)
def backup_holds_nothing(state: State, end: Node, key: Key, window_from: int | None) -> Hold:
    """A backup holds no lock: its source may be evicted and overwritten while it is in flight."""
    if window_from is not None:
        tree.cut_path_at(state, end, window_from)
    return lock.hold(state, state.root, key, None)


@mutant("DATA-2", "D17 trt#12667")
@around(Pool.take, Pool)
def taken_slots_stay_in_the_free_list(
    take: Original[tuple[Slot, ...]], pool: Pool, count: int
) -> tuple[Slot, ...]:
    """A slot that was taken stays in the free list, and is given out again."""
    taken = take(pool, count)
    if count and pool.held:
        pool.give_back(taken[:1])
    return taken
