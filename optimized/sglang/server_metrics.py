"""kvcanon's counters as metrics of SGLang's `/metrics`.

SGLang's metrics are those of several processes, which write them to files. A collector that is
asked at a scrape, as `kvcanon.optimized.metrics` has, would not be seen there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from attrs import Factory, define
from prometheus_client import Counter, Gauge

from kvcanon.optimized.metrics import COUNTERS, GAUGES, MetricSpec, Values
from kvcanon.optimized.stats import Stats
from kvcanon.sglang_release import installed_version

LEFT_OUT = frozenset(
    {
        # SGLang's controller copies, and counts its copies itself.
        "transfers",
        "settled_transfers",
        "transferred_bytes",
        "transfers_in_flight",
        "declined_backup_pages",
        "staging_bytes",
        # It frees what it has twice.
        "duplicate_tokens",
    }
)
"""Metrics that say nothing where SGLang's controller copies."""


def _calls(stats: Stats) -> Values:
    for name, each in stats.operations.items():
        if each.calls:
            yield (name,), each.calls


def _seconds(stats: Stats) -> Values:
    for name, each in stats.operations.items():
        if each.calls:
            yield (name,), each.seconds


SERVED_COUNTERS = (
    *(each for each in COUNTERS if each.name not in LEFT_OUT),
    MetricSpec("operation_calls", "Calls of an operation.", _calls, ("operation",)),
    MetricSpec("operation_seconds", "Time in calls of an operation.", _seconds, ("operation",)),
)
SERVED_GAUGES = tuple(each for each in GAUGES if each.name not in LEFT_OUT)


@cache
def _counter(spec: MetricSpec, labels: tuple[str, ...]) -> Counter:
    return Counter(f"kvcanon_{spec.name}", spec.meaning, [*labels, *spec.labels])


@cache
def _gauge(spec: MetricSpec, labels: tuple[str, ...]) -> Gauge:
    names = [*labels, *spec.labels]
    return Gauge(f"kvcanon_{spec.name}", spec.meaning, names, multiprocess_mode="mostrecent")


@cache
def _info(labels: tuple[str, ...]) -> Gauge:
    meaning = "1 where kvcanon is the tree core; the label is its version."
    names = [*labels, "version"]
    return Gauge("kvcanon_tree_core", meaning, names, multiprocess_mode="mostrecent")


@define(eq=False)
class ServerMetrics:
    """The metrics of one cache, under the labels that SGLang gives to those of its own."""

    labels: Mapping[str, str]
    _seen: dict[tuple[str, tuple[str, ...]], float] = Factory(dict)

    def update(self, stats: Stats) -> None:
        """Bring the metrics up to date."""
        names, given = tuple(self.labels), tuple(map(str, self.labels.values()))
        _info(names).labels(*given, installed_version()).set(1)
        for spec in SERVED_COUNTERS:
            for labels, value in spec.values(stats):
                # A cache that is made anew begins at 0.
                more = value - self._seen.get((spec.name, labels), 0)
                self._seen[spec.name, labels] = value
                _counter(spec, names).labels(*given, *labels).inc(max(0, more))
        for spec in SERVED_GAUGES:
            for labels, value in spec.values(stats):
                _gauge(spec, names).labels(*given, *labels).set(value)
