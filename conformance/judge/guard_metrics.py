"""What a guard in production did, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, cast

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.production import ProductionGuard

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

_COUNTERS = {
    "calls": "Calls of the cache.",
    "judged": "Calls that were judged.",
    "postponed": "Calls that were drawn, and not judged, as the time for it was spent.",
    "errors": "Errors of the judge, of which no caller heard.",
    "seconds": "Time of callers that judging took.",
}


class _GuardCollector:
    """Reads the counts of a guard at each scrape. A registry asks for this method alone."""

    def __init__(self, guard: ProductionGuard) -> None:
        self._guard, self._core = guard, import_module("prometheus_client.core")

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        counts, core = self._guard.counts, self._core
        for name, words in _COUNTERS.items():
            value = getattr(counts, name)
            yield core.CounterMetricFamily(f"kvcanon_guard_{name}", words, value=value)
        words = "Violations of each law."
        broken = core.CounterMetricFamily("kvcanon_guard_violations", words, labels=["law"])
        for law_id, count in sorted(counts.violations.items()):
            broken.add_metric([law_id], count)
        yield broken
        words = "The most time that judging took of one call."
        longest = counts.longest_seconds
        yield core.GaugeMetricFamily("kvcanon_guard_longest_seconds", words, value=longest)


def guard_collector(guard: ProductionGuard) -> Collector:
    """What `prometheus_client.REGISTRY.register` takes; it is read at each scrape.

    Raises: UsageError: prometheus-client is not installed.
    """
    try:
        return cast("Collector", _GuardCollector(guard))
    except ModuleNotFoundError as missing:
        raise UsageError(
            "prometheus-client is not installed; run `pip install 'kvcanon[metrics]'`"
        ) from missing
