"""An engine's side of a cache of requests: each request is admitted, computed and finished.

Workloads have prompts and no answers, so that no request is extended. As of every cache of
requests, the caller writes what it computes into the block table between two calls.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol, TypeVar

from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.conformance.protocol.request import Admitted, FullRequestCache, RequestId
from kvcanon.conformance.replay.engine import ReplayStats, event_name
from kvcanon.conformance.replay.latency import Latency, latency_of
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import BlockRemoved, Event
from kvcanon.spec.operations import Evicted
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import FULL, GPU, Component, Counts, Key, Medium, Slot, Slots

Answer = TypeVar("Answer")


class ServedByRequests(Protocol):
    """What the engine calls: a cache of requests, or a judge around one."""

    @property
    def config(self) -> CacheConfig:
        """The configuration of the cache."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request."""

    def finish(self, request_id: RequestId) -> None:
        """End a request."""

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""


class TimedRequestCache:
    """A cache of requests that times its operations. `RequestCache` documents its methods."""

    def __init__(self, cache: FullRequestCache) -> None:
        self._cache = cache
        self._taken_ns: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))

    def latencies(self) -> dict[str, Latency]:
        """Latencies by operation, in the order of their first call."""
        return {name: latency_of(taken_ns) for name, taken_ns in self._taken_ns.items()}

    @property
    def config(self) -> CacheConfig:
        """The configuration of the cache."""
        return self._cache.config

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request."""
        return self._timed("admit", lambda: self._cache.admit(request_id, key))

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Allocate slots for a running request's longer key."""
        return self._timed("extend", lambda: self._cache.extend(request_id, key))

    def finish(self, request_id: RequestId) -> None:
        """End a request."""
        self._timed("finish", lambda: self._cache.finish(request_id))

    def abort(self, request_id: RequestId) -> None:
        """End a request early."""
        self._timed("abort", lambda: self._cache.abort(request_id))

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""
        return self._timed("evict", lambda: self._cache.evict(counts))

    def reset(self) -> None:
        """Forget everything but what running requests hold."""
        self._timed("reset", self._cache.reset)

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        return self._timed("take_events", self._cache.take_events)

    def snapshot(self) -> Snapshot:
        """Return the whole state, as a value."""
        return self._cache.snapshot()

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes of a slot."""
        return self._cache.read(component, medium, slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot of a running request."""
        self._cache.write(component, slot, data)

    def _timed(self, name: str, call: Callable[[], Answer]) -> Answer:
        """Time a call, also one that is refused."""
        began_ns = perf_counter_ns()
        try:
            return call()
        finally:
            self._taken_ns[name].append(perf_counter_ns() - began_ns)


class RequestEngine:
    """Serves requests from a cache of requests, one after another."""

    def __init__(self, cache: ServedByRequests, *, can: frozenset[Capability]) -> None:
        self.tally = ReplayStats()
        self._cache = cache
        self._takes_events = Capability.TAKE_EVENTS in can and cache.config.events

    def serve(self, request: Request) -> None:
        """Serve one request, or reject it."""
        tally, config = self.tally, self._cache.config
        tally.requests += 1
        tally.prompt_tokens += request.length_tokens
        key = request.key(config.page_size)
        if not key.pages or len(key) > config.capacity(FULL, GPU):
            # A prompt of no page has no block table.
            tally.rejected += bool(key.pages)
            return
        try:
            admitted = self._cache.admit(tally.requests, key)
        except OutOfSlots:
            tally.rejected += 1
        else:
            tally.device_hit_tokens += admitted.reused_pages * config.page_size
            self._cache.finish(tally.requests)
        if self._takes_events:
            events = self._cache.take_events()
            tally.events.update(event_name(event) for event in events)
            tally.evicted.update(Counter({FULL: sum(map(_left_the_device, events))}))


def _left_the_device(event: Event) -> bool:
    return isinstance(event, BlockRemoved) and event.medium is GPU
