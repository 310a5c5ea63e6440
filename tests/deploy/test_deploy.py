"""What runs a watch beside engines: rules, board, manifest and image name what there is."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from typing import Any

import pytest
from attrs import evolve
from ruamel.yaml import YAML

from kvcanon.conformance.cli import main
from kvcanon.live import Subscriber
from kvcanon.live.discovery import NotFound
from kvcanon.live.follower import Streams
from kvcanon.live.frames import Source
from kvcanon.live.metrics import StreamCollector
from kvcanon.live.watch import StreamWatch
from paths import ROOT
from promql import Labels, Scrape, firing, metrics_in
from sent_events import CLEARED, frame, store

DEPLOY = ROOT / "deploy"
RULES = YAML(typ="safe").load(DEPLOY / "alerts.yml")["groups"][0]["rules"]
EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in RULES}
BOARD = json.loads((DEPLOY / "board.json").read_text(encoding="utf-8"))
MANIFEST = list(YAML(typ="safe").load_all(DEPLOY / "watch.yaml"))
GOOD, BAD = "tcp://good:1", "tcp://bad:1"


def scrape_of(watch: StreamWatch, at: float) -> Scrape:
    """What Prometheus would have of a watch."""
    values: dict[str, dict[Labels, float]] = defaultdict(dict)
    for family in StreamCollector(watch).collect():
        for sample in family.samples:
            values[sample.name][frozenset(sample.labels.items())] = float(sample.value)
    return Scrape(at, values)


def watched() -> StreamWatch:
    """A watch of two publishers, of which nobody is there."""
    return StreamWatch(Subscriber([Source(GOOD), Source(BAD)]), Streams())


def known() -> set[str]:
    """The names of all metrics, as they are served."""
    with (watch := watched()).subscriber:
        families = list(StreamCollector(watch).collect())
    return {each.name + "_total" * (each.type == "counter") for each in families}


def alerts(scrapes: list[Scrape]) -> dict[str, list[str]]:
    """The alerts that fire, with the publishers that they are about."""
    found = {name: firing(expression, scrapes) for name, expression in EXPRESSIONS.items()}
    return {name: [each.get("source", "") for each in on] for name, on in found.items() if on}


def test_rules_and_panels_name_metrics_that_are_served() -> None:
    """Each expression is PromQL, and of metrics that there are."""
    shown = [
        target["expr"].replace("$source", ".*")
        for panel in BOARD["panels"]
        for target in panel["targets"]
    ]
    assert len(shown) > 12
    for expression in (*EXPRESSIONS.values(), *shown):
        assert metrics_in(expression)
        assert metrics_in(expression) <= known()
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in BOARD["panels"]]
    assert len(set(places)) == len(places)


def test_alerts_fire_for_what_goes_wrong() -> None:
    """A violation, a gap, and a rank that is silent, each at the publisher that it is about."""
    with (watch := watched()).subscriber:
        began = 1_000_000.0

        def sent(number: int, *events: object, at: float, source: int = 1) -> Scrape:
            watch.streams.take(evolve(frame(number, *events, source=source), received=at))
            return scrape_of(watch, at)

        sent(0, CLEARED, at=began, source=0)
        first = sent(0, CLEARED, at=began)
        sound = sent(1, store([10]), at=began + 60)
        sent(1, store([10]), at=began + 60, source=0)
        assert set(alerts([first, sound])) == {"KvPublisherDown"}
        broken = sent(2, store([10]), at=began + 120)
        assert alerts([first, sound, broken])["KvEventsBroken"] == [BAD]
        lost = sent(9, store([20]), at=began + 180)
        assert alerts([first, sound, broken, lost])["KvEventsLost"] == [BAD]
        late = evolve(scrape_of(watch, began + 700), at=began + 700)
        assert alerts([late])["KvPublisherSilent"] == [GOOD]
        gone = {**late.values, "kvcanon_stream_state": _gone(late)}
        assert "KvPublisherSilent" not in alerts([Scrape(late.at, gone)])
    assert alerts([Scrape(began, {})]) == {"KvWatchAbsent": [""]}


def _gone(scrape: Scrape) -> dict[Labels, float]:
    """The states, with both publishers gone."""
    states = scrape.values["kvcanon_stream_state"]
    return {labels: float(("state", "gone") in labels) for labels in states}


@pytest.fixture
def nobody_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name has an address here; a real lookup may take longer than a watch runs."""

    def refuse(place: str) -> list[Source]:
        raise NotFound(f"{place} has no address now")

    monkeypatch.setattr("kvcanon.live.discovery.find_sources", refuse)


@pytest.mark.usefixtures("nobody_has_the_name")
def test_the_manifest_runs_a_watch(capsys: pytest.CaptureFixture[str]) -> None:
    """Its arguments are a command's, its probes ask what is served, and it may do little."""
    deployment, service = MANIFEST
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # Nothing is heard: the end is 1, and not 2 of a wrong argument.
    given = [
        each.replace("=9400", "=0").replace("address=0.0.0.0", "address=127.0.0.1")
        for each in container["args"]
    ]
    assert main(["watch", *given, "--seconds", "1"]) == 1
    assert "dns://vllm-headless:5557/5558 has no address now" in capsys.readouterr().out
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert f"--metrics-port={ports['metrics']}" in container["args"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == deployment["spec"]["selector"]["matchLabels"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_image_runs_the_command_of_the_manifest() -> None:
    """It takes the files that a checkout has, and its user and port are those of the manifest."""
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    last = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line[:1].isupper()}
    assert json.loads(last["ENTRYPOINT"]) == ["kvcanon", "watch"]
    pod = MANIFEST[0]["spec"]["template"]["spec"]
    assert last["USER"].split(":")[0] == str(pod["securityContext"]["runAsUser"])
    assert last["EXPOSE"] == str(pod["containers"][0]["ports"][0]["containerPort"])
    assert (ROOT / "constraints.txt").exists()
    assert "constraints.txt" in shlex.split(" ".join(lines).replace("'", ""))
