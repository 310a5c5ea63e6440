"""Metrics of watched streams for Prometheus, read at each scrape.

start_metrics(watch, 9090)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcanon.live.watch import StreamWatch, hit_potential

Close: TypeAlias = Callable[[], None]

_SOURCE, _BOOK = ["source"], ["source", "rank", "group"]
_COUNTERS = {
    "batches": "Batches that were folded.",
    "events": "Events of those batches.",
    "pages": "Stores and removes of one block each.",
    "malformed": "Frames that could not be read.",
    "gaps": "Gaps in the sequence that no replay filled.",
    "lost": "Batches in those gaps.",
    "replayed": "Batches that a replay gave.",
    "repeated": "Batches that arrived twice.",
    "restarts": "Times that another publisher took the place of one.",
}
_GAUGES = {
    "stream_lag_seconds": ("From the time of the last batch to its arrival.", _SOURCE),
    "cache_blocks": ("Blocks on a medium, by its events.", [*_BOOK, "medium"]),
    "cache_tokens": ("Tokens that prompts can hit, on any medium.", _BOOK),
    "cache_came_back_ratio": ("Share of new blocks that had left not long before.", _BOOK),
    "cache_ledger_bytes": ("Memory that holds the blocks here.", _BOOK),
}


class StreamCollector(Collector):
    """Collects the figures of a watch."""

    def __init__(self, watch: StreamWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """Give every metric."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, meaning in _COUNTERS.items():
            families[name] = CounterMetricFamily(f"kvcanon_stream_{name}", meaning, labels=_SOURCE)
        broken = families["violations"] = CounterMetricFamily(
            "kvcanon_stream_violations", "Broken laws.", labels=[*_SOURCE, "law"]
        )
        for name, (meaning, labels) in _GAUGES.items():
            families[name] = GaugeMetricFamily(f"kvcanon_{name}", meaning, labels=labels)
        for follower in list(self._watch.streams.followers):
            source = self._watch.subscriber.sources[follower.source].endpoint
            for name in _COUNTERS:
                families[name].add_metric([source], getattr(follower.counts, name))
            for law, number in follower.counts.by_law.items():
                broken.add_metric([source, law], number)
            if follower.source in self._watch.lags:
                lag = self._watch.lags[follower.source]
                families["stream_lag_seconds"].add_metric([source], lag)
            for book in follower.books():
                values = [source, str(book.rank), str(book.group)]
                for medium, number in book.blocks().items():
                    families["cache_blocks"].add_metric([*values, medium], number)
                held, share = hit_potential(book.counts)
                families["cache_tokens"].add_metric(values, held)
                families["cache_came_back_ratio"].add_metric(values, share)
                families["cache_ledger_bytes"].add_metric(values, book.counts["bytes"])
        yield from families.values()


def start_metrics(watch: StreamWatch, port: int, address: str = "127.0.0.1") -> tuple[int, Close]:
    """Serve the metrics over HTTP, and return the port and what ends it. Raises: OSError."""
    registry = CollectorRegistry()
    registry.register(StreamCollector(watch))
    server, thread = start_http_server(port, addr=address, registry=registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, close
