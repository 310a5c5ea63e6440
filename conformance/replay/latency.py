"""The timed cache: measures how long each operation of a cache takes.

Only operations that an engine calls are timed. `snapshot`, `read` and `write` are calls of the
judge and pass untimed, so that a cache under the guard measures like one that is not.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter_ns

from attrs import frozen

from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.operations import METHODS, Operation


@frozen
class Latency:
    """How long the calls of one operation took."""

    calls: int
    seconds: float
    """The sum over all calls."""
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float


class TimedCache(WrappedCache):
    """A cache that times each of its operations."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache)
        self._taken_ns: defaultdict[type[Operation], array[int]] = defaultdict(lambda: array("Q"))

    def latencies(self) -> dict[str, Latency]:
        """Latencies by operation, in the order of their first call."""
        return {METHODS[kind]: latency_of(taken_ns) for kind, taken_ns in self._taken_ns.items()}

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """Time a call, also one that is refused."""
        began_ns = perf_counter_ns()
        try:
            return call(*args, **kwargs)
        finally:
            self._taken_ns[type(operation)].append(perf_counter_ns() - began_ns)


def latency_of(taken_ns: array[int]) -> Latency:
    """Summarize the durations of calls; needs at least one."""
    ordered = sorted(taken_ns)

    def quantile_us(thousandths: int) -> float:
        """Return the shortest duration that this many thousandths of the calls do not exceed."""
        rank = -(-len(ordered) * thousandths // 1000)
        return ordered[rank - 1] / 1000

    return Latency(
        calls=len(ordered),
        seconds=sum(ordered) / 1e9,
        p50_us=quantile_us(500),
        p99_us=quantile_us(990),
        p999_us=quantile_us(999),
        max_us=ordered[-1] / 1000,
    )
