"""A fast cache whose prompts come and go, for the events that it makes."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvcanon.conformance.errors import UsageError
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, Namespace, WritePolicy

VOCABULARY = 150_000

PromptTokens = NDArray[np.uint32]


class PackedBatch(Protocol):
    """The events of a step, not made into objects: `PrefixCache.take_packed_events`."""

    @property
    def pages(self) -> int:
        """Pages that were stored or removed."""

    def __len__(self) -> int: ...

    def encode(self, dialect: int, timestamp: float, rank: int) -> bytes:
        """The batch as MessagePack."""


class EventChurn:
    """A cache whose prompts come and go, a batch of events each. Raises: UsageError."""

    def __init__(self, page_size: int, prompt_pages: int, slots: int) -> None:
        policy = WritePolicy.NONE
        config = CacheConfig(page_size=page_size, device_slots=Counts(slots), write_policy=policy)
        # The judge loads the optimized cache by name, as it loads any cache.
        try:
            self.cache: Any = import_module("kvcanon.optimized").PrefixCache(config)
        except ImportError as error:
            raise UsageError(f"bench live needs the fast cache: {error}") from error
        self._pages, self._drawn = prompt_pages, np.random.default_rng(1)
        self._tokens = page_size * prompt_pages

    def prompt(self) -> PromptTokens:
        """A new prompt."""
        return self._drawn.integers(0, VOCABULARY, self._tokens, dtype=np.uint32)

    def insert(self, tokens: PromptTokens, namespace: Namespace | None = None) -> None:
        """Insert a prompt, from what is cached of it on."""
        place = 0 if namespace is None else self.cache.namespace(namespace)
        start = self.cache.match(tokens, place).device_pages
        pages = len(tokens) // self.cache.config.page_size - start
        self.cache.insert(tokens, start, *self.cache.allocate(pages, 0, 0), namespace=place)

    def make_room(self) -> None:
        """Evict where a prompt would not fit."""
        if self.cache.free_slot_counts()[0] < self._pages:
            self.cache.evict(2 * self._pages)

    def step(self) -> PackedBatch:
        """Insert a prompt, after an eviction where there is no room; the events."""
        self.make_room()
        self.insert(self.prompt())
        events: PackedBatch = self.cache.take_packed_events()
        return events
