"""Chapter 1. Refusals: the errors that a cache raises when it cannot do a call.

A `CacheError` is expected in normal operation: a pool is full, a receipt was already spent, a
prefix is no longer cached. Its fields carry what the caller needs to act on it.

**A refused call leaves the state exactly as it was**: no slot moved, no lock counted, no event
emitted, no recency changed. (An eviction that its engine breaks off may have evicted some.)
Everything else that goes wrong is a `SpecViolation`: a bug in a cache, in an adapter, or in this
specification.
"""

from __future__ import annotations

from attrs import frozen


class CacheError(Exception):
    """Base of every refusal; the state is unchanged when one is raised."""


@frozen
class BadArgument(CacheError):
    """An argument is wrong in every state of the cache."""

    argument: str
    """The name of the wrong argument."""
    problem: str
    """What is wrong with it and what would be right, as one clause."""

    def __str__(self) -> str:
        return f"{self.argument}: {self.problem}"


@frozen
class OutOfSlots(CacheError):
    """A pool has fewer free slots than requested; evict first, or request fewer."""

    pool: str
    """The pool that is short, as "full on GPU"."""
    asked_slots: int
    free_slots: int

    def __str__(self) -> str:
        return f"{self.pool}: {self.asked_slots} slots asked, {self.free_slots} free; evict first"


@frozen
class PrefixNotCached(CacheError):
    """The key, or the part that the call relies on, is not in the tree; match again."""

    asked_pages: int
    cached_pages: int

    def __str__(self) -> str:
        return (
            f"{self.asked_pages} pages of the key are needed in the cache and "
            f"{self.cached_pages} are there; match again"
        )


@frozen
class ReceiptSpent(CacheError):
    """The receipt was released before, or this cache never issued it."""

    receipt_id: int

    def __str__(self) -> str:
        return f"receipt {self.receipt_id} holds no lock here: released before, or another cache's"


@frozen
class SlotNotHeld(CacheError):
    """The caller does not own the slot: it was never allocated, or it was freed."""

    pool: str
    slot: int

    def __str__(self) -> str:
        return f"slot {self.slot} of {self.pool} is not held by a request"


@frozen
class TransferPending(CacheError):
    """A load-back of the path is in flight; call `poll` until it settles, then call again."""

    transfer_id: int

    def __str__(self) -> str:
        return f"transfer {self.transfer_id} still loads this path; poll, then call again"


@frozen
class CacheBusy(CacheError):
    """A reset was called while receipts are open; every transfer in flight has one."""

    open_receipts: int

    def __str__(self) -> str:
        return f"{self.open_receipts} receipts are open; unlock and flush, then reset"


class EngineRaised(CacheError):
    """The engine raised while the call waited for it: what was still to leave is where it was.

    The judge's engine raises this; another engine raises what it likes, and the cache lets it
    through. Of all refusals this alone may change the state: what had left before stays gone.
    """


class CacheUnusable(RuntimeError):
    """No call is possible before the caller does what the text says, as a reset.

    It is not a refusal that an engine meets in normal operation, and no bug either: memory ran out
    in the middle of a call, a thread that copies ended or could not start, or the process is a fork
    of the one that made the cache.
    """


class SpecViolation(AssertionError):
    """A law of this specification is broken: a bug, never an outcome to handle."""
