"""Drives any cache with the whole protocol of `kvcanon.spec.cache`, such as the reference.

Keys are large tuples. They are made when their request is served, outside the timed part, so that a
trace need not fit into memory as keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns

from attrs import evolve

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import CacheKind, Capability, Unoffered, make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.offered import not_offered
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import Driver, EventCounts, StepTimes, shortage
from kvcanon.spec.cache import Cache
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.operations import Matched
from kvcanon.spec.oracle.pages import whole_pages
from kvcanon.spec.types import DEFAULT_NAMESPACE, Counts, Key


class TreeDriver:
    """Calls a cache with keys, and keeps its own count of free slots."""

    def __init__(self, cache: Cache, cell: BenchCell, *, namespaces: bool) -> None:
        """Drive an empty cache; without `namespaces` all prompts are in the default one."""
        self.core = type(cache).__name__
        self.loaded_tokens = self.spare_pages = 0
        self._cache = cache
        self._cell = cell
        self._namespaces = namespaces
        self._free_full = cell.pool_tokens // cell.page_size
        self._free_swa = cell.swa_tokens // cell.page_size

    def prepare(self, request: Request) -> Request:
        """Return the request, in a namespace that the cache offers."""
        return request if self._namespaces else evolve(request, namespace=DEFAULT_NAMESPACE)

    def serve(self, prompt: Request, taken: StepTimes) -> int:
        """Serve a request."""
        cache, page_size = self._cache, self._cell.page_size
        key = prompt.key(page_size)
        reusable = key.prefix(whole_pages(prompt.length_tokens - 1, page_size))
        found = self._match(reusable, taken)
        prefix = reusable.prefix(found.prefix_pages)
        receipt = None
        if prefix.pages:
            began = perf_counter_ns()
            receipt = cache.lock(prefix)
            taken.lock.append(perf_counter_ns() - began)
        present_pages = found.prefix_pages
        if self._cell.host is not None:
            present_pages = self._load(prefix, found.device_pages, taken)
        missing = len(key) - present_pages
        missing_swa = missing if self._cell.window_tokens else 0
        short = Counts(
            shortage(missing, self._free_full, self.spare_pages),
            shortage(missing_swa, self._free_swa),
        )
        if short:
            began = perf_counter_ns()
            evicted = cache.evict(short)
            taken.evict.append(perf_counter_ns() - began)
            self._add(evicted.freed)
        began = perf_counter_ns()
        slots = cache.allocate(Counts(missing, missing_swa))
        taken.allocate.append(perf_counter_ns() - began)
        self._add(Counts(-missing, -missing_swa))
        began = perf_counter_ns()
        inserted = cache.insert(key, present_pages, slots)
        taken.insert.append(perf_counter_ns() - began)
        self._add(inserted.freed)
        if receipt is not None:
            began = perf_counter_ns()
            cache.unlock(receipt)
            taken.unlock.append(perf_counter_ns() - began)
        return present_pages * page_size

    def find(self, prompt: Request, taken: StepTimes) -> int:
        """Look up a prompt without serving it."""
        page_size = self._cell.page_size
        reusable = whole_pages(prompt.length_tokens - 1, page_size)
        return self._match(prompt.key(page_size).prefix(reusable), taken).prefix_pages * page_size

    def _match(self, reusable: Key, taken: StepTimes) -> Matched:
        began = perf_counter_ns()
        found = self._cache.match(reusable)
        taken.match.append(perf_counter_ns() - began)
        return found

    def _load(self, prefix: Key, device_pages: int, taken: StepTimes) -> int:
        """Load what is on the host only, and poll; returns how many pages are on the device."""
        present_pages = device_pages
        if device_pages < len(prefix):
            began = perf_counter_ns()
            loaded = self._cache.load_back(prefix)
            taken.load.append(perf_counter_ns() - began)
            self._add(loaded.evicted - loaded.loading)
            if loaded.transfer_id is not None:
                present_pages = len(prefix)
                self.loaded_tokens += (present_pages - device_pages) * self._cell.page_size
        began = perf_counter_ns()
        self._cache.poll()
        taken.poll.append(perf_counter_ns() - began)
        return present_pages

    def take_events(self, taken: StepTimes) -> EventCounts:
        """Take the events since the last call."""
        began = perf_counter_ns()
        events = self._cache.take_events()
        taken.events.append(perf_counter_ns() - began)
        stored = sum(isinstance(event, BlockStored) for event in events)
        return EventCounts(stored, sum(isinstance(event, BlockRemoved) for event in events))

    def _add(self, freed: Counts) -> None:
        self._free_full += freed.full
        self._free_swa += freed.swa


def make_driver(cell: BenchCell, options: Mapping[str, str]) -> Driver[Request]:
    """Make a driver of the cache in the option `cache`. Raises: UsageError."""
    adapter = evolve(load_adapter(options["cache"]), name=options["cache"])
    config = cell.config()
    if adapter.kind is CacheKind.REQUEST:
        raise UsageError(
            f"{adapter.name} is used by requests, and this times operations on prefixes; "
            f"`kvcanon replay {adapter.name}` serves requests from it"
        )
    problem = not_offered(adapter.offer, config)
    if problem is not None:
        raise UsageError(f"{adapter.name} does not offer {problem}")
    try:
        subject = make_subject(adapter, config, own_copies=True)
    except Unoffered as refusal:
        raise UsageError(str(refusal)) from refusal
    needed = [Capability.EVICT, *([Capability.TAKE_EVENTS] if cell.events else [])]
    needed += [Capability.LOAD_BACK, Capability.POLL] if cell.host is not None else []
    lacks = [each for each in needed if each not in subject.can]
    if lacks:
        raise UsageError(
            f"{adapter.name} lacks {', '.join(lacks)}, which this times; `kvcanon replay "
            f"{adapter.name}` serves requests from it"
        )
    return TreeDriver(subject.cache, cell, namespaces=adapter.offer.namespaces)
