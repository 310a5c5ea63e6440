"""Checks of refusals: no known fact disproves the reason given, and no slot moved.

A wrong refusal does no harm at once, but it makes an engine evict, wait or recompute in vain.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.judge.from_outside.tree.pages import PageRecord, present_pages
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS, HELD
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.operations import (
    Allocate,
    Free,
    Insert,
    LoadBack,
    Lock,
    Operation,
    Reset,
    Unlock,
    UnlockWindow,
    Write,
)
from kvcanon.spec.transfer import Direction
from kvcanon.spec.views import COLUMN


def after_refusal(state: ObservedState, operation: Operation, error: CacheError) -> None:
    """Check a refusal against what the observed state proves."""
    counterproof = _COUNTERPROOFS.get(type(error))
    truth = counterproof(state, operation) if counterproof is not None else None
    state.check(
        "REFUSE-2" if isinstance(error, ReceiptSpent | CacheBusy) else "REFUSE-1",
        truth is None,
        f"{type(operation).__name__} was refused ({error}), but {truth}",
        met=counterproof is not None,
    )
    if isinstance(error, ReceiptSpent):
        # A receipt that was not open was not released.
        state.check("LOCK-10", True)
    state.check_free("ALLOC-6", f"{type(operation).__name__} was refused ({error})")


def _room(state: ObservedState, operation: Operation) -> str | None:
    if isinstance(operation, Allocate) and all(
        state.slots.has_room(column, operation.counts[component])
        for column, component in enumerate(COMPONENTS)
    ):
        return "every pool has as many free slots as were asked for"
    return None


def _cached(state: ObservedState, operation: Operation) -> str | None:
    if isinstance(operation, Insert):
        needed, has = operation.start_pages, PageRecord.surely_on_device
    elif isinstance(operation, Lock | LoadBack):
        needed, has = len(operation.key), PageRecord.surely_anywhere
    else:
        return None
    present = present_pages(state.pages.path(operation.key), has)
    return f"the first {needed} pages are there" if present >= needed else None


def _open(state: ObservedState, operation: Operation) -> str | None:
    if not isinstance(operation, Unlock | UnlockWindow):
        return None
    return None if state.open_receipt(operation.receipt) is None else "the receipt is open"


def _held(state: ObservedState, operation: Operation) -> str | None:
    if isinstance(operation, Write):
        held = state.slots.owners[COLUMN[operation.component]].get(operation.slot) is HELD
        return "a request holds the slot" if held else None
    if isinstance(operation, Free | Insert) and all(
        len(set(some)) == len(some)
        and all(state.slots.owners[column].get(slot) is HELD for slot in some)
        for column, component in enumerate(COMPONENTS)
        for some in (operation.slots[component],)
    ):
        return "requests hold every one of the slots"
    return None


def _fits(state: ObservedState, operation: Operation) -> str | None:
    if isinstance(operation, Write) and len(operation.data) == state.config.slot_bytes:
        return "the data has the size of a slot"
    return None


def _not_loading(state: ObservedState, operation: Operation) -> str | None:
    if not isinstance(operation, Insert):
        return None
    path = set(state.pages.path(operation.key))
    loading = any(
        transfer.direction is Direction.LOAD_BACK and not path.isdisjoint(transfer.path)
        for transfer in state.transfers.values()
    )
    return None if loading else "nothing of its key is being loaded"


def _idle(state: ObservedState, operation: Operation) -> str | None:
    # It may have begun copies, or the engine may still perform one.
    known = not state.profile.acts_unasked and not state.broken_off
    if isinstance(operation, Reset) and known and not state.receipts and not state.transfers:
        return "no receipt is open, and no copy is in flight"
    return None


_COUNTERPROOFS: dict[type[CacheError], Callable[[ObservedState, Operation], str | None]] = {
    BadArgument: _fits,
    OutOfSlots: _room,
    PrefixNotCached: _cached,
    ReceiptSpent: _open,
    SlotNotHeld: _held,
    TransferPending: _not_loading,
    CacheBusy: _idle,
}
"""What disproves each kind of refusal; a `BadArgument` for keys or counts is not judged."""
