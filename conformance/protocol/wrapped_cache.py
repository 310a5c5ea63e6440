"""The wrapped cache: passes each operation to another cache, with something done around it.

`arrived`, `snapshot`, `free_slots`, `read` and `write` pass straight through: the judge calls them
to look, and a model's kernels write bytes without the cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import ParamSpec, TypeVar, cast

from kvcanon.spec.cache import Cache, StoredCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.operations import (
    Allocate,
    EndPrefetch,
    Evict,
    Evicted,
    EvictHost,
    Flush,
    Free,
    HostInserted,
    HostPayload,
    Insert,
    Inserted,
    InsertHost,
    LoadBack,
    LoadedBack,
    Lock,
    Match,
    Matched,
    Operation,
    Ordered,
    Outcome,
    Poll,
    PollStore,
    Prefetch,
    Receipt,
    Reset,
    Settle,
    Settled,
    Store,
    StorePolled,
    TakeEvents,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderId
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import Component, Counts, Key, Medium, Slot, Slots

Answer = TypeVar("Answer", bound=Outcome | tuple[Event, ...] | None)
Arguments = ParamSpec("Arguments")


class WrappedCache(ABC):
    """A cache around another; a subclass defines in `_around` what is done around operations."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    @abstractmethod
    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """Make the call of the operation and return its answer."""

    @property
    def config(self) -> CacheConfig:
        """The configuration of the cache."""
        return self._cache.config

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key."""
        return self._around(Match(key), self._cache.match, key)

    def lock(self, key: Key) -> Receipt:
        """Lock all of a key."""
        return self._around(Lock(key), self._cache.lock, key)

    def unlock(self, receipt: Receipt) -> None:
        """Release what a receipt still holds."""
        self._around(Unlock(receipt), self._cache.unlock, receipt)

    def unlock_window(self, receipt: Receipt) -> None:
        """Release the window data and the mamba state that a receipt holds."""
        self._around(UnlockWindow(receipt), self._cache.unlock_window, receipt)

    def allocate(self, counts: Counts) -> Slots:
        """Allocate free device slots."""
        return self._around(Allocate(counts), self._cache.allocate, counts)

    def free(self, slots: Slots) -> None:
        """Give allocated slots back."""
        self._around(Free(slots), self._cache.free, slots)

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
        """Insert the data of a key; `state_pages` go to a cache only where there are some."""
        operation = Insert(key, start_pages, slots, counted_pages, priority, tuple(state_pages))
        if not operation.state_pages:
            return self._around(
                operation,
                self._cache.insert,
                key,
                start_pages,
                slots,
                counted_pages=counted_pages,
                priority=priority,
            )
        return self._around(
            operation,
            self._cache.insert,
            key,
            start_pages,
            slots,
            counted_pages=counted_pages,
            priority=priority,
            state_pages=operation.state_pages,
        )

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""
        return self._around(Evict(counts), self._cache.evict, counts)

    def evict_host(self, counts: Counts) -> Evicted:
        """Free host slots."""
        return self._around(EvictHost(counts), self._cache.evict_host, counts)

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """Enqueue the copy of what a key has on the host only."""
        return self._around(LoadBack(key, quota_pages), self._cache.load_back, key, quota_pages)

    def insert_host(self, key: Key, start_pages: int, payload: HostPayload) -> HostInserted:
        """Insert fetched data into the host tier."""
        operation = InsertHost(key, start_pages, payload)
        return self._around(operation, self._cache.insert_host, key, start_pages, payload)

    def arrived(self) -> tuple[Completion, ...]:
        """Return the transfers that can settle."""
        return self._cache.arrived()

    def settle(self, completions: Sequence[Completion]) -> Settled:
        """Settle exactly these transfers."""
        return self._around(Settle(tuple(completions)), self._cache.settle, completions)

    def poll(self) -> Settled:
        """Settle the transfers that are acknowledged."""
        return self._around(Poll(), self._cache.poll)

    def flush(self) -> Settled:
        """Wait for every transfer in flight and settle it."""
        return self._around(Flush(), self._cache.flush)

    def reset(self, keep_store: bool = False) -> None:
        """Forget everything in the tree; `keep_store` goes to a cache only where it is given."""
        if keep_store:
            self._around(Reset(keep_store), self._stored.reset, keep_store)
        else:
            self._around(Reset(), self._cache.reset)

    @property
    def _stored(self) -> StoredCache:
        """The cache, of which the caller knows that it has a store."""
        return cast("StoredCache", self._cache)

    def store(self, key: Key) -> Ordered:
        """Order the write of a key's host pages to the store."""
        return self._around(Store(key), self._stored.store, key)

    def prefetch(self, key: Key) -> Ordered:
        """Order the fetch of the pages of a key that the cache lacks."""
        return self._around(Prefetch(key), self._stored.prefetch, key)

    def poll_store(self) -> StorePolled:
        """Take the progress of all orders to the store."""
        return self._around(PollStore(), self._stored.poll_store)

    def end_prefetch(self, order_id: OrderId) -> HostInserted:
        """Place what has arrived of a prefetch."""
        return self._around(EndPrefetch(order_id), self._stored.end_prefetch, order_id)

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        return self._around(TakeEvents(), self._cache.take_events)

    def snapshot(self) -> Snapshot:
        """Return the whole state, as a value."""
        return self._cache.snapshot()

    def free_slots(self, component: Component, medium: Medium) -> Collection[Slot]:
        """Return the free slots of a pool."""
        return self._cache.free_slots(component, medium)

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes of a slot."""
        return self._cache.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot that a request holds."""
        self._cache.write(component, slot, data)
