"""`kvcanon check` on the command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from kvcanon.conformance.cli import main
from kvcanon.conformance.report.json_report import SCHEMA
from kvcanon.conformance.search import check as judging
from kvcanon.conformance.search.campaign import Workers
from kvcanon.conformance.search.effort import EFFORTS
from kvcanon.conformance.search.finding import Finding, Grounds
from kvcanon.conformance.search.plan import CheckPlan, StageOutcome
from kvcanon.conformance.search.result import Failure, StageResult
from kvcanon.spec.law import LAWS
from paths import DOCS, HELPERS
from reported import SERVE, failure_in

CASES = 48

SHORT_CHECK = f"""
import sys
from attrs import evolve
from kvcanon.conformance.cli import main
from kvcanon.conformance.search.campaign import Workers
from kvcanon.conformance.search.effort import EFFORTS
EFFORTS["quick"] = evolve(EFFORTS["quick"], walker_cases={CASES})
sys.exit(main(["check", "reference", "--only", "walker,LOCK-8", "--jobs", "1"]))
"""

FORGETFUL = ("check", "reported:Forgetful", "--jobs", "1", "--only", "walker,LOCK-8")
"""A short check that finds a fault at once."""

KNOWN = '[[known]]\nlaw = "{}"\nreason = "on purpose"\nlink = "https://example.org/1"\n'


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few cases will do: what is asked here is what becomes of what they show."""
    few = evolve(EFFORTS["quick"], walker_cases=CASES, machine_cases=2)
    monkeypatch.setitem(EFFORTS, "quick", few)


def read(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Run a command, and return what it printed; nothing else may be on stderr."""
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert not printed.err
    return printed.out


def fault(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that is at fault, and return the line that says so."""
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kvcanon: ")
    return line


def value(path: Path) -> Any:  # noqa: ANN401 # JSON
    """What a JSON report says."""
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_sound_cache_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """A pull request is stopped though nothing is wrong."""
    printed = read(capsys, "check", "reference", "--only", "walker,LOCK-8", code=0)
    assert "effort, seed 0" in printed
    assert printed.splitlines()[-1] == "No law is broken. 1 of 1 laws were exercised."


def test_a_broken_law_exits_with_1_and_every_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault goes through, or a report is missing when there is something to report."""
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html")}
    options = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
    printed = read(capsys, *FORGETFUL, *options, code=1)
    assert "Failure 1: LOCK-8" in printed
    assert "    cache.unlock(receipt_1)  # 5: done <- breaks LOCK-8\n" in printed
    report = value(files["json"])
    Draft202012Validator(value(SCHEMA)).validate(report)
    assert report["verdict"] == "broken"
    assert ET.parse(files["junit"]).getroot().get("failures") == "1"  # noqa: S314  # Our own.
    assert files["html"].read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_seed_is_printed_and_names_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check cannot be repeated, or the seed changes nothing."""
    reports = []
    for number, seed in enumerate("889"):
        path = tmp_path / f"{number}.json"
        printed = read(capsys, *FORGETFUL, "--seed", seed, "--json", str(path), code=1)
        assert f"quick effort, seed {seed}" in printed
        report = value(path)
        for stage in report["stages"]:
            del stage["seconds"]
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0]["caches"][0]["played"] != reports[2]["caches"][0]["played"]


def test_scripts_are_written_and_show_the_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script that the report names is not there, or shows nothing."""
    folder = tmp_path / "new" / "folder"
    printed = read(capsys, *FORGETFUL, "--scripts", str(folder), code=1)
    (path,) = folder.iterdir()
    assert f"\n  Script: {path}\n" in printed
    assert "import judged" not in printed
    environment = os.environ | {"PYTHONPATH": str(HELPERS.parent)}
    done = subprocess.run(
        [sys.executable, path], cwd=HELPERS, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"LOCK-8" in done.stderr


def test_caches_side_by_side_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of one cache is laid at the door of another."""
    path = tmp_path / "report.json"
    read(capsys, *FORGETFUL, "reference", "--json", str(path), code=1)
    report = value(path)
    assert [cache["name"] for cache in report["caches"]] == ["reported:Forgetful", "reference"]
    assert [cache["verdict"] for cache in report["caches"]] == ["broken", "holds"]


def test_what_was_not_asked_is_not_exercised(capsys: pytest.CaptureFixture[str]) -> None:
    """Laws that --only leaves out are reported as held."""
    printed = " ".join(read(capsys, *FORGETFUL, code=1).split())
    assert f"0 held, 1 broken, {len(LAWS) - 1} not exercised" in printed
    assert f"not exercised {len(LAWS) - 1} laws: left out by --only" in printed


