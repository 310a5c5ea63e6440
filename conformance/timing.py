"""How long a cache takes: each call of its operations, measured from outside.

What readers get wrong: only what an engine would call is timed. To look at a cache (`snapshot`,
`read`) or to put bytes behind its slots (`write`) is the judge's business and passes untimed, so
that a cache under the guard is measured as one that is not.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter_ns
from typing import ParamSpec, TypeVar

from attrs import frozen

from kvcanon.spec.cache import Cache
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

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


@frozen
class Latency:
    """How long the calls of one operation took."""

    calls: int
    seconds: float
    """All calls together."""
    p50_us: float
    p99_us: float


class TimedCache:
    """The same cache, with a clock at each operation."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._taken_ns: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))

    def latencies(self) -> dict[str, Latency]:
        """The operations that were called, by name, in the order of their first call."""
        return {name: _latency(taken_ns) for name, taken_ns in self._taken_ns.items()}

    def _time(
        self,
        operation: str,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        began_ns = perf_counter_ns()
        try:
            return call(*args, **kwargs)
        finally:
            self._taken_ns[operation].append(perf_counter_ns() - began_ns)

    @property
    def config(self) -> CacheConfig:
        """As the cache itself."""
        return self._cache.config

    def match(self, key: Key) -> Matched:
        """As the cache itself."""
        return self._time("match", self._cache.match, key)

    def lock(self, key: Key) -> Receipt:
        """As the cache itself."""
        return self._time("lock", self._cache.lock, key)

    def unlock(self, receipt: Receipt) -> None:
        """As the cache itself."""
        return self._time("unlock", self._cache.unlock, receipt)

    def unlock_window(self, receipt: Receipt) -> None:
        """As the cache itself."""
        return self._time("unlock_window", self._cache.unlock_window, receipt)

    def allocate(self, counts: Counts) -> Slots:
        """As the cache itself."""
        return self._time("allocate", self._cache.allocate, counts)

    def free(self, slots: Slots) -> None:
        """As the cache itself."""
        return self._time("free", self._cache.free, slots)

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """As the cache itself."""
        return self._time(
            "insert",
            self._cache.insert,
            key,
            start_pages,
            slots,
            counted_pages=counted_pages,
            priority=priority,
        )

    def evict(self, counts: Counts) -> Evicted:
        """As the cache itself."""
        return self._time("evict", self._cache.evict, counts)

    def evict_host(self, counts: Counts) -> Evicted:
        """As the cache itself."""
        return self._time("evict_host", self._cache.evict_host, counts)

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """As the cache itself."""
        return self._time("load_back", self._cache.load_back, key, quota_pages)

    def insert_host(self, key: Key, start_pages: int, payload: HostPayload) -> HostInserted:
        """As the cache itself."""
        return self._time("insert_host", self._cache.insert_host, key, start_pages, payload)

    def poll(self) -> Settled:
        """As the cache itself."""
        return self._time("poll", self._cache.poll)

    def flush(self) -> Settled:
        """As the cache itself."""
        return self._time("flush", self._cache.flush)

    def reset(self) -> None:
        """As the cache itself."""
        return self._time("reset", self._cache.reset)

    def take_events(self) -> tuple[Event, ...]:
        """As the cache itself."""
        return self._time("take_events", self._cache.take_events)

    def snapshot(self) -> Snapshot:
        """As the cache itself, untimed."""
        return self._cache.snapshot()

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """As the cache itself, untimed."""
        return self._cache.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """As the cache itself, untimed."""
        return self._cache.write(component, slot, data)


def _latency(taken_ns: array[int]) -> Latency:
    ordered = sorted(taken_ns)

    def percentile_us(percent: int) -> float:
        """The smallest measured value that so many percent of the calls did not exceed."""
        rank = -(-len(ordered) * percent // 100)
        return ordered[rank - 1] / 1000

    return Latency(len(ordered), sum(ordered) / 1e9, percentile_us(50), percentile_us(99))
