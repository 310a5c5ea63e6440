"""Metrics: the statistics of caches, for Prometheus.

The native core counts, and a scrape reads its counters, so metrics cost cache calls nothing.
Register one collector for all caches of the process:

    REGISTRY.register(CacheCollector({"rank 0": cache}))

Counters are read at each scrape. If a cache is dropped between two scrapes, its counts since the
earlier scrape are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from attrs import frozen

from kvcanon.optimized.codes import COMPONENTS
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.stats import Stats

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
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
class MetricSpec:
    """A metric: its name, its help text, and how to read its values."""

    name: str
    meaning: str
    values: Callable[[Stats], Values]
    labels: tuple[str, ...] = ()
    """In addition to the name of the cache."""


class CacheCollector(Collector):
    """Collects the metrics of caches, by name, for a Prometheus registry.

    Caches that are added to the mapping later are collected from then on.
    """

    def __init__(self, caches: Mapping[str, PrefixCache]) -> None:
        self._caches = caches

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, with the values of every cache."""
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
        "Time in calls of an operation, including waiting for copies.",
        labels=["cache", "operation"],
    )
    for cache, stats in named:
        for name, each in stats.operations.items():
            family.add_metric([cache, name], each.calls, each.seconds)
    return family


# --------------------------------------------------------------------------------------------------
# The metrics
# --------------------------------------------------------------------------------------------------


def _plain(name: str, meaning: str, field: str | None = None) -> MetricSpec:
    """A metric without labels, which is a field of the statistics: of that name, or another."""

    def values(stats: Stats) -> Values:
        yield (), getattr(stats, field or name)

    return MetricSpec(name, meaning, values)


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


def _staging(stats: Stats) -> Values:
    for medium, size_bytes in stats.staging_bytes.items():
        yield (medium,), size_bytes


def _of_calls(field: str) -> Callable[[Stats], Values]:
    """A count of the calls to the store, for each kind of orders."""

    def values(stats: Stats) -> Values:
        if stats.store is not None:
            for kind, calls in stats.store.calls.items():
                yield (stats.store.medium, kind), getattr(calls, field)

    return values


def _calls(stats: Stats) -> Values:
    if stats.store is None:
        return
    for kind, each in stats.store.calls.items():
        bad = {"failed": each.failed_calls, "given_up": each.given_up_calls}
        for outcome, calls in {"answered": each.calls - sum(bad.values()), **bad}.items():
            yield (stats.store.medium, kind, outcome), calls


def _of_store(name: str, meaning: str, field: str) -> MetricSpec:
    """A metric of the store below the host, where there is one."""

    def values(stats: Stats) -> Values:
        if stats.store is not None:
            yield (stats.store.medium,), float(getattr(stats.store, field))

    return MetricSpec(name, meaning, values, ("medium",))


CALLS = ("medium", "order")

COUNTERS = (
    _plain("matches", "Matched prompts."),
    _plain("asked_tokens", "Tokens of matched prompts, in whole pages."),
    MetricSpec(
        "hit_tokens",
        "Prefix hits in tokens; those on the host need a load-back.",
        _hits,
        ("medium",),
    ),
    _plain("inserts", "Inserted prompts."),
    _plain("inserted_tokens", "Tokens whose full data the tree adopted."),
    _plain("duplicate_tokens", "Tokens whose full data was computed again though it was cached."),
    MetricSpec(
        "evicted_slots",
        "Evicted slots: from the device by `evict` or for a load-back, or from the host.",
        _evicted,
        ("component", "cause"),
    ),
    MetricSpec("transfers", "Enqueued copies between device and host.", _transfers, ("direction",)),
    MetricSpec("settled_transfers", "Copies that ended, by status.", _ends, ("status",)),
    MetricSpec(
        "transferred_bytes", "Bytes copied between device and host.", _moved, ("direction",)
    ),
    _plain(
        "declined_backup_pages",
        "Pages that were not backed up, because the host had too few free slots.",
    ),
    _plain("events", "Emitted events, one for each page."),
    _plain(
        "dropped_events",
        "Events that were dropped because too many waited, one for each page.",
        "events_dropped",
    ),
    MetricSpec("refused_calls", "Refused calls, which changed nothing.", _refused, ("operation",)),
    MetricSpec(
        "store_calls",
        "Calls to the store below the host: answered, failed, or given up at their deadline.",
        _calls,
        (*CALLS, "outcome"),
    ),
    MetricSpec("store_pages", "Pages written to the store, or fetched.", _of_calls("pages"), CALLS),
    MetricSpec("store_bytes", "Bytes of these pages.", _of_calls("bytes"), CALLS),
    MetricSpec(
        "store_missed_pages",
        "Pages that the store did not have, or refused.",
        _of_calls("missed_pages"),
        CALLS,
    ),
    MetricSpec(
        "store_passed_over_pages",
        "Pages that the store was not asked for: it was left alone, or too many waited.",
        _of_calls("passed_over_pages"),
        CALLS,
    ),
    _of_store(
        "store_damaged_pages",
        "Fetched pages that did not prove to be what was written.",
        "damaged_pages",
    ),
    _of_store("store_rests", "How often the store was left alone after a failure.", "rests"),
)

GAUGES = (
    MetricSpec(
        "slots",
        "Slots: free, held by a request, or cached and locked (protected) or not (evictable).",
        _slots,
        ("component", "medium", "state"),
    ),
    MetricSpec("capacity_slots", "Slots of a pool.", _capacity, ("component", "medium")),
    _plain("transfers_in_flight", "Copies that have not settled yet."),
    _plain(
        "pending_events",
        "Events that were not taken yet, one for each run of pages.",
        "events_pending",
    ),
    MetricSpec(
        "staging_bytes",
        "Memory that the engine of copies holds beside the pools.",
        _staging,
        ("medium",),
    ),
    _of_store("store_resting", "1 while the store is left alone after a failure.", "is_resting"),
    _of_store("store_late_calls", "Calls that were given up and have not returned.", "late_calls"),
    _of_store("store_waiting_pages", "Pages that wait to be written.", "waiting_pages"),
    _plain("nodes", "Nodes of the tree."),
    _plain("receipts", "Open receipts, including one for each copy in flight."),
    _plain("namespaces", "Namespaces that have pages or events, or had a short time ago."),
)
