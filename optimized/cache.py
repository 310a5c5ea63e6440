"""The fast cache with the API of `kvcanon.spec.cache.Cache`, for the judge and for tests.

In spec, keys are pages of Python numbers and slots are tuples. This class turns them into arrays
for the same `PrefixCache` that an engine uses.

It makes no decisions. It only checks what arrays cannot express: that a key has the cache's page
size, and that a receipt belongs to its key.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from kvcanon.optimized.codes import COMPONENTS, MEDIA
from kvcanon.optimized.layout import layout_for_slot_bytes
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.sealed_queue import SealedQueue
from kvcanon.optimized.snapshot import Shown, events_of, take_snapshot
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, ReceiptSpent, SlotNotHeld
from kvcanon.spec.events import Event
from kvcanon.spec.operations import (
    Evicted,
    HostInserted,
    HostPayload,
    Inserted,
    LoadDecision,
    LoadedBack,
    Matched,
    Ordered,
    Receipt,
    Settled,
    StorePolled,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderId, StoreQueue
from kvcanon.spec.transfer import Agree, Completion, TransferEngine
from kvcanon.spec.types import GPU, Component, Counts, Key, Medium, ReceiptId, Slot, Slots

Words = npt.NDArray[np.uint32]


class OptimizedCache:
    """The fast cache. See `kvcanon.spec.cache.Cache` for what each method does.

    `pools` are allocated here by default; others have pages of `slot_bytes`, too.
    """

    def __init__(
        self,
        config: CacheConfig,
        engine: TransferEngine | None = None,
        agree: Agree | None = None,
        pools: Pools | None = None,
        store: StoreQueue | None = None,
    ) -> None:
        if pools is None:
            layout = layout_for_slot_bytes(config.slot_bytes)
            pools = Pools(config, dict.fromkeys(config.components, layout))
        self._pools = pools
        self._cache = PrefixCache(
            config,
            self._pools,
            engine,
            agree=agree,
            store=None if store is None else SealedQueue(store, config),
        )
        self._tree = self._cache.tree
        self._receipts: dict[ReceiptId, Receipt] = {}
        self._shown = Shown()

    @property
    def config(self) -> CacheConfig:
        """The configuration."""
        return self._cache.config

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key."""
        found = self._cache.match(self._words(key), self._cache.namespace(key.namespace))
        return Matched(
            found.prefix_pages,
            found.device_pages,
            _slots(found.full, found.swa, found.mamba),
            found.pending,
            found.branch_pages if self.config.mamba else None,
        )

    def lock(self, key: Key) -> Receipt:
        """Hold all of a cached key."""
        number = self._cache.lock(self._words(key), self._cache.namespace(key.namespace))
        self._receipts[number] = Receipt(number, key)
        return self._receipts[number]

    def unlock(self, receipt: Receipt) -> None:
        """Release what a receipt still holds."""
        self._require_receipt(receipt)
        self._cache.unlock(receipt.receipt_id)
        del self._receipts[receipt.receipt_id]

    def unlock_window(self, receipt: Receipt) -> None:
        """Release the window data and the mamba state that a receipt holds."""
        self._require_receipt(receipt)
        self._cache.unlock_window(receipt.receipt_id)

    def allocate(self, counts: Counts) -> Slots:
        """Take free device slots."""
        return _slots(*self._cache.allocate(counts.full, counts.swa, counts.mamba))

    def free(self, slots: Slots) -> None:
        """Give allocated slots back."""
        self._cache.free(*_arrays(slots))

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
        """Hand over the data of a key from page `start_pages` on."""
        done = self._cache.insert(
            self._words(key),
            start_pages,
            *_arrays(slots),
            namespace=self._cache.namespace(key.namespace),
            counted_pages=counted_pages,
            priority=priority,
            state_pages=tuple(state_pages),
        )
        return Inserted(
            done.present_pages,
            Counts(*done.adopted),
            Counts(*done.freed),
            done.backups,
            done.backup_declined_pages,
        )

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""
        return Evicted(Counts(*self._cache.evict(counts.full, counts.swa, counts.mamba)))

    def evict_host(self, counts: Counts) -> Evicted:
        """Free host slots."""
        return Evicted(Counts(*self._cache.evict_host(counts.full, counts.swa, counts.mamba)))

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """Enqueue the load of all data that a cached key has only on the host."""
        done = self._cache.load_back(
            self._words(key), quota_pages, self._cache.namespace(key.namespace)
        )
        return LoadedBack(
            LoadDecision(done.decision),
            done.transfer_id,
            Counts(*done.loading),
            Counts(*done.evicted),
        )

    def insert_host(self, key: Key, start_pages: int, payload: HostPayload) -> HostInserted:
        """Place fetched data in the host tier."""
        words, number = self._words(key), self._cache.namespace(key.namespace)
        return self._cache.insert_host(words, start_pages, payload, number)

    def arrived(self) -> tuple[Completion, ...]:
        """The transfers that can settle."""
        return tuple(self._cache.arrived())

    def settle(self, completions: Sequence[Completion]) -> Settled:
        """Settle exactly these transfers."""
        return Settled(tuple(self._cache.settle(completions)))

    def poll(self) -> Settled:
        """Take acknowledgements."""
        return Settled(tuple(self._cache.poll()))

    def flush(self) -> Settled:
        """Wait for every transfer in flight and settle it."""
        return Settled(tuple(self._cache.flush()))

    def reset(self, keep_store: bool = False) -> None:
        """Forget everything in the tree, and let go of the store unless it is kept."""
        self._cache.reset(keep_store)

    def store(self, key: Key) -> Ordered:
        """Order the write of a key's host pages to the store."""
        return self._cache.store(self._words(key), self._cache.namespace(key.namespace))

    def prefetch(self, key: Key) -> Ordered:
        """Order the fetch of the pages of a key that the cache lacks."""
        return self._cache.prefetch(self._words(key), self._cache.namespace(key.namespace))

    def poll_store(self) -> StorePolled:
        """Take the progress of all orders to the store."""
        return StorePolled(self._cache.poll_store())

    def end_prefetch(self, order_id: OrderId) -> HostInserted:
        """Place what has arrived of a prefetch, and give the other slots back."""
        return self._cache.end_prefetch(order_id)

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call."""
        return events_of(self._cache, self._cache.take_events())

    def snapshot(self) -> Snapshot:
        """The whole state, as a value."""
        return take_snapshot(self._cache, self._shown)

    def free_slots(self, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The slots of a pool that are free, lowest first."""
        if self.config.capacity(component, medium) == 0:
            return ()
        return self._tree.pool(COMPONENTS.index(component), MEDIA.index(medium))[1]

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes behind a slot."""
        self._require_slot(component, medium, slot)
        return self._pools.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds."""
        if len(data) != self.config.slot_bytes:
            raise BadArgument("data", f"has {len(data)} bytes; a slot has {self.config.slot_bytes}")
        there = 0 <= slot < self.config.capacity(component, GPU)
        if not (there and self._tree.holds_slot(COMPONENTS.index(component), slot)):
            raise SlotNotHeld(f"{component} on GPU", slot)
        self._pools.write(component, slot, data)

    def check(self) -> None:
        """Audit the redundant state of the native core. Raises: SpecViolation."""
        self._tree.check()

    def _require_slot(self, component: Component, medium: Medium, slot: Slot) -> None:
        capacity = self.config.capacity(component, medium)
        if not 0 <= slot < capacity:
            raise BadArgument("slot", f"is {slot}; {component} on {medium} has {capacity} slots")

    def _require_receipt(self, receipt: Receipt) -> None:
        if self._receipts.get(receipt.receipt_id) != receipt:
            raise ReceiptSpent(receipt.receipt_id)

    def _words(self, key: Key) -> Words:
        """The key as an array of words. Raises: BadArgument for another page size or unit."""
        config = self.config
        wrong = set(map(len, key.pages)) - {config.page_size}
        if wrong:
            raise BadArgument(
                "key", f"has pages of {min(wrong)} units; this cache has {config.page_size}"
            )
        words = _words_of(chain.from_iterable(key.pages), bigram=config.bigram)
        if words is None:
            made_of = "bigrams" if config.bigram else "tokens"
            raise BadArgument("key", f"is not made of {made_of}, as this cache's keys are")
        return words


