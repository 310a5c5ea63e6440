"""Seconds, and bytes a second."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

from attrs import frozen

from kvcanon.optimized.cuda_runtime import Runtime

GIGA = 1e9
"""Bandwidth is counted in powers of ten, as vendors of links do."""


@frozen
class Timing:
    """Times of several runs."""

    median_seconds: float
    least_seconds: float
    most_seconds: float

    def gigabytes_per_second(self, size_bytes: int) -> float:
        """Bandwidth, by the median."""
        return size_bytes / self.median_seconds / GIGA


def timing_of(seconds: list[float]) -> Timing:
    """Summarize runs."""
    return Timing(median(seconds), min(seconds), max(seconds))


def timed(action: Callable[[], object], runtime: Runtime, repeats: int) -> Timing:
    """Time an action until the device is done with it; a first run, not counted, warms up."""
    took = []
    for _ in range(repeats + 1):
        runtime.synchronize()
        start = perf_counter()
        action()
        runtime.synchronize()
        took.append(perf_counter() - start)
    return timing_of(took[1:])
