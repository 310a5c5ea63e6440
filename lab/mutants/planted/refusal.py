"""Faults of refusals: calls wrongly accepted, and calls refused for the wrong reason.

The reason matters: the caller reacts differently to different refusals.
"""

from __future__ import annotations

from contextlib import suppress

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import cache, insert, load, lock, match, slots, tree
from kvcanon.reference.state import Hold, State
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.operations import (
    Inserted,
    LoadDecision,
    LoadedBack,
    Matched,
    Receipt,
    Settled,
)
from kvcanon.spec.types import FULL, GPU, Counts, Key, Slots


@mutant("REFUSE-1", "D11 vllm#49829")
def insert_waits_for_backups(patch: Overrides) -> None:
    """An insert is refused while pages of its key are being copied to the host."""
    check_path = insert._check_path

    def waiting(stops: list[tree.PathNode], start: int) -> None:
        check_path(stops, start)
        for node, _ in stops:
            backing = node.data[FULL].backing
            if backing is not None:
                raise TransferPending(backing.transfer_id)

    patch.setattr(insert, "_check_path", waiting)


@mutant("REFUSE-1")
def last_slot_is_never_given(patch: Overrides) -> None:
    """An allocation of exactly as many slots as are free is refused."""
    allocate = slots.allocate

    def short(state: State, counts: Counts) -> Slots:
        free = state.pools[FULL, GPU].free_slots
        if 0 < counts.full == free:
            raise OutOfSlots("full on GPU", counts.full, free - 1)
        return allocate(state, counts)

    patch.setattr(slots, "allocate", short)


@mutant("REFUSE-1", "B8 sgl#25277")
def host_data_cannot_be_locked(patch: Overrides) -> None:
    """A lock of a key that is on the host in part is refused as not cached."""
    require = tree.require

    def on_device_only(state: State, key: Key) -> list[tree.PathNode]:
        stops = require(state, key)
        present = insert._present_pages(stops)
        if present < len(key):
            raise PrefixNotCached(len(key), present)
        return stops

    patch.setattr(lock, "require", on_device_only)


@mutant("REFUSE-2")
def early_release_spends_the_receipt(patch: Overrides) -> None:
    """After unlock_window, unlock is refused."""
    open_hold = lock._open_hold

    def spent(state: State, receipt: Receipt) -> Hold:
        held = open_hold(state, receipt)
        if state.config.window_tokens is not None and held.window_from is None:
            raise ReceiptSpent(receipt.receipt_id)
        return held

    patch.setattr(lock, "_open_hold", spent)


@mutant("REFUSE-2")
def reset_waits_for_slots(patch: Overrides) -> None:
    """A reset is refused while slots are in use, though no receipt is open."""
    free_tree = slots.free_tree

    def waiting(state: State) -> None:
        pool = state.pools[FULL, GPU]
        if pool.free_slots < pool.capacity:
            raise CacheBusy(pool.capacity - pool.free_slots)
        free_tree(state)

    patch.setattr(slots, "free_tree", waiting)


@mutant("REFUSE-1")
def keys_of_three_pages_are_refused(patch: Overrides) -> None:
    """An insert of three pages is refused without a reason."""

    def fastidious(
        state: State, key: Key, start_pages: int, some: Slots, *, counted_pages: int, priority: int
    ) -> Inserted:
        if len(key) == 3:
            raise BadArgument("key", "has three pages")
        return insert.insert(
            state, key, start_pages, some, counted_pages=counted_pages, priority=priority
        )

    patch.setattr(cache, "insert", fastidious)


@mutant("REFUSE-1", "D11 vllm#49829")
def loads_wait_for_all_copies(patch: Overrides) -> None:
    """A load-back is refused while any copy is in flight, whatever it copies."""

    def waiting(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
        for transfer_id in state.transfers:
            raise TransferPending(transfer_id)
        return load.load_back(state, key, quota_pages)

    patch.setattr(cache, "load_back", waiting)


@mutant("REFUSE-1")
def full_pool_finds_nothing(patch: Overrides) -> None:
    """A match is refused when no slots are free, though it takes none."""

    def short(state: State, key: Key) -> Matched:
        if not state.pools[FULL, GPU].free_slots:
            raise OutOfSlots("full on GPU", 1, 0)
        return match.match(state, key)

    patch.setattr(cache, "match", short)


@mutant("REFUSE-3")
def what_is_not_cached_needs_no_load(patch: Overrides) -> None:
    """A load-back of a key that is not cached answers "nothing to load"."""

    def content(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
        stops = tree.walk(state, key)
        if tree.walked_pages(stops) < len(key) and not load._needed(state, stops, len(key)):
            return LoadedBack(LoadDecision.NOTHING_TO_LOAD)
        return load.load_back(state, key, quota_pages)

    patch.setattr(cache, "load_back", content)


@mutant("REFUSE-3", "D13 lmc#4133")
def strange_slots_are_freed_in_silence(patch: Overrides) -> None:
    """A free of slots that nobody holds does nothing, and is not refused."""
    free = slots.free

    def lenient(state: State, some: Slots) -> None:
        with suppress(SlotNotHeld):
            free(state, some)

    patch.setattr(slots, "free", lenient)


@mutant("REFUSE-4", "D11 vllm#49829")
def idle_polls_answer_nothing(patch: Overrides) -> None:
    """A poll that settles nothing returns None, not an empty answer."""
    patch.setattr(cache, "Settled", lambda transfers: Settled(transfers) if transfers else None)