def test_a_black_box_shows_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--black-box looks inside all the same."""
    path = tmp_path / "report.json"
    options = ("--only", "walker,TREE-1,MATCH-1", "--black-box", "--json", str(path))
    read(capsys, "check", "reference", *options, code=0)
    laws = {law["id"]: law for law in value(path)["caches"][0]["laws"]}
    assert laws["TREE-1"]["remark"] == "not offered: the cache has no snapshot"
    assert laws["MATCH-1"]["standing"] == "held"


def test_a_cache_with_the_least_is_judged_by_the_least(capsys: pytest.CaptureFixture[str]) -> None:
    """A cache without a snapshot is refused, or what it cannot show is said to hold."""
    printed = read(capsys, "check", "reported:Blind", "--jobs", "1", code=1)
    assert "lacks" in printed
    told = "not exercised TREE-1,.*: not offered: the cache has no snapshot"
    assert re.search(told, " ".join(printed.split()))
    assert "BROKEN: MATCH-" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere:cache",), "nowhere cannot be imported"),
        (("quux",), "no cache 'quux'"),
        (("reported:nothing",), "reported has no factory 'nothing'"),
        (("reference", "--only", "RES-44"), "no law RES-44; near it are RES-4, "),
        (("reference", "--only", "NS-2"), "NS-2 is retired. It was a law of `spec.hashing`"),
        (("reference", "--only", " , "), "--only names no law"),
        (("reference", "--effort", "much"), "no effort 'much'; choose one of quick"),
        (("reference", "--json", "/nowhere/at/all.json"), "no folder /nowhere/at"),
        (("reference", "--known", "/nowhere.toml"), "--known"),
        (("reference", "--jobs", "0"), "--jobs"),
        ((), "CACHE"),
    ],
)
def test_a_call_at_fault_exits_with_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    """A mistake in the call ends in a traceback, or passes for a result."""
    assert said in fault(capsys, "check", *arguments)


def test_nothing_judged_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """A check that asked nothing passes."""
    options = ("--only", "walker,TREE-1", "--black-box")
    assert "nothing was judged" in fault(capsys, "check", "reference", *options)


def test_progress_is_for_terminals_only() -> None:
    """A log is full of progress bars, or a person waits without a sign."""
    arguments = [sys.executable, "-c", SHORT_CHECK]
    done = subprocess.run(arguments, capture_output=True, check=True)
    assert not done.stderr
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    ) as shown:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:
            pass  # The terminal is gone when nobody writes to it any more.
        assert shown.wait() == 0
    os.close(ours)
    assert b"walker, reference" in seen


# Known differences. Vectors are put in their place, so that these tests choose what they show.


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> list[Failure]:
    """Vectors that show these failures."""
    shown: list[Failure] = []

    def play(plan: CheckPlan, _by: Workers, _deadline: float) -> StageOutcome:
        return StageOutcome(StageResult("vectors", 1, 5, 0.0), {}, tuple(shown))

    monkeypatch.setitem(judging.STAGES, "vectors", play)
    monkeypatch.setitem(judging.SHARES, "vectors", 1.0)
    return shown


def known(tmp_path: Path, *law_ids: str) -> tuple[str, str]:
    """The option that names a file of known differences."""
    path = tmp_path / "known.toml"
    path.write_text("".join(KNOWN.format(law_id) for law_id in law_ids), encoding="utf-8")
    return "--known", str(path)


def test_what_is_known_is_reported_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], vectors: list[Failure]
) -> None:
    """A known difference stops every run, or is passed over in silence."""
    vectors.append(failure_in("reported:Forgetful", SERVE))
    options = ("--only", "vectors,walker,LOCK-8,TREE-1", *known(tmp_path, "LOCK-8"))
    printed = read(capsys, "check", "reported:Forgetful", "--jobs", "1", *options, code=0)
    assert "on purpose (https://example.org/1)" in " ".join(printed.split())
    assert "1 known" in printed


def test_a_known_difference_that_is_not_there_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], vectors: list[Failure]
) -> None:
    """What was mended stays excused."""
    options = ("--only", "vectors,walker,LOCK-8,TREE-1", *known(tmp_path, "LOCK-8"))
    assert not vectors
    assert "an entry that no vector shows: LOCK-8" in fault(capsys, "check", "reference", *options)


def test_a_vector_that_was_not_played_proves_nothing_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that ran out of time says that a known difference is gone."""

    def play(plan: CheckPlan, _by: Workers, _deadline: float) -> StageOutcome:
        return StageOutcome(
            StageResult("vectors", 0, 0, 0.0, cut_short="the time was over"), {}, ()
        )

    monkeypatch.setitem(judging.STAGES, "vectors", play)
    options = ("--only", "vectors,walker,LOCK-8,TREE-1", *known(tmp_path, "LOCK-8"))
    printed = read(capsys, "check", "reference", "--jobs", "1", *options, code=0)
    assert "LOCK-8: it is known to be broken, and no vector exercised it" in " ".join(printed.split())


def test_what_is_not_known_breaks_beside_what_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], vectors: list[Failure]
) -> None:
    """An excuse for one law excuses another."""
    vectors.append(failure_in("reported:Forgetful", SERVE))
    finding = Finding("reported:Forgetful", Grounds.LAW, "RES-4", ("RES-4",), "so", "so", 0, 1)
    laws = frozenset({"RES-4"})
    vectors.append(Failure(finding, SERVE, "vector RES-4-a", 1, laws=laws))
    options = ("--only", "vectors", *known(tmp_path, "LOCK-8"))
    printed = read(capsys, "check", "reported:Forgetful", *options, code=1)
    assert printed.splitlines()[-1] == "BROKEN: RES-4"


def test_the_page_in_the_docs_has_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    """An option is there and nobody reads of it, or one is written of that there is not."""
    page = (DOCS / "check.md").read_text(encoding="utf-8")
    there = set(re.findall(r"--[a-z-]+", read(capsys, "check", "--help", code=0)))
    assert set(re.findall(r"`(--[a-z-]+)", page)) == there - {"--help"}
