"""Chapter 10. The cache: the protocol that both of our caches implement.

What readers get wrong: none of these calls waits for a copy, except `flush`, and `evict` under
write_back, where data must reach the host before its room can be used.
"""

from __future__ import annotations

from collections.abc import Collection
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
    Receipt,
    Settled,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Component, Counts, Key, Medium, Slot, Slots


class Cache(Protocol):
    """A prefix KV cache. Every method may raise `CacheError`; the state is then unchanged."""

    @property
    def config(self) -> CacheConfig:
        """What the cache was asked to be."""

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key.

        Effects: recency of the usable prefix, and cuts. Nothing else.
        """

    def lock(self, key: Key) -> Receipt:
        """Hold all of `key`: full data to the root, window data within the window, the end's state.

        Effects: lock refs, and cuts. Raises: PrefixNotCached.
        """

    def unlock(self, receipt: Receipt) -> None:
        """Release what the receipt still holds. Raises: ReceiptSpent."""

    def unlock_window(self, receipt: Receipt) -> None:
        """Release the window data and the state that the receipt holds; a second time, nothing.

        Raises: ReceiptSpent.
        """

    def allocate(self, counts: Counts) -> Slots:
        """Take free device slots. Never evicts.

        The swa slots are paired with the last `counts.swa` full slots: the mapping from full to
        window slots says so until either is freed. Raises: OutOfSlots, BadArgument.
        """

    def free(self, slots: Slots) -> None:
        """Give allocated slots back. Raises: SlotNotHeld, BadArgument."""

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Hand over the data of `key` from page `start_pages` on.

        Effects: ownership of every slot; nodes; recency; hits, and the backups that they cause.
        Raises: BadArgument, SlotNotHeld, PrefixNotCached, TransferPending.
        """

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots: leaves for full slots, least recently used data for the others.

        Raises: BadArgument.
        """

    def evict_host(self, counts: Counts) -> Evicted:
        """Free host slots, likewise. Raises: BadArgument."""

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """Enqueue the copy of what `key` has on the host only.

        Raises: PrefixNotCached, BadArgument.
        """

    def insert_host(self, key: Key, start_pages: int, payload: HostPayload) -> HostInserted:
        """Place fetched data in the host tier: the last step of a prefetch.

        Raises: BadArgument, PrefixNotCached.
        """

    def poll(self) -> Settled:
        """Settle the copies that have ended, each after those that it builds on."""

    def flush(self) -> Settled:
        """Wait for every transfer in flight and settle it."""

    def reset(self) -> None:
        """Forget the whole tree. Slots that requests hold stay theirs. Raises: CacheBusy."""

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call."""

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
