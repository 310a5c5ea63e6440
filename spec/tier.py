"""Chapter 8. The tier below the host: how a cache writes pages to a store and fetches them.

A store (chapter 20) keeps pages of full data by name, on a disk or on another machine. It outlives
the cache, evicts on its own, and may be wrong. So a cache never counts on it: a match answers for
the device and the host alone, and what is in the store comes to the host by a *prefetch*, before
the match that needs it.

The cache gives *orders* to the queue of a store, as it gives copies to an engine, and takes their
progress with `poll_store`. An order is about consecutive pages of one key. It goes from the first
to the last and ends at the first page that cannot be written or fetched: what counts is the leading
run. A page in the store is *sealed*: a fetched page that does not prove itself is a miss.

What readers get wrong: `Snapshot.store.stored` is what the cache has announced to routers, not what
the store has. A store may have lost a page, and may have pages of an earlier process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol, TypeAlias

from attrs import Factory, frozen

from kvcanon.spec.events import BlockStored
from kvcanon.spec.types import Key, Medium, Slot

OrderId: TypeAlias = int

SEAL_BYTES = 16
"""The length of the proof in front of the bytes of a sealed page."""


def seal(page_hash: bytes, data: bytes) -> bytes:
    """The record of a page in a store: a digest of its hash and its bytes, then the bytes."""
    return _proof(page_hash, data) + data


def unseal(page_hash: bytes, record: bytes, slot_bytes: int) -> bytes | None:
    """The bytes of a page; None if the record is not that of this page, whole."""
    proof, data = record[:SEAL_BYTES], record[SEAL_BYTES:]
    if len(data) != slot_bytes or proof != _proof(page_hash, data):
        return None
    return data


def _proof(page_hash: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, key=page_hash, digest_size=SEAL_BYTES).digest()


class OrderKind(StrEnum):
    """What an order does with its pages."""

    WRITE = "write"
    """Host to store."""
    FETCH = "fetch"
    """Store to host."""


@frozen(eq=False)
class StoreOrder:
    """An order to the queue of a store: to write or to fetch the last pages of a key."""

    order_id: OrderId
    kind: OrderKind
    key: Key
    start_pages: int
    """Pages of the key before the first of the order."""
    record: Callable[[int], bytes] | None = None
    """Of a write: the record of a page of the order, counted from 0."""
    accept: Callable[[int, bytes], bool] | None = None
    """Of a fetch: takes the record of a page, likewise. False if it does not prove to be that page;
    the order then ends before it."""


@frozen
class OrderProgress:
    """The progress of an order."""

    order_id: OrderId
    pages: int
    """Its leading pages that were written, or fetched and proved."""
    ended: bool
    """Whether it does no more: no page follows, and no slot that comes free then is written to."""


class StoreQueue(Protocol):
    """Carries out orders on a store, each page by page. It never raises and never waits."""

    @property
    def medium(self) -> Medium:
        """DISK, or EXTERNAL if the store is on another machine."""

    def submit(self, order: StoreOrder) -> None:
        """Accept an order; return without waiting for it."""

    def stop(self, order_id: OrderId) -> None:
        """Ask an order to end early. It has not ended before `poll` says so."""

    def poll(self) -> tuple[OrderProgress, ...]:
        """The progress of each order that went on since the last poll."""


@frozen
class OrderState:
    """An order that is open: a write in progress, or a prefetch that has not been given up."""

    order_id: OrderId
    kind: OrderKind
    key: Key
    start_pages: int
    slots: tuple[Slot, ...] = ()
    """Of a prefetch: the host slots that it has reserved, one for each page; `pools` has them as
    held."""
    pages: int = 0
    """Its leading pages that were done at the last `poll_store`, on every rank."""
    ended: bool = False
    """Whether it had ended then, on every rank."""
    cancelled: bool = False
    """Whether nobody waits for it any more; its slots come free once it has ended."""


@frozen
class StoreState:
    """What a cache knows of the store below its host tier."""

    medium: Medium
    is_open: bool = True
    """Whether it may still be written to and fetched from; a reset for new weights lets go of it.
    """
    stored: Mapping[bytes, BlockStored] = Factory(dict)
    """The pages that it has announced as being in the store, by hash, with the event."""
    orders: tuple[OrderState, ...] = ()
    """The open orders, in the order in which they were given."""


@frozen(eq=False)
class StoreCalls:
    """What passed between a cache and the queue of its store."""

    submitted: tuple[StoreOrder, ...] = ()
    """The orders that the cache gave in the operation."""
    stopped: tuple[OrderId, ...] = ()
    """The orders that it asked to end."""
    progress: Mapping[OrderId, OrderProgress] = Factory(dict)
    """How far each order was when the operation began, on every rank."""
    written: tuple[tuple[bytes, bytes], ...] = ()
    """The pages that were put into the store since the operation before, by hash, with the record.
    """
    right: Mapping[bytes, tuple[bytes, ...]] = Factory(dict)
    """The bytes that were written for pages, by hash, as far as they are known."""
    refused: tuple[tuple[OrderId, int], ...] = ()
    """The pages of fetches that the cache did not accept since the operation before, counted from 0
    in their order, though the record was the one that it wrote itself."""
