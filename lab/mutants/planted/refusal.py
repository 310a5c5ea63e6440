"""Faults of refusals: calls wrongly accepted, and calls refused for the wrong reason.

The reason matters: the caller reacts differently to different refusals.
"""

from __future__ import annotations

from contextlib import suppress

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
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
from kvcanon.spec.operations import Inserted, LoadDecision, LoadedBack, Matched, Receipt, Settled
from kvcanon.spec.types import FULL, GPU, Counts, Key, Slots


@mutant("REFUSE-1", "D11 vllm#49829")
@around(insert._check_path)
def insert_waits_for_backups(
    check_path: Original[None], stops: list[tree.PathNode], start: int
) -> None:
    """An insert is refused while pages of its key are being copied to the host."""
    check_path(stops, start)
    for node, _ in stops:
        backing = node.data[FULL].backing
        if backing is not None:
            raise TransferPending(backing.transfer_id)


@mutant("REFUSE-1")
@around(slots.allocate)
def last_slot_is_never_given(allocate: Original[Slots], state: State, counts: Counts) -> Slots:
    """An allocation of exactly as many slots as are free is refused."""
    free = state.pools[FULL, GPU].free_slots
    if 0 < counts.full == free:
        raise OutOfSlots("full on GPU", counts.full, free - 1)
    return allocate(state, counts)


@mutant("REFUSE-1", "B8 sgl#25277")
@around(tree.require, lock)
def host_data_cannot_be_locked(
    require: Original[list[tree.PathNode]], state: State, key: Key
) -> list[tree.PathNode]:
    """A lock of a key that is on the host in part is refused as not cached."""
    stops = require(state, key)
    present = insert._present_pages(stops)
    if present < len(key):
        raise PrefixNotCached(len(key), present)
    return stops


@mutant("REFUSE-2")
@around(lock._open_hold)
def early_release_spends_the_receipt(
    open_hold: Original[Hold], state: State, receipt: Receipt
) -> Hold:
    """After unlock_window, unlock is refused."""
    held = open_hold(state, receipt)
    if state.config.window_tokens is not None and held.window_from is None:
        raise ReceiptSpent(receipt.receipt_id)
    return held


@mutant("REFUSE-2")
@around(slots.free_tree)
def reset_waits_for_slots(free_tree: Original[None], state: State) -> None:
    """A reset is refused while slots are in use, though no receipt is open."""
    pool = state.pools[FULL, GPU]
    if pool.free_slots < pool.capacity:
        raise CacheBusy(pool.capacity - pool.free_slots)
    free_tree(state)


@mutant("REFUSE-1")
@around(insert.insert, cache)
def keys_of_three_pages_are_refused(
    usual: Original[Inserted],
    state: State,
    key: Key,
    start_pages: int,
    some: Slots,
    **more: object,
) -> Inserted:
    """An insert of three pages is refused without a reason."""
    if len(key) == 3:
        raise BadArgument("key", "has three pages")
    return usual(state, key, start_pages, some, **more)


@mutant("REFUSE-1", "D11 vllm#49829")
@instead(load.load_back, cache)
def loads_wait_for_all_copies(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
    """A load-back is refused while any copy is in flight, whatever it copies."""
    for transfer_id in state.transfers:
        raise TransferPending(transfer_id)
    return load.load_back(state, key, quota_pages)


@mutant("REFUSE-1")
@instead(match.match, cache)
def full_pool_finds_nothing(state: State, key: Key) -> Matched:
    """A match is refused when no slots are free, though it takes none."""
    if not state.pools[FULL, GPU].free_slots:
        raise OutOfSlots("full on GPU", 1, 0)
    return match.match(state, key)


@mutant("REFUSE-3")
@instead(load.load_back, cache)
def what_is_not_cached_needs_no_load(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
    """A load-back of a key that is not cached answers "nothing to load"."""
    stops = tree.walk(state, key)
    if tree.walked_pages(stops) < len(key) and not load._needed(state, stops, len(key)):
        return LoadedBack(LoadDecision.NOTHING_TO_LOAD)
    return load.load_back(state, key, quota_pages)


@mutant("REFUSE-3", "D13 lmc#4133")
@around(slots.free)
def strange_slots_are_freed_in_silence(free: Original[None], state: State, some: Slots) -> None:
    """A free of slots that nobody holds does nothing, and is not refused."""
    with suppress(SlotNotHeld):
        free(state, some)


@mutant("REFUSE-4", "D11 vllm#49829")
def idle_polls_answer_nothing(patch: Overrides) -> None:
    """A poll that settles nothing returns None, not an empty answer."""
    patch.setattr(cache, "Settled", lambda transfers: Settled(transfers) if transfers else None)


@mutant("REFUSE-5")
@around(slots.allocate)
def short_pool_is_misnamed(allocate: Original[Slots], state: State, counts: Counts) -> Slots:
    """A refused allocation says how many slots are free as asked for, and the reverse."""
    try:
        return allocate(state, counts)
    except OutOfSlots as short:
        raise OutOfSlots(short.pool, short.free_slots, short.asked_slots) from None


@mutant("REFUSE-5")
@around(insert._check_path)
def another_copy_is_named(
    check_path: Original[None], stops: list[tree.PathNode], start: int
) -> None:
    """An insert below a load in flight names a copy that does not exist."""
    try:
        check_path(stops, start)
    except TransferPending as pending:
        raise TransferPending(pending.transfer_id + 1000) from None
