"""Planted faults are found, and nothing is found in a sound engine, in both dialects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.engine_faults import FAULTS
from fakes.engine_server import ServedAs, engine_at
from fakes.model import FakeEngine, config_of
from kvcanon.conformance.probe import beside, session
from kvcanon.live import Publisher
from nights import at_night
from probing import ANY, ENGINES, fault_at, kinds, options_for, probe_json, replacing

PLANTED = [
    (name, dialect)
    for name, fault in FAULTS.items()
    if not fault.needs_events
    for dialect in fault.dialects
]
IN_EVENTS = [name for name, fault in FAULTS.items() if fault.needs_events]

TRIES = 8
"""How often a script is run until it shows its fault."""


@pytest.fixture(autouse=True)
def _soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The publisher is in this process, and its events come at once; few requests are enough."""
    monkeypatch.setattr(beside, "QUIET_SECONDS", 0.004)
    for name in ("REDUCE_SECONDS", "KEPT_FOR_REDUCTION"):
        monkeypatch.setattr(session, name, 1.0)


LONG = [(name, dialect) for name, dialect in PLANTED if name.startswith("preemption")]
"""Of these faults one dialect is enough by day."""


@pytest.mark.parametrize(
    ("name", "dialect"),
    [*[each for each in PLANTED if each not in LONG[1:]], *at_night(*LONG[1:])],
)
def test_planted_fault_is_found_and_its_script_shows_it(
    name: str, dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fault is found as what it is; the script ends with 1 while it is there."""
    fault, script = FAULTS[name], tmp_path / "shows.py"
    with fault_at(fault, dialect) as (url, options):
        code, report = probe_json(capsys, url, *options, "--script", str(script))
        assert code == 1
        assert kinds(report) & {kind.words for kind in fault.found_as}
        if fault.replaced:
            # It takes another change to show it.
            return
        # How far a request gets before it is aborted depends on how busy the machine is.
        # A fault that takes something from the server each time leaves nothing for many tries.
        for _ in range(TRIES if report["findings"][0]["repeated"] else 1):
            played = subprocess.run(
                [sys.executable, "-I", str(script), url],
                capture_output=True,
                text=True,
                check=False,
            )
            if played.returncode == 1:
                break
    checked = played.stdout.count("can be cached") + played.stdout.count("the fault does not show")
    assert played.returncode == 1 or not report["findings"][0]["repeated"], played.stdout
    assert played.stderr.strip() == "the fault shows" or checked, played.stderr


@pytest.mark.parametrize("name", IN_EVENTS)
def test_lost_event_is_found_beside_the_answers(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a stream promises is compared with what is served, request by request."""
    fault = FAULTS[name]
    with (
        Publisher(ANY, binds_endpoint=True) as sender,
        fault_at(fault, "sglang", sender) as (url, options),
    ):
        code, report = probe_json(capsys, url, *options, "--events", sender.endpoint)
    assert code == 1
    assert kinds(report) & {kind.words for kind in fault.found_as}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["speculative", "chat"])
def test_sound_engine_of_another_kind_has_no_finding(
    kind: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten seeds with a draft model, in both dialects, and ten of servers that only chat."""
    dialect = "chat" if kind == "chat" else ("sglang", "vllm")[seed % 2]
    engine = ENGINES[seed // 2]
    served = FakeEngine(config_of(**engine))
    served.speculates = kind == "speculative"
    # A request is taken back where its reply finds no room, as engines do.
    served.grows = seed % 3 == 0
    with engine_at(served, ServedAs(dialect)) as url:
        changed = replacing(url, None, "tuned")
        options = options_for(dialect, engine)
        code, report = probe_json(capsys, url, *options, "--seed", str(seed), "--changed", changed)
    assert (code, report["findings"]) == (0, [])
    assert sum(each["with_hits"] for each in report["rounds"]) > 30
    assert not any(each["cut_short"] for each in report["rounds"])
    assert not report["missing"]


@pytest.mark.parametrize("seed", range(10))
def test_sound_engine_has_no_finding(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten seeds, on engines of all sorts, in both dialects: nothing is found."""
    dialect, engine = ("sglang", "vllm")[seed % 2], ENGINES[seed // 2]
    with (
        Publisher(ANY, dialect=dialect, binds_endpoint=True) as sender,
        engine_at(FakeEngine(config_of(**engine), None, sender), ServedAs(dialect)) as url,
    ):
        options = options_for(dialect, engine)
        code, report = probe_json(
            capsys, url, *options, "--seed", str(seed), "--events", sender.endpoint
        )
    assert (code, report["findings"]) == (0, [])
    assert report["beside_the_stream"]["requests"] > 40
    assert sum(each["with_hits"] for each in report["rounds"]) > 30
    assert not any(each["cut_short"] for each in report["rounds"])
