"""Refusing: a call is refused for a reason that what is known bears out, and nothing comes of it.

What readers get wrong: a refusal that is wrong does no harm at once. It makes somebody evict, wait
or compute again, for nothing, and for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.blackbox.tree.match import pages_on_device, pages_present
from kvcanon.conformance.blackbox.tree.slots import COMPONENTS, HELD
from kvcanon.conformance.blackbox.tree.state import ObservedState
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
    doubt = _DOUBTS.get(type(error))
    truth = doubt(state, operation) if doubt is not None else None
    state.check(
        "REFUSE-2" if isinstance(error, ReceiptSpent | CacheBusy) else "REFUSE-1",
        truth is None,
        f"{type(operation).__name__} was refused ({error}), but {truth}",
        met=doubt is not None,
    )
    if isinstance(error, ReceiptSpent):
        # A receipt that was not open was not released.
        state.check("LOCK-10", True)
    state.check_free("ALLOC-6", f"{type(operation).__name__} was refused ({error})")


def _room(state: ObservedState, asked: Operation) -> str | None:
    if isinstance(asked, Allocate) and all(
        state.slots.free_count(column) >= asked.counts[component]
        and (column not in state.slots.blind or not asked.counts[component])
        for column, component in enumerate(COMPONENTS)
    ):
        return "every pool has as many free slots as were asked"
    return None


def _cached(state: ObservedState, asked: Operation) -> str | None:
    if isinstance(asked, Insert):
        relied, there = asked.start_pages, pages_on_device(state, asked.key)
    elif isinstance(asked, Lock | LoadBack):
        relied, there = len(asked.key), pages_present(state, asked.key)
    else:
        return None
    return f"the first {relied} pages are there" if there >= relied else None


def _open(state: ObservedState, asked: Operation) -> str | None:
    known = isinstance(asked, Unlock | UnlockWindow) and (
        asked.receipt.receipt_id in state.receipts
    )
    return "the receipt is open" if known else None


def _held(state: ObservedState, asked: Operation) -> str | None:
    if isinstance(asked, Write):
        held = state.slots.owners[COLUMN[asked.component]].get(asked.slot) is HELD
        return "a request holds the slot" if held else None
    if isinstance(asked, Free | Insert) and all(
        len(set(some)) == len(some)
        and all(state.slots.owners[column].get(slot) is HELD for slot in some)
        for column, component in enumerate(COMPONENTS)
        for some in (asked.slots[component],)
    ):
        return "requests hold every one of the slots"
    return None


def _fits(state: ObservedState, asked: Operation) -> str | None:
    if isinstance(asked, Write) and len(asked.data) == state.config.slot_bytes:
        return "the data is of a slot's size"
    return None


def _not_loading(state: ObservedState, asked: Operation) -> str | None:
    if not isinstance(asked, Insert):
        return None
    path = set(state.pages.path(asked.key))
    loading = any(
        transfer.direction is Direction.LOAD_BACK and not path.isdisjoint(transfer.path)
        for transfer in state.transfers.values()
    )
    return None if loading else "nothing of its key is being loaded"


def _idle(state: ObservedState, asked: Operation) -> str | None:
    if isinstance(asked, Reset) and not state.receipts and not state.transfers:
        return "nobody holds a receipt, and nothing is in flight"
    return None


_DOUBTS: dict[type[CacheError], Callable[[ObservedState, Operation], str | None]] = {
    BadArgument: _fits,
    OutOfSlots: _room,
    PrefixNotCached: _cached,
    ReceiptSpent: _open,
    SlotNotHeld: _held,
    TransferPending: _not_loading,
    CacheBusy: _idle,
}
"""What speaks against each refusal; what is wrong with a key or with counts is not judged."""
