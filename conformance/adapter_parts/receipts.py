"""Receipts: the number that the judge has for a lock, and the handle that the cache has for it.

A cache locks a node; the judge gets a receipt. Each is released once: the second unlock is refused
before the cache is called. Whether the cache counts its locks right is for the laws to find.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from attrs import Factory, define, field

from kvcanon.spec.errors import BadArgument, CacheBusy, ReceiptSpent
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import Key, ReceiptId

Handle = TypeVar("Handle")


@define(eq=False)
class Receipts(Generic[Handle]):
    """The open receipts of a cache, each with the cache's handle of what is locked."""

    _open: dict[ReceiptId, tuple[Receipt, Handle]] = Factory(dict)
    _issued: int = field(default=0, init=False)

    def issue(self, key: Key, handle: Handle) -> Receipt:
        """A new receipt for a lock that the cache has taken."""
        self._issued += 1
        receipt = Receipt(self._issued, key)
        self._open[receipt.receipt_id] = receipt, handle
        return receipt

    def handle_of(self, receipt: Receipt) -> Handle:
        """The handle of an open receipt. Raises: ReceiptSpent."""
        found = self._open.get(receipt.receipt_id)
        if found is None or found[0] != receipt:
            raise ReceiptSpent(receipt.receipt_id)
        return found[1]

    def spend(self, receipt: Receipt) -> Handle:
        """Close a receipt; returns the handle to unlock. Raises: ReceiptSpent."""
        handle = self.handle_of(receipt)
        del self._open[receipt.receipt_id]
        return handle

    def covering(self, key: Key) -> Handle:
        """The handle of an open lock that covers a whole key, such as the inserting request's.

        What is locked is cached, so no call of the cache is needed to know it.

        Raises: BadArgument: no lock covers the key. An engine inserts behind a locked prefix only.
        """
        for receipt, handle in self._open.values():
            if (
                receipt.key.namespace == key.namespace
                and receipt.key.pages[: len(key)] == key.pages
            ):
                return handle
        raise BadArgument("start_pages", f"is {len(key)}, but no lock covers these pages")

    def check_none_open(self, copies_in_flight: int = 0) -> None:
        """Check that no receipt is open, as before a reset. Raises: CacheBusy.

        A copy in flight has a receipt, too; say how many there are.
        """
        if self._open or copies_in_flight:
            raise CacheBusy(len(self._open) + copies_in_flight)
