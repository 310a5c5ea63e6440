"""Metrics of watched streams for Prometheus, read at each scrape, and whether the watch is well.

start_metrics(watch, 9090)
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvcanon.live.dashboard import hit_potential
from kvcanon.live.follower import BookView, FollowerCounts
from kvcanon.live.watch import PublisherState, StreamWatch

Close: TypeAlias = Callable[[], None]
Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily

POLL_S = 0.05
"""How soon the server sees that it is to end."""
STUCK_AFTER_S = 10.0
"""A watch whose last step ended so long ago is not well."""
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
_BOOK_COUNTERS = {
    "unjudged": "What could have broken a law, had the whole stream been seen.",
    "unverified": "Hashes that could not be computed from their tokens.",
    "verified": "Hashes that were computed from their tokens and agreed.",
    "repeated": "Stores of blocks that were there, where that is no violation.",
}
_GAUGES = {
    "stream_up": ("Whether the publisher is followed and connected.", _SOURCE),
    "stream_state": ("The state of the publisher: 1 for the one that it has.", [*_SOURCE, "state"]),
    "stream_last_batch_timestamp_seconds": (
        "When the last frame came, since 1970; 0 before the first.",
        _SOURCE,
    ),
    "stream_lag_seconds": ("From the time of the last batch to its arrival.", _SOURCE),
    "cache_blocks": ("Blocks on a tier, by its events.", [*_BOOK, "medium"]),
    "cache_tokens": ("Tokens that prompts can hit, on any medium.", _BOOK),
    "cache_came_back_ratio": ("Share of new blocks that had left not long before.", _BOOK),
    "cache_complete": ("Whether all was seen since the last clear.", _BOOK),
    "cache_group_info": ("What the layers of a group keep.", [*_BOOK, "kind", "window"]),
    "cache_ledger_bytes": ("Memory that holds the blocks here.", _BOOK),
}
WATCH_METRICS = {
    "watch_step_timestamp_seconds": "When the watch was last ready for more, since 1970.",
    "watch_recording": "Whether frames are being recorded.",
    "watch_problem": "Whether something is wrong beside the streams, as a place of discovery.",
}


class StreamCollector(Collector):
    """Collects the figures of a watch."""

    def __init__(self, watch: StreamWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """Give every metric; each publisher has its series from the start."""
        families = _families()
        watch = self._watch
        for number, source in enumerate(watch.subscriber.sources):
            follower = watch.follower(number)
            counts = follower.counts if follower is not None else FollowerCounts()
            self._add_stream(families, number, source.name, counts)
            for book in follower.books() if follower is not None else ():
                _add_book(families, source.name, book)
        step_at = time.time() - (time.monotonic() - watch.stepped)
        families["watch_step_timestamp_seconds"].add_metric([], step_at)
        families["watch_recording"].add_metric([], watch.recorder is not None)
        families["watch_problem"].add_metric([], watch.problem is not None)
        yield from families.values()

    def _add_stream(
        self, families: dict[str, Family], number: int, name: str, counts: FollowerCounts
    ) -> None:
        watch, state = self._watch, self._watch.state(number)
        for counter in _COUNTERS:
            families[f"stream_{counter}"].add_metric([name], getattr(counts, counter))
        families["stream_found"].add_metric([name], sum(counts.by_law.values()))
        for (law, group), times in list(counts.by_group.items()):
            labels = [name, law, "" if group is None else str(group)]
            families["stream_violations"].add_metric(labels, times)
        families["stream_up"].add_metric([name], bool(watch.subscriber.is_connected(number)))
        for each in PublisherState:
            families["stream_state"].add_metric([name, each], each is state)
        last = watch.last_received(number) or 0.0
        families["stream_last_batch_timestamp_seconds"].add_metric([name], last)
        if number in watch.lags:
            families["stream_lag_seconds"].add_metric([name], watch.lags[number])


def _families() -> dict[str, Family]:
    families: dict[str, Family] = {}
    for name, meaning in _COUNTERS.items():
        family = CounterMetricFamily(f"kvcanon_stream_{name}", meaning, labels=_SOURCE)
        families[f"stream_{name}"] = family
    families["stream_found"] = CounterMetricFamily(
        "kvcanon_stream_found", "Broken laws of any kind, from 0 on.", labels=_SOURCE
    )
    families["stream_violations"] = CounterMetricFamily(
        "kvcanon_stream_violations", "Broken laws.", labels=[*_SOURCE, "law", "group"]
    )
    for name, meaning in _BOOK_COUNTERS.items():
        family = CounterMetricFamily(f"kvcanon_cache_{name}", meaning, labels=_BOOK)
        families[f"cache_{name}"] = family
    for name, (meaning, labels) in _GAUGES.items():
        families[name] = GaugeMetricFamily(f"kvcanon_{name}", meaning, labels=labels)
    for name, meaning in WATCH_METRICS.items():
        families[name] = GaugeMetricFamily(f"kvcanon_{name}", meaning, labels=[])
    return families


def _add_book(families: dict[str, Family], name: str, book: BookView) -> None:
    values = [name, str(book.rank), str(book.group)]
    for tier, number in book.blocks().items():
        families["cache_blocks"].add_metric([*values, tier], number)
    held, share = hit_potential(book.counts)
    figures = {
        "tokens": held,
        "came_back_ratio": share,
        "complete": float(book.complete),
        "ledger_bytes": book.counts["bytes"],
        "unjudged": book.counts["unjudged"],
        "unverified": book.counts["unverified"],
        "verified": book.counts["verified"],
        "repeated": book.counts["repeated"],
    }
    for figure, value in figures.items():
        families[f"cache_{figure}"].add_metric(values, value)
    info = [*values, book.kind.name.lower(), str(book.counts["window"])]
    families["cache_group_info"].add_metric(info, 1)


# The server.


class _Server(ThreadingMixIn, WSGIServer):
    """Serves each request in a thread that nobody waits for."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    """Logs nothing, and waits for no slow client."""

    timeout = 10

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def health(watch: StreamWatch) -> tuple[bool, dict[str, object]]:
    """Whether the watch goes on, and the states of its publishers."""
    is_well = time.monotonic() - watch.stepped < STUCK_AFTER_S
    states = Counter(str(watch.state(each)) for each in range(len(watch.subscriber.sources)))
    told: dict[str, object] = {"ok": is_well, "publishers": dict(states), "problem": watch.problem}
    return is_well, told | {"violations": watch.streams.total}


def _application(watch: StreamWatch) -> WSGIApplication:
    registry = CollectorRegistry()
    registry.register(StreamCollector(watch))
    metrics = make_wsgi_app(registry)

    def serve(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/healthz":
            answered: Iterable[bytes] = metrics(environ, start)
            return answered
        is_well, told = health(watch)
        status = "200 OK" if is_well else "503 Service Unavailable"
        start(status, [("Content-Type", "application/json")])
        return [json.dumps(told).encode() + b"\n"]

    return serve


def start_metrics(watch: StreamWatch, port: int, address: str = "127.0.0.1") -> tuple[int, Close]:
    """Serve `/metrics` and `/healthz`, and return the port and what ends it. Raises: OSError."""
    kind = _Server6 if ":" in address else _Server
    server = make_server(address, port, _application(watch), kind, handler_class=_Quiet)
    thread = Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, close
