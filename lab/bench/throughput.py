"""Serves requests from one cache, and measures its speed and its memory.

Prompts are prepared before the cache is made, so that their memory is not counted as the cache's.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Generic

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.latency import Latency, latency_of
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import Driver, MakeDriver, Prompt, StepTimes
from kvcanon.lab.bench.hash_floor import sha256_seconds
from kvcanon.lab.bench.memory import peak_bytes, set_back_peak
from kvcanon.spec.oracle.pages import whole_pages

_SMALL_PAGES = 8

EVENTS_EVERY = 8
"""Requests between two calls that take events: an engine takes them once per step."""


def latency_from(value: Latency | dict[str, Any]) -> Latency:
    """Read a latency, which may have gone through JSON."""
    return Latency(**value) if isinstance(value, dict) else value


def _latencies_from(steps: Mapping[str, Any]) -> dict[str, Latency]:
    return {name: latency_from(step) for name, step in steps.items()}


@frozen
class Throughput:
    """The results of one run of a cache."""

    core: str
    """Which implementation it was."""
    requests: int
    """How many requests were served in time."""
    requests_asked: int
    prompt_tokens: int
    """Prompt tokens of the served requests."""
    hit_tokens: int
    base_bytes: int
    """Memory of the process before the cache was made, requests included."""
    peak_bytes: int
    """The peak memory afterwards."""
    load: float
    """The load average of the last minute, before the run."""
    stored_pages: int = 0
    """Pages stored, by the events."""
    removed_pages: int = 0
    loaded_tokens: int = 0
    """Hit tokens that were loaded from the host."""
    hash_seconds: float = 0.0
    """What SHA-256 alone takes for the inserted pages, on the same core; 0 without events."""
    steps: Mapping[str, Latency] = field(factory=dict, converter=_latencies_from)

    @property
    def complete(self) -> bool:
        """Whether every request was served."""
        return self.requests == self.requests_asked

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that were in the cache."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def loaded_rate(self) -> float:
        """The share of prompt tokens that were loaded from the host."""
        return self.loaded_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def cache_seconds(self) -> float:
        """Time inside the cache's calls."""
        return sum(step.seconds for step in self.steps.values())

    @property
    def requests_per_second(self) -> float:
        """Requests per second of `cache_seconds`."""
        return self.requests / self.cache_seconds if self.cache_seconds else 0.0

    @property
    def hash_share(self) -> float:
        """The speed of the cache with its events, as a share of that of SHA-256 alone."""
        return self.hash_seconds / self.cache_seconds if self.cache_seconds else 0.0

    @property
    def cache_bytes(self) -> int:
        """The most memory that the cache added."""
        return max(0, self.peak_bytes - self.base_bytes)


def warm_up(
    make: MakeDriver[Prompt], cell: BenchCell, options: Mapping[str, str]
) -> Driver[Prompt]:
    """Serve a request from a small cache, so that lazy imports are done before the measurement."""
    small = cell.page_size * _SMALL_PAGES
    driver = make(evolve(cell, pool_tokens=small, swa_tokens=small), options)
    request = Request(cell.page_size + 1, lambda: tuple(range(cell.page_size + 1)))
    for _ in range(2):
        driver.serve(driver.prepare(request), StepTimes())
        driver.find(driver.prepare(request), StepTimes())
    if cell.events:
        driver.take_events(StepTimes())
    return driver


def measure(
    make: MakeDriver[Prompt],
    cell: BenchCell,
    options: Mapping[str, str],
    requests: tuple[Request, ...],
    seconds: float,
) -> Throughput:
    """Serve the requests in order, or as many as begin within the given seconds.

    Raises:
        UsageError: a prompt does not fit into the pools.
    """
    _refuse_small_pools(cell, requests)
    load = os.getloadavg()[0]
    first = warm_up(make, cell, options)
    prompts = [first.prepare(request) for request in requests]
    del first
    settle_heap()
    base = set_back_peak()
    served = Served(make(cell, options), cell)
    until = perf_counter() + seconds
    for request, prompt in zip(requests, prompts, strict=True):
        if perf_counter() > until:
            break
        served.serve(request, prompt, last=request is requests[-1])
    return served.result(len(requests), base, load)


class Served(Generic[Prompt]):
    """The requests that one driver has served, and what they took."""

    def __init__(self, driver: Driver[Prompt], cell: BenchCell) -> None:
        self.driver = driver
        self._cell = cell
        self._taken = StepTimes()
        self._loaded_before = driver.loaded_tokens
        self._requests = self._prompt_tokens = self._hit_tokens = 0
        self._stored = self._removed = self._inserted = 0

    def serve(self, request: Request, prompt: Prompt, *, last: bool = False) -> None:
        """Serve a request, and take the events if it is time; after the last it is."""
        hit = self.driver.serve(prompt, self._taken)
        page_size = self._cell.page_size
        self._inserted += whole_pages(request.length_tokens - hit, page_size)
        self._hit_tokens += hit
        self._prompt_tokens += request.length_tokens
        self._requests += 1
        if self._cell.events and (self._requests % EVENTS_EVERY == 0 or last):
            counts = self.driver.take_events(self._taken)
            self._stored += counts.stored_pages
            self._removed += counts.removed_pages

    def result(self, requests_asked: int, base_bytes: int, load: float) -> Throughput:
        """Return what was measured."""
        peak = peak_bytes()
        hashed = self._inserted if self._cell.events else 0
        return Throughput(
            core=self.driver.core,
            requests=self._requests,
            requests_asked=requests_asked,
            prompt_tokens=self._prompt_tokens,
            hit_tokens=self._hit_tokens,
            base_bytes=base_bytes,
            peak_bytes=peak,
            load=load,
            stored_pages=self._stored,
            removed_pages=self._removed,
            loaded_tokens=self.driver.loaded_tokens - self._loaded_before,
            hash_seconds=sha256_seconds(hashed, self._cell.page_size),
            steps=latencies(self._taken),
        )


def settle_heap() -> None:
    """Let collections of garbage pass over what there is now, as engines do when they are ready.

    Otherwise each of them looks at all modules and all requests, and its time counts for whichever
    call it interrupts.
    """
    gc.collect()
    gc.freeze()


def latencies(taken: StepTimes) -> dict[str, Latency]:
    """Return the latencies by step name."""
    return {step.value: latency_of(taken_ns) for step, taken_ns in taken.by_step().items()}


def _refuse_small_pools(cell: BenchCell, requests: tuple[Request, ...]) -> None:
    """Refuse pools too small for a prompt beside the prefix that it locks. Raises: UsageError."""
    longest = max((each.length_tokens for each in requests), default=0)
    if longest > cell.pool_tokens:
        raise UsageError(f"a prompt has {longest} tokens, and the pool {cell.pool_tokens}")
    needed = longest + cell.window_tokens + cell.page_size
    if cell.window_tokens and needed > cell.swa_tokens:
        raise UsageError(
            f"a prompt has {longest} tokens, and the window pool {cell.swa_tokens}: "
            f"beside a locked window it takes {needed}"
        )
