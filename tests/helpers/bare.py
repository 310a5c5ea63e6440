"""Bare factories: caches that know neither windows nor states, and some of them no namespaces."""

from __future__ import annotations

from attrs import evolve

from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import Counts, Key, Namespace, Slots


class Plain:
    """A cache of full attention with LRU eviction and no host tier, whatever it is asked for."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.cache = ReferenceCache(
            evolve(
                config,
                window_tokens=None,
                mamba=False,
                write_policy="none",
                eviction_policy="lru",
                device_slots=Counts(config.device_slots.full),
                host_slots=Counts(),
            )
        )

    def of(self, key: Key) -> Key:
        """The key by which it keeps a page."""
        return key

    def match(self, key: Key) -> Matched:
        return self.cache.match(self.of(key))

    def lock(self, key: Key) -> Receipt:
        return evolve(self.cache.lock(self.of(key)), key=key)

    def unlock(self, receipt: Receipt) -> None:
        self.cache.unlock(evolve(receipt, key=self.of(receipt.key)))

    def allocate(self, counts: Counts) -> Slots:
        windows, states = self.config.window_tokens is not None, self.config.mamba
        return self.cache.allocate(
            Counts(counts.full, 0 if windows else counts.swa, 0 if states else counts.mamba)
        )

    def free(self, slots: Slots) -> None:
        self.cache.free(slots)

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        key = self.of(key)
        return self.cache.insert(
            key, start_pages, slots, counted_pages=counted_pages, priority=priority
        )

    def evict(self, counts: Counts) -> Evicted:
        return self.cache.evict(Counts(counts.full))

    def take_events(self) -> tuple[Event, ...]:
        return self.cache.take_events()


class WithoutNamespaces(Plain):
    """It keeps pages by their tokens alone."""

    def of(self, key: Key) -> Key:
        return Key(key.pages)


class WithoutAdapters(Plain):
    """It forgets one field of a namespace, which is a fault."""

    def of(self, key: Key) -> Key:
        return Key(key.pages, evolve(key.namespace, lora=None))


class WithoutSalts(Plain):
    """It knows salts only where there is no other field."""

    def of(self, key: Key) -> Key:
        only = Namespace(cache_salt=key.namespace.cache_salt)
        return key if key.namespace == only else Key(key.pages)


class EndsIfAsked(Plain):
    """It raises where it is asked for window slots."""

    def allocate(self, counts: Counts) -> Slots:
        if counts.swa or counts.mamba:
            raise SystemExit
        return super().allocate(counts)
