"""The longest stall of one call of SGLang's `UnifiedRadixCache`, in a tree of many prompts.

The tree is filled with short prompts until its pool is full; then longer requests are served, each
of which evicts many of them. The same is done again from a fresh cache, and of each call the lesser
time counts, so that a pause of the machine is not taken for a stall. Pauses of Python's garbage
collector would come anywhere; so a full collection is measured by itself: of what is there since
the tree was empty.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from time import perf_counter_ns

from attrs import asdict, frozen

from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import StepTimes
from kvcanon.lab.bench.drivers.sglang_engine import EngineDriver
from kvcanon.lab.bench.shared_prefixes import SharedPrefixes

ROUNDS = 2
COLLECT = "collect"
"""A full collection of garbage, with what the tree has alone, among the calls."""
MOST_TOKENS = 8192
"""The longest request: what SGLang prefills in a step (`--chunked-prefill-size`)."""
LONG = SharedPrefixes(
    requests=60, seed=1, prefixes=8, prefix_tokens=(600, 2048), own_tokens=(600, MOST_TOKENS - 2048)
)


@frozen
class CoreStalls:
    """The longest call of each kind, in milliseconds."""

    core: str
    cached_prompts: int
    longest_ms: Mapping[str, float]

    @property
    def worst_ms(self) -> float:
        """The longest of all."""
        return max(self.longest_ms.values())

    def to_json(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        return asdict(self) | {"worst_ms": self.worst_ms}


def measure_stalls(cell: BenchCell, core: str, prompts: int, seed: int) -> CoreStalls:
    """Fill a tree with `prompts` prompts, and time what comes then. Raises: UsageError."""
    length = max(1, cell.pool_tokens // prompts)
    short = SharedPrefixes(
        prompts, seed, prefixes=1, prefix_tokens=(0, 0), own_tokens=(length, length)
    ).make()
    long = LONG.make()
    best: list[dict[str, int]] = []
    for _ in range(ROUNDS):
        driver = EngineDriver(cell, core)
        gc.collect()
        gc.freeze()
        unmeasured = StepTimes()
        for request in short:
            driver.serve(driver.prepare(request), unmeasured)
            driver.take_events(unmeasured)
        collection = {COLLECT: _collection_ns()}
        gc.unfreeze()
        rows = [collection, *(_served(driver, driver.prepare(request)) for request in long)]
        best = [
            {step: min(before[step], took) for step, took in row.items()}
            for before, row in zip(best or rows, rows, strict=True)
        ]
        del driver
    steps = {step for row in best for step in row}
    longest = {step: max(row.get(step, 0) for row in best) / 1e6 for step in sorted(steps)}
    return CoreStalls(core, prompts, longest)


def _collection_ns() -> int:
    """How long a full collection takes, in nanoseconds: the least of three."""
    times = []
    for _ in range(3):
        began = perf_counter_ns()
        gc.collect()
        times.append(perf_counter_ns() - began)
    return min(times)


def _served(driver: EngineDriver, prompt: object) -> dict[str, int]:
    taken = StepTimes()
    driver.serve(prompt, taken)  # type: ignore[arg-type] # As the driver prepared it.
    driver.take_events(taken)
    steps = taken.by_step()
    return {step.value: max(times) for step, times in steps.items() if step.value != "allocate"}
