"""A real Prometheus takes the rules, and answers every query of the board and of the alerts."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator

import pytest
import zmq
from attrs import evolve, frozen
from ruamel.yaml import YAML

from kvcanon.live import Subscriber
from kvcanon.live.discovery import Discovery
from kvcanon.live.follower import Streams
from kvcanon.live.frames import Source
from kvcanon.live.metrics import start_metrics
from kvcanon.live.watch import StreamWatch
from loopback import ANY, free_source, until
from paths import ROOT
from prometheus import Prometheus, prometheus_of
from sent_events import CLEARED, batch, frame, store

pytestmark = pytest.mark.nightly

RULES = ROOT / "deploy" / "alerts.yml"
ALERTS = {
    rule["alert"]: rule["expr"] for rule in YAML(typ="safe").load(RULES)["groups"][0]["rules"]
}
PANELS = json.loads((ROOT / "deploy" / "board.json").read_text(encoding="utf-8"))["panels"]
TARGETS = [
    pytest.param(panel["title"], target, id=f"{panel['title']}-{target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]
DAY_S = 86_400.0
LATER_S = 100.0
"""Later than a watch that goes on, and sooner than Prometheus forgets the last scrape."""


@frozen
class Watched:
    """A Prometheus that has scraped a watch, and the publishers of that watch."""

    prometheus: Prometheus
    at: float
    broken: str
    quiet: str
    down: str


@pytest.fixture(scope="module", name="watched")
def watch_that_is_scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One publisher breaks a law, loses a batch and is late, one is quiet, one is not there."""
    folder = tmp_path_factory.mktemp("prometheus")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.PUB) as socket:
        socket.set(zmq.LINGER, 0)
        socket.bind(ANY)
        broken = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        quiet, down = free_source().endpoint, free_source().endpoint
        watch = StreamWatch(Subscriber([Source(each) for each in (broken, quiet, down)]), Streams())
        watch.discovery = Discovery(str(folder / "missing"), every_s=0.5)
        long_ago = time.time() - 2 * 600
        watch.streams.take(evolve(frame(0, CLEARED, source=1), received=long_ago))
        sent = [0]

        def send(*events: object, skip: int = 0) -> None:
            sent[0] += skip
            payload = batch(*events, at=time.time() - 30)
            socket.send_multipart((b"kv", sent[0].to_bytes(8, "big"), payload))
            sent[0] += 1

        port, close = start_metrics(watch, 0)
        web = int(free_source().endpoint.rpartition(":")[2])
        with watch.subscriber, prometheus_of(folder, port, web, RULES) as server:

            def go_on() -> None:
                send(store([10 * sent[0]]))
                watch.step(0.1)

            def is_scraped() -> bool:
                found = f'kvcanon_stream_batches_total{{source="{broken}"}} > 0'
                return server.is_ready() and bool(server.query(found, time.time()))

            until(is_scraped, go_on)
            send(store([10]), skip=2)

            def fire() -> bool:
                at = time.time()
                return all(
                    server.query(ALERTS[name], at) for name in ("KvEventsBroken", "KvEventsLost")
                )

            until(fire, go_on)
            until(
                lambda: bool(server.query("ALERTS{alertname='KvEventsLost'}", time.time())), go_on
            )
            yield Watched(server, time.time(), broken, quiet, down)
        close()


def test_promtool_takes_the_rules() -> None:
    """Prometheus's own check of a file of rules."""
    command = ["promtool", "check", "rules", str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.parametrize(("title", "target"), TARGETS)
def test_panels_have_series(title: str, target: dict[str, str], watched: Watched) -> None:
    """Each query of the board answers, with the labels that its legend names."""
    for source in (".*", re.escape(watched.broken)):
        query = target["expr"].replace("$source", source.replace("\\", "\\\\"))
        series = watched.prometheus.query(query, watched.at)
        assert series, f"{title}: {query}"
        for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
            assert all(label in each for each in series), (label, series)


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_are_about_what_is_wrong(name: str, watched: Watched) -> None:
    """Each rule holds for the publisher that it is about, and for no other."""
    expected = {
        "KvEventsBroken": (0.0, [watched.broken]),
        "KvEventsLost": (0.0, [watched.broken]),
        "KvPublisherDown": (0.0, [watched.quiet, watched.down]),
        "KvPublisherSilent": (0.0, [watched.quiet]),
        "KvEventsLate": (0.0, [watched.broken]),
        "KvCacheInPart": (0.0, [watched.broken]),
        "KvWatchStuck": (LATER_S, [""]),
        "KvWatchProblem": (0.0, [""]),
        "KvWatchAbsent": (DAY_S, [""]),
    }
    later, sources = expected[name]
    found = watched.prometheus.query(ALERTS[name], watched.at + later)
    assert sorted({each.get("source", "") for each in found}) == sorted(sources)


def test_rules_are_evaluated(watched: Watched) -> None:
    """Prometheus itself evaluates all of them, and fires or waits for those that hold."""
    (group,) = watched.prometheus.get("rules")["groups"]
    assert {each["name"] for each in group["rules"]} == set(ALERTS)
    states = {each["name"]: each["state"] for each in group["rules"]}
    assert {each["health"] for each in group["rules"]} == {"ok"}
    assert states["KvEventsBroken"] == states["KvEventsLost"] == "firing"
    assert states["KvPublisherDown"] == states["KvEventsLate"] == "pending"
    assert states["KvWatchAbsent"] == states["KvWatchStuck"] == "inactive"
