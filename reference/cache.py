"""The API: the plain cache as a class with the methods of the protocol.

Each method checks its arguments, so that a refused call changes nothing, and calls the function of
its name. The rules of the cache are in those functions, and their definitions in `spec.oracle`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from kvcanon.reference import slots as slot_owners
from kvcanon.reference import tier
from kvcanon.reference.engine import InlineEngine
from kvcanon.reference.events import emit_cleared, forget_events, pending_events
from kvcanon.reference.evict import evict
from kvcanon.reference.host import evict_host
from kvcanon.reference.host_insert import insert_host
from kvcanon.reference.insert import insert
from kvcanon.reference.load import load_back
from kvcanon.reference.lock import lock, unlock, unlock_window
from kvcanon.reference.match import match
from kvcanon.reference.snapshot import take_snapshot
from kvcanon.reference.state import State, Tier
from kvcanon.reference.transfer import arrived, flush, settle, settle_these
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy, SlotNotHeld
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
from kvcanon.spec.tier import OrderId, StoreQueue
from kvcanon.spec.transfer import Agree, Completion, TransferEngine
from kvcanon.spec.types import GPU, Component, Counts, Key, Medium, Slot, Slots


class ReferenceCache:
    """The plain cache. See `kvcanon.spec.cache.Cache` for what each method does."""

    def __init__(
        self,
        config: CacheConfig,
        engine: TransferEngine | None = None,
        agree: Agree | None = None,
        store: StoreQueue | None = None,
    ) -> None:
        if store is not None:
            _check_store(config)
        self._state = State(
            config,
            engine if engine is not None else InlineEngine(),
            agree,
            tier=None if store is None else Tier(store),
        )
        emit_cleared(self._state)

    @property
    def config(self) -> CacheConfig:
        """The configuration of the cache."""
        return self._state.config

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key."""
        self._check_key(key)
        return match(self._state, key)

    def lock(self, key: Key) -> Receipt:
        """Protect a cached key from eviction."""
        self._check_key(key)
        return lock(self._state, key)

    def unlock(self, receipt: Receipt) -> None:
        """Release all that a receipt still holds."""
        unlock(self._state, receipt)

    def unlock_window(self, receipt: Receipt) -> None:
        """Release the window data and the mamba state that a receipt holds."""
        unlock_window(self._state, receipt)

    def allocate(self, counts: Counts) -> Slots:
        """Take free device slots."""
        return slot_owners.allocate(self._state, counts)

    def free(self, slots: Slots) -> None:
        """Free allocated slots."""
        slot_owners.free(self._state, slots)

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
        """Insert the data of a key from page `start_pages` on."""
        self._check_key(key)
        return insert(
            self._state,
            key,
            start_pages,
            slots,
            counted_pages=counted_pages,
            priority=priority,
            state_pages=tuple(state_pages),
        )

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""
        self._check_counts(counts)
        return Evicted(evict(self._state, counts))

    def evict_host(self, counts: Counts) -> Evicted:
        """Free host slots."""
        self._check_counts(counts)
        return Evicted(evict_host(self._state, counts))

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """Enqueue the load of the data that a cached key has on the host only."""
        self._check_key(key)
        if quota_pages is not None and quota_pages < 0:
            raise BadArgument("quota_pages", f"is {quota_pages}; it must be at least 0")
        return load_back(self._state, key, quota_pages)

    def insert_host(self, key: Key, start_pages: int, payload: HostPayload) -> HostInserted:
        """Insert fetched data into the host tier."""
        self._check_key(key)
        return insert_host(self._state, key, start_pages, payload)

    def arrived(self) -> tuple[Completion, ...]:
        """The transfers that can settle."""
        return arrived(self._state)

    def settle(self, completions: Sequence[Completion]) -> Settled:
        """Settle exactly these transfers."""
        return Settled(settle_these(self._state, completions))

    def poll(self) -> Settled:
        """Settle the transfers that have arrived."""
        return Settled(settle(self._state))

    def flush(self) -> Settled:
        """Wait for every transfer in flight, and settle it."""
        return Settled(flush(self._state))

    def reset(self, keep_store: bool = False) -> None:
        """Clear the tree, and let go of the store, if there is one, unless it is kept."""
        if self._state.holds:
            raise CacheBusy(len(self._state.holds))
        slot_owners.free_tree(self._state)
        self._state.forget()
        tier.start_anew(self._state, keep_store=keep_store)
        emit_cleared(self._state)

    def store(self, key: Key) -> Ordered:
        """Order the write of a key's host pages to the store."""
        self._check_key(key)
        return tier.store(self._state, key)

    def prefetch(self, key: Key) -> Ordered:
        """Order the fetch of the pages of a key that the cache lacks."""
        self._check_key(key)
        return tier.prefetch(self._state, key)

    def poll_store(self) -> StorePolled:
        """Take the progress of all orders to the store."""
        return StorePolled(tier.poll_store(self._state))

    def end_prefetch(self, order_id: OrderId) -> HostInserted:
        """Place what has arrived of a prefetch, and give the other slots back."""
        return tier.end_prefetch(self._state, order_id)

    def take_events(self) -> tuple[Event, ...]:
        """The events that were emitted since the last call."""
        events = pending_events(self._state)
        forget_events(self._state)
        return events

    def snapshot(self) -> Snapshot:
        """The whole state, as a value."""
        return take_snapshot(self._state)

    def free_slots(self, component: Component, medium: Medium) -> list[Slot]:
        """The free slots of a pool: those that were freed, then those that were never used."""
        pool = self._state.pools.get((component, medium))
        return [] if pool is None else [*pool.returned, *range(pool.untouched, pool.capacity)]

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot; zeros if none were written."""
        capacity = self.config.capacity(component, medium)
        if not 0 <= slot < capacity:
            raise BadArgument("slot", f"is {slot}; {component} on {medium} has {capacity} slots")
        payloads = self._state.pools[component, medium].payloads
        return payloads.get(slot, bytes(self.config.slot_bytes))

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds."""
        if len(data) != self.config.slot_bytes:
            raise BadArgument("data", f"has {len(data)} bytes; a slot has {self.config.slot_bytes}")
        pool = self._state.pools.get((component, GPU))
        if pool is None or slot not in pool.held:
            raise SlotNotHeld(f"{component} on GPU", slot)
        pool.payloads[slot] = bytes(data)

    def _check_key(self, key: Key) -> None:
        """Refuse a key whose pages or units are not those of this cache. Raises: BadArgument."""
        config = self.config
        wrong = set(map(len, key.pages)) - {config.page_size}
        if wrong:
            raise BadArgument(
                "key", f"has pages of {min(wrong)} units; this cache has {config.page_size}"
            )
        units = key.pages[0][:1] if key.checked and key.pages else chain.from_iterable(key.pages)
        if not _are_units(units, bigram=config.bigram):
            made_of = "bigrams" if config.bigram else "tokens"
            raise BadArgument("key", f"is not made of {made_of}, as this cache's keys are")

    def _check_counts(self, counts: Counts) -> None:
        for component in Component:
            if counts[component] < 0:
                raise BadArgument(
                    str(component), f"{counts[component]} slots asked; ask for 0 or more"
                )


def _check_store(config: CacheConfig) -> None:
    """Refuse a store below a cache that has none of what a store keeps. Raises: BadArgument."""
    if not config.host_tier:
        raise BadArgument("store", "needs a host tier above it; choose a write policy")
    if len(config.components) > 1:
        raise BadArgument("store", "keeps full data alone; leave it out, or windows and states")


def _are_units(units: Iterable[Any], *, bigram: bool) -> bool:
    """Whether all units are token ids, or pairs of token ids."""
    try:
        tokens = (
            [token for first, second in units for token in (first, second)] if bigram else units
        )
        array("I", tokens)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
