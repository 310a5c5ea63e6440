"""Serves requests from one cache, and measures its speed and its memory.

Prompts are prepared before the cache is made, so that their memory is not counted as the cache's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import perf_counter

from attrs import Factory, asdict, evolve, frozen

from kvcanon.conformance.bench.case import BenchCell
from kvcanon.conformance.bench.driver import Driver, MakeDriver, Prompt, StepTimes
from kvcanon.conformance.bench.memory import peak_bytes, set_back_peak
from kvcanon.conformance.bench.workloads.request import Request
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.observe.latency import Latency, latency_of

_SMALL_PAGES = 8

EVENTS_EVERY = 8
"""Requests between two calls that take events: an engine takes them once per step."""


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
    steps: Mapping[str, Latency] = Factory(dict)

    @property
    def complete(self) -> bool:
        """Whether every request was served."""
        return self.requests == self.requests_asked

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that were in the cache."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def cache_seconds(self) -> float:
        """Time inside the cache's calls."""
        return sum(step.seconds for step in self.steps.values())

    @property
    def requests_per_second(self) -> float:
        """Requests per second of `cache_seconds`."""
        return self.requests / self.cache_seconds if self.cache_seconds else 0.0

    @property
    def cache_bytes(self) -> int:
        """The most memory that the cache added."""
        return max(0, self.peak_bytes - self.base_bytes)

    def to_json(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Throughput:
        """Read what `to_json` returned."""
        fields = dict(value)
        steps = fields.pop("steps")
        assert isinstance(steps, dict)  # noqa: S101 # Written by a child of the same release.
        latencies = {name: Latency(**step) for name, step in steps.items()}
        return cls(**fields, steps=latencies)  # type: ignore[arg-type]


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
    core = first.core
    del first
    base = set_back_peak()
    driver = make(cell, options)
    taken = StepTimes()
    served = hit = stored = removed = 0
    until = perf_counter() + seconds
    for prompt in prompts:
        if perf_counter() > until:
            break
        hit += driver.serve(prompt, taken)
        served += 1
        if cell.events and (served % EVENTS_EVERY == 0 or served == len(prompts)):
            counts = driver.take_events(taken)
            stored += counts.stored_pages
            removed += counts.removed_pages
    return Throughput(
        core=core,
        requests=served,
        requests_asked=len(requests),
        prompt_tokens=sum(each.length_tokens for each in requests[:served]),
        hit_tokens=hit,
        base_bytes=base,
        peak_bytes=peak_bytes(),
        load=load,
        stored_pages=stored,
        removed_pages=removed,
        steps=latencies(taken),
    )


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
