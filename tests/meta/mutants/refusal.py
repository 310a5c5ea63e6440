"""Faults of refusals: what is let through, and what is refused for the wrong reason.

What readers get wrong: that any refusal is as good as another: the caller does different things
at different reasons.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import insert, lock, slots, tree
from kvcanon.reference.state import Hold, State
from kvcanon.spec.errors import (
    CacheBusy,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    TransferPending,
)
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import FULL, GPU, Counts, Key, Slots
from meta.mutants.entry import mutant


@mutant("REFUSE-1", "D11 vllm#49829")
def insert_waits_for_backups(patch: Overrides) -> None:
    """An insert is refused while pages of its key are being copied to the host."""
    check_path = insert._check_path

    def waiting(stops: list[tree.Stop], start: int) -> None:
        check_path(stops, start)
        for node, _ in stops:
            backing = node.data[FULL].backing
            if backing is not None:
                raise TransferPending(backing.transfer_id)

    patch.setattr(insert, "_check_path", waiting)


@mutant("REFUSE-1")
def last_slot_is_never_given(patch: Overrides) -> None:
    """A pool with as many free slots as are asked is said to have too few."""
    allocate = slots.allocate

    def short(state: State, counts: Counts) -> Slots:
        free = state.pools[FULL, GPU].free_slots
        if 0 < counts.full == free:
            raise OutOfSlots("full on GPU", counts.full, free - 1)
        return allocate(state, counts)

    patch.setattr(slots, "allocate", short)


@mutant("REFUSE-1", "B8 sgl#25277")
def host_data_cannot_be_locked(patch: Overrides) -> None:
    """A key that is on the host in part is said not to be cached."""
    require = tree.require

    def on_device_only(state: State, key: Key) -> list[tree.Stop]:
        stops = require(state, key)
        present = insert._present_pages(stops)
        if present < len(key):
            raise PrefixNotCached(len(key), present)
        return stops

    patch.setattr(lock, "require", on_device_only)


@mutant("REFUSE-2")
def early_release_spends_the_receipt(patch: Overrides) -> None:
    """A lock whose window was given back cannot be given back."""
    open_hold = lock._open_hold

    def spent(state: State, receipt: Receipt) -> Hold:
        held = open_hold(state, receipt)
        if state.config.window_tokens is not None and held.window_from is None:
            raise ReceiptSpent(receipt.receipt_id)
        return held

    patch.setattr(lock, "_open_hold", spent)


@mutant("REFUSE-2")
def reset_waits_for_slots(patch: Overrides) -> None:
    """A reset is refused while slots are in use, though nobody holds a lock."""
    free_tree = slots.free_tree

    def waiting(state: State) -> None:
        pool = state.pools[FULL, GPU]
        if pool.free_slots < pool.capacity:
            raise CacheBusy(pool.capacity - pool.free_slots)
        free_tree(state)

    patch.setattr(slots, "free_tree", waiting)
