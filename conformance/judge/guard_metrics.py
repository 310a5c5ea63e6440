"""What guards in production did, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    "overlapped": "Calls that were drawn, and not judged, as others ran at the same time.",
    "errors": "Errors of the judge and of on_violation, of which no caller heard.",
    "seconds": "Time of callers that judging took.",
}


class _GuardCollector:
    """Reads the counts of guards at each scrape. A registry asks for this method alone."""

    def __init__(self, guards: Mapping[str, ProductionGuard]) -> None:
        self._guards, self._core = guards, import_module("prometheus_client.core")

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        core, counts = self._core, {name: each.counts for name, each in self._guards.items()}
        for counter, words in _COUNTERS.items():
            family = core.CounterMetricFamily(f"kvcanon_guard_{counter}", words, labels=["cache"])
            for name, each in counts.items():
                family.add_metric([name], getattr(each, counter))
            yield family
        words, labels = "Violations of each law.", ["cache", "law"]
        broken = core.CounterMetricFamily("kvcanon_guard_violations", words, labels=labels)
        for name, guard in self._guards.items():
            # From the start: the rate of a series that begins with its first violation is zero.
            for law_id in sorted({*guard.laws_checked, *counts[name].violations}):
                broken.add_metric([name, law_id], counts[name].violations.get(law_id, 0))
        yield broken
        words = "The most time that judging took of one call."
        longest = core.GaugeMetricFamily("kvcanon_guard_longest_seconds", words, labels=["cache"])
        for name, each in counts.items():
            longest.add_metric([name], each.longest_seconds)
        yield longest


def guard_collector(guards: ProductionGuard | Mapping[str, ProductionGuard]) -> Collector:
    """What `prometheus_client.REGISTRY.register` takes; it is read at each scrape.

    A registry takes one. Where a process has several caches, give their guards by name: the name is
    the label `cache` of each metric, which is empty for a single guard.

    Raises: UsageError: prometheus-client is not installed.
    """
    # A guard is taken for its cache, which may be a mapping.
    named = {"": guards} if isinstance(guards, ProductionGuard) else guards
    try:
        return cast("Collector", _GuardCollector(named))
    except ModuleNotFoundError as missing:
        raise UsageError(
            "prometheus-client is not installed; run `pip install 'kvcanon[metrics]'`"
        ) from missing
