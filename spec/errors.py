"""Chapter 1. Refusals: what a cache says when it cannot do what was asked.

A `CacheError` is an outcome expected in normal operation: a pool is full, a receipt was already
spent, a prefix is not there any more. Its fields carry what the caller needs to act on it.

What readers get wrong: a refusal is not a failure half way. **A refused call leaves the state
exactly as it was**: no slot moved, no lock counted, no event sent, no recency changed. Anything
else that goes wrong is a `SpecViolation`: a bug in a cache, in an adapter, or in this book.
"""

from __future__ import annotations

from attrs import frozen


class CacheError(Exception):
    """Base of every refusal; the state is unchanged when one is raised."""


@frozen
class BadArgument(CacheError):
    """An argument that no state of the cache could make right."""

    argument: str
    """Name of the argument at fault."""
    problem: str
    """What is wrong with it and what would be right, as one clause."""

    def __str__(self) -> str:
        return f"{self.argument}: {self.problem}"


@frozen
class OutOfSlots(CacheError):
    """A pool has fewer free slots than were asked for; evict first, or ask for fewer."""

    pool: str
    """The pool that is short, as "full on GPU"."""
    asked_slots: int
    free_slots: int

    def __str__(self) -> str:
        return f"{self.pool}: {self.asked_slots} slots asked, {self.free_slots} free; evict first"


@frozen
class PrefixNotCached(CacheError):
    """The key, or the part of it that the call relies on, is not in the tree; match again."""

    asked_pages: int
    cached_pages: int

    def __str__(self) -> str:
        return (
            f"{self.asked_pages} pages of the key are needed in the cache and "
            f"{self.cached_pages} are there; match again"
        )


@frozen
class ReceiptSpent(CacheError):
    """The receipt was released before, or was never given out by this cache."""

    receipt_id: int

    def __str__(self) -> str:
        return f"receipt {self.receipt_id} holds no lock here: released before, or another cache's"


@frozen
class SlotNotHeld(CacheError):
    """A slot was handed over that the caller does not own: never allocated, or given back."""

    pool: str
    slot: int

    def __str__(self) -> str:
        return f"slot {self.slot} of {self.pool} is not held by a request"


@frozen
class TransferPending(CacheError):
    """The path is still being loaded back; take the acknowledgement (`poll`), then call again."""

    transfer_id: int

    def __str__(self) -> str:
        return f"transfer {self.transfer_id} still loads this path; poll, then call again"


@frozen
class CacheBusy(CacheError):
    """A reset was asked while receipts are open; a transfer in flight has one."""

    open_receipts: int

    def __str__(self) -> str:
        return f"{self.open_receipts} receipts are open; unlock and flush, then reset"


class SpecViolation(AssertionError):
    """A law of this book does not hold: a bug, never an outcome to handle."""
