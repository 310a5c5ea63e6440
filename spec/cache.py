"""Chapter 11. The cache: the protocol that both of our caches implement.

No call waits for a copy, except `flush`, and `evict` and `load_back` under write_back, where data
must reach the host before its device slots are free.

Ranks of one model (tensor parallelism) each have a cache, and get the same calls. What differs
between them is when copies arrive. A cache that is made with `agree` settles what has arrived on
every rank, wherever it settles: `poll` and `flush` call `agree` once if copies are in flight,
`evict` and `load_back` under write_back once each time that they wait. All other calls are local.
An engine that gathers arrivals itself calls `arrived` and `settle` instead of `poll`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.operations import (
    Evicted,
    HostInserted,
    HostPayload,
    Inserted,
    LoadedBack,
    Matched,
    Ordered,
    Receipt,
    Settled,
    StorePolled,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderId
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import Component, Counts, Key, Medium, Slot, Slots


class Cache(Protocol):
    """A prefix KV cache. Every method may raise `CacheError`; the state is then unchanged."""

    @property
    def config(self) -> CacheConfig:
        """The configuration of the cache."""

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key.

        Effects: recency of the usable prefix, and cuts. Nothing else.
        """

    def lock(self, key: Key) -> Receipt:
        """Protect `key` from eviction: full data to the root, its window, its end's mamba state.

        Effects: lock refs, and cuts. Raises: PrefixNotCached.
        """

    def unlock(self, receipt: Receipt) -> None:
        """Release all that the receipt still holds. Raises: ReceiptSpent."""

    def unlock_window(self, receipt: Receipt) -> None:
        """Release the window data and the mamba state that the receipt holds.

        A second call for the same receipt has no effect.

        Raises: ReceiptSpent.
        """

    def allocate(self, counts: Counts) -> Slots:
        """Take free device slots. Never evicts.

        The swa slots are paired with the last `counts.swa` full slots; the mapping from full to
        window slots has each pair until either is freed. Raises: OutOfSlots, BadArgument.
        """

    def free(self, slots: Slots) -> None:
        """Free allocated slots. Raises: SlotNotHeld, BadArgument."""

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        """Insert the data of `key` from page `start_pages` on; the cache then owns the slots.

        The mamba states are at the ends of `state_pages` pages, or the one at the end of the key.

        Effects: ownership of every slot; nodes; recency; hits, and the backups that hits cause.
        Raises: BadArgument, SlotNotHeld, PrefixNotCached, TransferPending.
        """

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots: evict leaves for full slots, least recently used data for the others.

        `counts` is how many more slots to free, however many are free already.
        Under write_back victims whose copy fails leave all the same. If the engine raises, so does
        the call, and the victims that it was to copy stay.

        Raises: BadArgument.
        """

    def evict_host(self, counts: Counts) -> Evicted:
        """Free host slots, as `evict` does on the device. Raises: BadArgument."""

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """Enqueue the load of the data that `key` has on the host only.

        Raises: PrefixNotCached, BadArgument.
        """

    def insert_host(self, key: Key, start_pages: int, payload: HostPayload) -> HostInserted:
        """Insert fetched data into the host tier: the last step of a prefetch.

        Raises: BadArgument, PrefixNotCached.
        """

    def arrived(self) -> tuple[Completion, ...]:
        """The transfers that `settle` can settle: of each direction the ended ones, in order.

        A transfer that ended before an earlier one of its direction waits for that one.

        Effects: none.
        """

    def settle(self, completions: Sequence[Completion]) -> Settled:
        """Settle exactly these transfers, with these outcomes; the order does not matter.

        One that succeeded here may be settled as failed, because it failed on another rank.

        Raises: BadArgument: one is not among `arrived`, is named twice or before an earlier one of
            its direction, or is named as done and failed here.
        """

    def poll(self) -> Settled:
        """Settle the transfers that have arrived, each after the transfers that it builds on.

        It is `settle(arrived())`, or with `agree` what has arrived on all ranks.
        """

    def flush(self) -> Settled:
        """Wait for every transfer in flight and settle it."""

    def reset(self) -> None:
        """Clear the tree. Requests keep the slots that they hold. Raises: CacheBusy.

        For new weights, first end every request: what it computed with the old ones must not be
        inserted, and no call says when a held slot was written.
        """

    def take_events(self) -> tuple[Event, ...]:
        """The events that were emitted since the last call."""

    def snapshot(self) -> Snapshot:
        """The whole state, as a value. Effects: none."""

    def free_slots(self, component: Component, medium: Medium) -> Collection[Slot]:
        """The slots of a pool that are free, each once, in any order. Effects: none."""

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot. Effects: none. Raises: BadArgument."""

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds.

        Raises: SlotNotHeld, BadArgument.
        """


class StoredCache(Cache, Protocol):
    """A cache with a store below its host tier (chapter 8). It has full data alone.

    What waits for a prefetch, and how long, is the engine's choice, which has the clock:

    - *best effort*: `end_prefetch` when the request's turn comes;
    - *wait complete*: `end_prefetch` once `poll_store` has said that the prefetch ended;
    - *timeout*: `end_prefetch` at the one or the other, whichever comes first.

    All ranks get the same calls, and what counts has arrived on all of them.
    """

    def store(self, key: Key) -> Ordered:
        """Order the write of the leading host pages of a key that the store is not known to have.

        It begins after the pages that are stored already, and not at a page that an open order
        writes. What was written counts from the `poll_store` on that says so. Effects: the order.
        Raises: BadArgument.
        """

    def prefetch(self, key: Key) -> Ordered:
        """Order the fetch of the pages of a key that the cache lacks, as many as have room.

        Where host copies need those above them, it lacks pages that are on the device alone, too.
        Never evicts, and holds no page before them: lock the beginning that must stay. Effects: the
        order, which holds a free host slot for each page. Raises: BadArgument.
        """

    def poll_store(self) -> StorePolled:
        """Take the progress of all open orders: what was written or fetched on every rank.

        Effects: the pages that are known to be in the store, and host slots of prefetches that were
        given up and have ended. With `agree` it calls that once if an order is open.
        """

    def end_prefetch(self, order_id: OrderId) -> HostInserted:
        """Place the pages that have arrived as `insert_host` does, and give the other slots back.

        The slots of a prefetch that has not ended come free in the `poll_store` that says that it
        has. Raises: BadArgument.
        """

    def reset(self, keep_store: bool = False) -> None:
        """Clear the tree, as every cache does, and let go of the store: its pages may be wrong now.

        With `keep_store` the weights are the same, and it goes on with the store. In both cases all
        open orders are given up, and nothing is known to be in the store.

        Raises: CacheBusy.
        """
