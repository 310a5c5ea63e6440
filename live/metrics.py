"""Metrics of watched streams for Prometheus, read at each scrape.

start_metrics(watch, 9090)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcanon.live.dashboard import hit_potential
from kvcanon.live.follower import BookView, Follower
from kvcanon.live.watch import StreamWatch

Close: TypeAlias = Callable[[], None]

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


class StreamCollector(Collector):
    """Collects the figures of a watch."""

    def __init__(self, watch: StreamWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """Give every metric."""
        followers = list(self._watch.streams.followers)
        for name, meaning in _COUNTERS.items():
            family = CounterMetricFamily(f"kvcanon_stream_{name}", meaning, labels=["source"])
            for follower in followers:
                family.add_metric([self._name(follower)], getattr(follower.counts, name))
            yield family
        broken = CounterMetricFamily(
            "kvcanon_stream_violations", "Broken laws.", labels=["source", "law"]
        )
        for follower in followers:
            for law, number in follower.counts.by_law.items():
                broken.add_metric([self._name(follower), law], number)
        yield broken
        lag = GaugeMetricFamily(
            "kvcanon_stream_lag_seconds",
            "From the time of the last batch to its arrival.",
            labels=["source"],
        )
        for number, seconds in self._watch.lags.items():
            lag.add_metric([self._name(followers[number])], seconds)
        yield lag
        yield from self._books(
            [(follower, book) for follower in followers for book in follower.books()]
        )

    def _books(self, books: list[tuple[Follower, BookView]]) -> Iterator[Metric]:
        labels = ["source", "rank", "group"]
        blocks = GaugeMetricFamily(
            "kvcanon_cache_blocks", "Blocks on a medium, by its events.", labels=[*labels, "medium"]
        )
        tokens = GaugeMetricFamily(
            "kvcanon_cache_tokens", "Tokens that prompts can hit, on any medium.", labels=labels
        )
        came_back = GaugeMetricFamily(
            "kvcanon_cache_came_back_ratio",
            "Share of new blocks that had left not long before.",
            labels=labels,
        )
        memory = GaugeMetricFamily(
            "kvcanon_cache_ledger_bytes", "Memory that holds the blocks here.", labels=labels
        )
        for follower, book in books:
            values = [self._name(follower), str(book.rank), str(book.group)]
            for medium, number in book.blocks().items():
                blocks.add_metric([*values, medium], number)
            held, share = hit_potential(book.counts)
            tokens.add_metric(values, held)
            came_back.add_metric(values, share)
            memory.add_metric(values, book.counts["bytes"])
        yield from (blocks, tokens, came_back, memory)

    def _name(self, follower: Follower) -> str:
        return self._watch.subscriber.sources[follower.source].endpoint


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
