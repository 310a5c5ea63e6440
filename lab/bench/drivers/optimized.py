"""Drives `kvcanon.optimized.PrefixCache`, through arrays.

Page hashes of events are computed when they are read. So the time of the events includes reading
every hash and every token.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from importlib import import_module
from time import perf_counter_ns
from typing import Any

from attrs import frozen

from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import (
    Driver,
    EventCounts,
    StepTimes,
    shortage,
    whole_and_reusable_tokens,
)
from kvcanon.spec.types import Namespace


@frozen
class Int32Prompt:
    """A prompt as arrays with 32 bits per token."""

    whole: Any
    """Its whole pages."""
    reusable: Any
    """The whole pages of its first n - 1 tokens: a view of the same array."""
    namespace: Namespace


class OptimizedDriver:
    """Calls a `PrefixCache` as an engine does that has the bytes.

    With a host tier, its copies move no bytes and have ended at the next poll.
    """

    def __init__(self, cache: Any, cell: BenchCell) -> None:  # noqa: ANN401 # Reached by its name.
        self.core = type(cache.tree).__name__
        self.loaded_tokens = self.spare_pages = 0
        self._numpy = import_module("numpy")
        self._cache = cache
        self._cell = cell

    def prepare(self, request: Request) -> Int32Prompt:
        """Put the tokens into one array."""
        page_size = self._cell.page_size
        tokens = self._numpy.frombuffer(array("I", request.make_tokens()), self._numpy.uint32)
        whole, reusable = whole_and_reusable_tokens(request, page_size)
        return Int32Prompt(tokens[:whole], tokens[:reusable], request.namespace)

    def serve(self, prompt: Int32Prompt, taken: StepTimes) -> int:
        """Serve a request."""
        cache, page_size = self._cache, self._cell.page_size
        whole, reusable = prompt.whole, prompt.reusable
        namespace = cache.namespace(prompt.namespace)
        found = self._match(prompt, namespace, taken)
        prefix_pages: int = found.prefix_pages
        device_pages: int = found.device_pages
        receipt = None
        if prefix_pages:
            began = perf_counter_ns()
            receipt = cache.lock_found(found)
            taken.lock.append(perf_counter_ns() - began)
        if self._cell.host is not None:
            if device_pages < prefix_pages:
                prefix = reusable[: prefix_pages * page_size]
                prefix_pages = self._load(prefix, namespace, device_pages, taken)
            began = perf_counter_ns()
            cache.poll()
            taken.poll.append(perf_counter_ns() - began)
        missing = len(whole) // page_size - prefix_pages
        missing_swa = missing if self._cell.window_tokens else 0
        free_full, free_swa, _ = cache.free_slot_counts()
        short = shortage(missing, free_full, self.spare_pages)
        short_swa = shortage(missing_swa, free_swa)
        if short or short_swa:
            began = perf_counter_ns()
            cache.evict(short, short_swa)
            taken.evict.append(perf_counter_ns() - began)
        began = perf_counter_ns()
        full, swa, _ = cache.allocate(missing, missing_swa)
        taken.allocate.append(perf_counter_ns() - began)
        began = perf_counter_ns()
        cache.insert(whole, prefix_pages, full, swa, None, namespace)
        taken.insert.append(perf_counter_ns() - began)
        if receipt is not None:
            began = perf_counter_ns()
            cache.unlock(receipt)
            taken.unlock.append(perf_counter_ns() - began)
        return prefix_pages * page_size

    def find(self, prompt: Int32Prompt, taken: StepTimes) -> int:
        """Look up a prompt without serving it."""
        namespace = self._cache.namespace(prompt.namespace)
        pages: int = self._match(prompt, namespace, taken).prefix_pages
        return pages * self._cell.page_size

    def _match(self, prompt: Int32Prompt, namespace: int, taken: StepTimes) -> Any:  # noqa: ANN401
        """Return the match, whose slots were read."""
        reusable = prompt.reusable
        began = perf_counter_ns()
        found = self._cache.match(reusable, namespace)
        found.full  # noqa: B018 # The array is made when it is read.
        taken.match.append(perf_counter_ns() - began)
        return found

    def _load(
        self,
        prefix: Any,  # noqa: ANN401 # An array.
        namespace: int,
        device_pages: int,
        taken: StepTimes,
    ) -> int:
        """Load a prefix to the device; returns how many of its pages are usable there."""
        began = perf_counter_ns()
        loaded = self._cache.load_back(prefix, None, namespace)
        loaded.full  # noqa: B018 # The array is made when it is read.
        taken.load.append(perf_counter_ns() - began)
        if loaded.transfer_id is None:
            return device_pages
        pages = len(prefix) // self._cell.page_size
        self.loaded_tokens += (pages - device_pages) * self._cell.page_size
        return pages

    def take_events(self, taken: StepTimes) -> EventCounts:
        """Take the events since the last call."""
        began = perf_counter_ns()
        events = self._cache.take_events()
        for event in events:
            event.hashes, event.tokens, event.parent_hash  # noqa: B018 # Made when they are read.
        taken.events.append(perf_counter_ns() - began)
        stored = sum(event.pages for event in events if event.kind == "stored")
        return EventCounts(stored, sum(event.pages for event in events if event.kind == "removed"))


def make_driver(cell: BenchCell, options: Mapping[str, str]) -> Driver[Int32Prompt]:  # noqa: ARG001 # None.
    """Make a driver of the optimized cache. Raises: ImportError: it was not compiled."""
    optimized = import_module("kvcanon.optimized")
    config = cell.config()
    if cell.host is None:
        return OptimizedDriver(optimized.PrefixCache(config), cell)
    page = import_module("kvcanon.optimized.layout").PageLayout(1, (1,))
    pools = import_module("kvcanon.optimized.pools").Pools(
        config, dict.fromkeys(config.components, page)
    )
    engine = import_module("kvcanon.lab.bench.gpu.instant_engine").InstantEngine()
    return OptimizedDriver(optimized.PrefixCache(config, pools, engine), cell)