def _words_of(units: Iterable[Any], *, bigram: bool) -> Words | None:
    """Units as words; None where some are not tokens, or not pairs of them."""
    try:
        tokens = (
            [token for first, second in units for token in (first, second)] if bigram else units
        )
        return np.frombuffer(array("I", tokens), dtype=np.uint32)
    except (TypeError, ValueError, OverflowError):
        return None


def _slots(full: _Slots, swa: _Slots, mamba: _Slots) -> Slots:
    return Slots(tuple(full.tolist()), tuple(swa.tolist()), tuple(mamba.tolist()))


def _arrays(slots: Slots) -> tuple[_Wide, _Wide, _Wide]:
    # Any 64-bit number goes to the native core, which refuses slots that are not held.
    full, swa, mamba = (_array(component, some) for component, some in slots)
    return full, swa, mamba


def _array(component: Component, slots: tuple[Slot, ...]) -> _Wide:
    try:
        return np.frombuffer(array("q", slots), dtype=np.int64)
    except OverflowError:
        raise SlotNotHeld(f"{component} on GPU", max(slots, key=abs)) from None
    except TypeError:
        raise BadArgument(f"slots.{component}", "has a slot that is no whole number") from None


_Slots = npt.NDArray[np.int32]
_Wide = npt.NDArray[np.int64]
