"""Refusing: a call is refused for a reason that what is known bears out.

What readers get wrong: a refusal that is wrong does no harm at once. It makes somebody evict, wait
or compute again, for nothing, and for ever.
"""

from __future__ import annotations

from kvcanon.conformance.acceptance.books import Books
from kvcanon.conformance.acceptance.slots import COMPONENTS, HELD
from kvcanon.conformance.acceptance.using import pages_on_device, pages_present
from kvcanon.spec.errors import (
    CacheBusy,
    CacheError,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
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
)


def after_refusal(books: Books, operation: Operation, error: CacheError) -> None:
    """Whether the books know better."""
    truth = _truth(books, operation, error)
    books.check(
        "REFUSE-1",
        truth is None,
        f"{type(operation).__name__} was refused ({error}), but {truth}",
    )


def _truth(books: Books, operation: Operation, error: CacheError) -> str | None:
    """What speaks against a refusal; None where nothing does."""
    match operation, error:
        case Allocate(), OutOfSlots():
            counts = [operation.counts[component] for component in COMPONENTS]
            room = all(books.slots.free_count(column) >= counts[column] for column in (0, 1, 2))
            return "every pool has as many free slots as were asked" if room else None
        case ((Lock() | LoadBack()), PrefixNotCached()):
            there = pages_present(books, operation.key)
            return f"all {there} pages are there" if there == len(operation.key) else None
        case ((Unlock() | UnlockWindow()), ReceiptSpent()):
            known = operation.receipt.receipt_id in books.receipts
            return "the receipt is open" if known else None
        case ((Free() | Insert()), SlotNotHeld()):
            held = all(
                books.slots.owners[column].get(slot) is HELD
                for column, component in enumerate(COMPONENTS)
                for slot in operation.slots[component]
            )
            return "requests hold every one of the slots" if held else None
        case Insert(), PrefixNotCached():
            there = pages_on_device(books, operation.key)
            return f"{there} pages are there" if there >= operation.start_pages else None
        case Reset(), CacheBusy():
            free = not books.receipts and not books.transfers
            return "nobody holds a receipt, and nothing is in flight" if free else None
        case _:
            return None
