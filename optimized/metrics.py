"""Metrics: the statistics of caches for Prometheus.

The core counts natively, and a scrape reads what it counted: no call of a cache pays for a metric.
Register a collector once, for all caches of the process:

    REGISTRY.register(CacheCollector({"rank 0": cache}))

What readers get wrong: counters are sampled when somebody scrapes. A cache that is dropped between
two scrapes takes what it counted since the first one with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from attrs import frozen

from kvcanon.optimized.codes import COMPONENTS
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.stats import Stats

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ImportError(
        "kvcanon.optimized.metrics needs prometheus_client, which is not installed; "
        "run `pip install 'kvcanon[metrics]'`."
    ) from error

Metric: TypeAlias = CounterMetricFamily | GaugeMetricFamily | SummaryMetricFamily
Values: TypeAlias = Iterator[tuple[tuple[str, ...], float]]
"""Values of one metric for one cache, each with its labels."""


@frozen
class Told:
    """A metric."""

    name: str
    meaning: str
    values: Callable[[Stats], Values]
    labels: tuple[str, ...] = ()
    """Beside the cache's name."""


class CacheCollector(Collector):
    """Tells a registry of Prometheus about caches, by name.

    Caches that join the mapping later are told of from then on.
    """

    def __init__(self, caches: Mapping[str, PrefixCache]) -> None:
        self._caches = caches

    def collect(self) -> Iterator[Metric]:
        """Every metric, with the values of every cache."""
        named = [(name, cache.stats()) for name, cache in self._caches.items()]
        for kind, metrics in ((CounterMetricFamily, COUNTERS), (GaugeMetricFamily, GAUGES)):
            for each in metrics:
                family = kind(f"kvcanon_{each.name}", each.meaning, labels=["cache", *each.labels])
                for cache, stats in named:
                    for labels, value in each.values(stats):
                        family.add_metric([cache, *labels], value)
                yield family
        yield _seconds(named)


def _seconds(named: list[tuple[str, Stats]]) -> SummaryMetricFamily:
    family = SummaryMetricFamily(
        "kvcanon_operation_seconds",
        "Time in calls of an operation, waiting for copies included.",
        labels=["cache", "operation"],
    )
    for cache, stats in named:
        for name, each in stats.operations.items():
            family.add_metric([cache, name], each.calls, each.seconds)
    return family


# --------------------------------------------------------------------------------------------------
# What is told
# --------------------------------------------------------------------------------------------------


def _one(value: Callable[[Stats], float]) -> Callable[[Stats], Values]:
    def values(stats: Stats) -> Values:
        yield (), value(stats)

    return values


def _hits(stats: Stats) -> Values:
    for medium, tokens in stats.hit_tokens.items():
        yield (medium,), tokens


def _evicted(stats: Stats) -> Values:
    causes = {
        "asked": stats.evicted_asked,
        "load_back": stats.evicted_for_load,
        "host": stats.evicted_host,
    }
    for cause, slots in causes.items():
        for component in COMPONENTS:
            yield (component, cause), slots[component]


def _transfers(stats: Stats) -> Values:
    yield ("backup",), stats.backups
    yield ("load_back",), stats.load_backs


def _ends(stats: Stats) -> Values:
    yield ("done",), stats.transfers_done
    yield ("failed",), stats.transfers_failed
    yield ("cancelled",), stats.transfers_cancelled


def _moved(stats: Stats) -> Values:
    yield ("backup",), stats.backup_bytes
    yield ("load_back",), stats.load_back_bytes


def _refused(stats: Stats) -> Values:
    for name, each in stats.operations.items():
        yield (name,), each.refused


def _slots(stats: Stats) -> Values:
    for (component, medium), pool in stats.pools.items():
        states = {
            "free": pool.free_slots,
            "held": pool.held_slots,
            "protected": pool.protected_slots,
            "evictable": pool.cached_slots - pool.protected_slots,
        }
        for state, slots in states.items():
            yield (component, medium, state), slots


def _capacity(stats: Stats) -> Values:
    for (component, medium), pool in stats.pools.items():
        yield (component, medium), pool.capacity_slots


COUNTERS = (
    Told("matches", "Prompts that were matched.", _one(lambda s: s.matches)),
    Told(
        "asked_tokens",
        "Tokens of matched prompts, in whole pages.",
        _one(lambda s: s.asked_tokens),
    ),
    Told(
        "hit_tokens",
        "Tokens of matched prompts that were cached; those on the host need a load-back.",
        _hits,
        ("medium",),
    ),
    Told("inserts", "Prompts that were inserted.", _one(lambda s: s.inserts)),
    Told(
        "inserted_tokens",
        "Tokens whose full data the tree took over.",
        _one(lambda s: s.inserted_tokens),
    ),
    Told(
        "duplicate_tokens",
        "Tokens whose full data was computed though it was cached, and freed.",
        _one(lambda s: s.duplicate_tokens),
    ),
    Told(
        "evicted_slots",
        "Slots that evictions freed: on the device when asked or for a load-back, or on the host.",
        _evicted,
        ("component", "cause"),
    ),
    Told(
        "transfers",
        "Copies between device and host that were enqueued.",
        _transfers,
        ("direction",),
    ),
    Told("settled_transfers", "Copies that ended, by how they did.", _ends, ("status",)),
    Told(
        "transferred_bytes",
        "Bytes that were copied between device and host.",
        _moved,
        ("direction",),
    ),
    Told(
        "declined_backup_pages",
        "Pages that were to be backed up, and for which the host had no room.",
        _one(lambda s: s.declined_backup_pages),
    ),
    Told("events", "Events, one a page, taken or not.", _one(lambda s: s.events)),
    Told(
        "refused_calls",
        "Calls that were refused and changed nothing.",
        _refused,
        ("operation",),
    ),
)

GAUGES = (
    Told(
        "slots",
        "Slots: free, held by a request, or cached and locked (protected) or not (evictable).",
        _slots,
        ("component", "medium", "state"),
    ),
    Told("capacity_slots", "Slots that a pool has.", _capacity, ("component", "medium")),
    Told(
        "transfers_in_flight",
        "Copies that were enqueued and have not settled.",
        _one(lambda s: s.transfers_in_flight),
    ),
    Told(
        "pending_events",
        "Events that nobody has taken, one a stretch of pages.",
        _one(lambda s: s.events_pending),
    ),
    Told("nodes", "Nodes of the tree.", _one(lambda s: s.nodes)),
    Told(
        "receipts",
        "Locks that are open, one for each copy in flight among them.",
        _one(lambda s: s.receipts),
    ),
)
