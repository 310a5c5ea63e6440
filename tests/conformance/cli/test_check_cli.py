"""`kvcanon check`: its output, its files, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from command_line import read, usage_error
from few_cases import check_here
from kvcanon.conformance.check import check as check_module
from kvcanon.conformance.check.plan import EFFORTS, CheckStage
from kvcanon.conformance.check.result import Finding, Grounds, StageResult
from kvcanon.conformance.check.stage import StageOutcome, StageRun
from kvcanon.conformance.cli import main
from kvcanon.conformance.cli.terminal import signs_of_life
from kvcanon.conformance.report.json_report import SCHEMA
from kvcanon.spec.law import LAWS, Need
from paths import DOCS, HELPERS
from reported import SERVE

CASES = 16

SHORT_CHECK = f"""
import sys
from attrs import evolve
from kvcanon.conformance.cli import main
from kvcanon.conformance.cli.terminal import signs_of_life
from kvcanon.conformance.check.plan import EFFORTS
FEW = dict(ranks_cases=4, corpus_cases=0, store_cases=0)
EFFORTS["quick"] = evolve(EFFORTS["quick"], walker_cases={CASES}, **FEW)
sys.exit(main(["check", "reference", "--only", "walker,LOCK-8", "--jobs", "1"]))
"""

FORGETFUL = ("check", "reported:Forgetful", "--jobs", "1", "--only", "walker,LOCK-8")
"""A short check that finds a fault at once."""

KNOWN = '[[known]]\nlaw = "{}"\nreason = "on purpose"\nlink = "https://example.org/1"\n'


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play few cases: these tests are about reports and exit codes."""
    # Even on a busy machine no stage may reach its time limit, and none says that it goes on.
    monkeypatch.setattr("kvcanon.conformance.cli.check.signs_of_life", partial(signs_of_life, 1e6))
    few = evolve(
        EFFORTS["quick"],
        walker_cases=CASES,
        machine_cases=2,
        run=2,
        ranks_cases=4,
        store_cases=4,
        corpus_cases=0,
        seconds=560,
    )
    monkeypatch.setitem(EFFORTS, "quick", few)


def value(path: Path) -> Any:  # noqa: ANN401 # JSON
    """Return the value of a JSON report."""
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_sound_cache_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """A sound cache exits with 0."""
    printed = read(capsys, "check", "reference", "--only", "walker,LOCK-8", code=0)
    assert "effort, seed 0" in printed
    assert printed.splitlines()[-1] == (
        "No law is broken. 1 of 1 laws were exercised. Played 16 walker cases."
    )


def test_a_broken_law_exits_with_1_and_every_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken law exits with 1, and every report is written."""
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "html")}
    options = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
    printed = read(capsys, *FORGETFUL, *options, code=1)
    assert "Failure 1: LOCK-8" in printed
    assert [line for line in printed.splitlines() if line != line.rstrip()] == []
    assert "    cache.unlock(receipt_1)  # 2: done <- breaks LOCK-8\n" in printed
    report = value(files["json"])
    Draft202012Validator(value(SCHEMA)).validate(report)
    assert report["verdict"] == "broken"
    assert ET.parse(files["junit"]).getroot().get("failures") == "1"  # noqa: S314  # Our own.
    assert files["html"].read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_seed_is_printed_and_names_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seed is printed; the same seed gives the same report."""
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
    """The script that the report names shows the fault."""
    folder = tmp_path / "new" / "folder"
    printed = read(capsys, *FORGETFUL, "--scripts", str(folder), code=1)
    (path,) = folder.iterdir()
    assert f"\n  Play it again:  python {path}\n" in printed
    assert "import judged" not in printed
    environment = os.environ | {"PYTHONPATH": str(HELPERS.parent)}
    done = subprocess.run(
        [sys.executable, path], cwd=HELPERS, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"LOCK-8" in done.stderr


def test_caches_side_by_side_are_reported_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failures of two caches are reported for each."""
    path = tmp_path / "report.json"
    read(capsys, *FORGETFUL, "reference", "--json", str(path), code=1)
    report = value(path)
    assert [cache["name"] for cache in report["caches"]] == ["reported:Forgetful", "reference"]
    assert [cache["verdict"] for cache in report["caches"]] == ["broken", "holds"]


def test_laws_left_out_are_not_exercised(capsys: pytest.CaptureFixture[str]) -> None:
    """Laws that --only leaves out are reported as not exercised."""
    printed = " ".join(read(capsys, *FORGETFUL, code=1).split())
    # Those of a store do not concern it.
    others = sum(Need.STORE not in law.needs for law in LAWS.values()) - 1
    assert f"0 held, 1 broken, {others} not exercised" in printed
    assert f"not exercised {others} laws: left out by --only" in printed


def test_a_black_box_shows_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--black-box takes no snapshots."""
    path = tmp_path / "report.json"
    options = ("--only", "walker,TREE-1,MATCH-1", "--black-box", "--json", str(path))
    read(capsys, "check", "reference", *options, code=0)
    laws = {law["id"]: law for law in value(path)["caches"][0]["laws"]}
    assert laws["TREE-1"]["remark"] == "not offered: the cache has no snapshot"
    assert laws["MATCH-1"]["standing"] == "held"


@pytest.mark.parametrize("stage", ["vectors", "walker"])
def test_a_failure_of_a_black_box_is_replayed_as_one(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --black-box, report and script of a cache that has snapshots judge without them, too.

    Judged by its states this cache breaks other laws first.
    """
    fault = "reported:ancestors_are_copied_again"
    drawn = ("--black-box", "--seed", "2")
    options = ("--only", f"{stage},EVENT-12", *drawn, "--scripts", str(tmp_path))
    printed = read(capsys, "check", fault, *options, code=1)
    assert "did not show it" not in printed
    assert "Answers and events alone show it." in printed
    (script,) = tmp_path.iterdir()
    assert "black_box=True" in script.read_text(encoding="utf-8")


def test_a_cache_with_the_least_is_judged_by_the_least(capsys: pytest.CaptureFixture[str]) -> None:
    """A cache with the essential operations is judged by the laws that apply."""
    printed = read(capsys, "check", "reported:Blind", "--jobs", "1", code=1)
    assert "lacks" in printed
    told = "not exercised TREE-1,.*: not offered: the cache has no snapshot"
    assert re.search(told, " ".join(printed.split()))
    assert "BROKEN (sound): MATCH-" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere:cache",), "nowhere cannot be imported"),
        (("quux",), "no cache 'quux'"),
        (("reported:nothing",), "reported has no factory 'nothing'"),
        (("reference", "--only", "RES-44"), "no law RES-44; near it are RES-4, "),
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
    """A wrong call exits with 2 and one line on stderr."""
    assert said in usage_error(capsys, "check", *arguments)


def test_nothing_judged_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """A check that judged nothing exits with 2."""
    options = ("--only", "walker,TREE-1", "--black-box")
    assert "nothing was judged" in usage_error(capsys, "check", "reference", *options)


def test_progress_is_for_terminals_only() -> None:
    """Only a terminal shows progress."""
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
            pass  # The terminal is closed once nothing writes to it.
        assert shown.wait() == 0
    os.close(ours)
    assert b"walker, reference" in seen


# Known differences.


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """Replace the vector stage by one with these failures."""
    shown: list[Finding] = []

    def play(_run: StageRun) -> StageOutcome:
        return StageOutcome(StageResult(CheckStage.VECTORS, 1, 5, 0.0), {}, tuple(shown))

    monkeypatch.setitem(check_module.STAGES, CheckStage.VECTORS, play)
    return shown


def known(tmp_path: Path, *law_ids: str) -> tuple[str, str]:
    """Return the option with a file of known differences."""
    path = tmp_path / "known.toml"
    path.write_text("".join(KNOWN.format(law_id) for law_id in law_ids), encoding="utf-8")
    return "--known", str(path)


def test_what_is_known_is_reported_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A known difference that only random cases show is reported, and does not fail the check."""
    options = ("--only", "walker,LOCK-8,TREE-1", *known(tmp_path, "LOCK-8"))
    printed = read(capsys, "check", "reported:Forgetful", "--jobs", "1", *options, code=0)
    assert "on purpose (https://example.org/1)" in " ".join(printed.split())
    assert "1 known" in printed


def test_a_known_difference_that_is_not_there_is_a_warning_or_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known difference that no stage shows is a warning, and with --strict an error."""
    few = evolve(
        EFFORTS["quick"],
        walker_cases=2,
        machine_cases=1,
        run=1,
        ranks_cases=1,
        store_cases=1,
        corpus_cases=0,
        seconds=560,
    )
    monkeypatch.setitem(EFFORTS, "quick", few)
    check_here(monkeypatch)
    command = ["check", "reference", "--jobs", "1", "--only", "LOCK-8,TREE-1"]
    for strict, code, begins in (([], 0, "Warning: "), (["--strict"], 2, "")):
        assert main([*command, *strict, *known(tmp_path, "LOCK-8")]) == code
        out, err = capsys.readouterr()
        (line,) = err.splitlines()
        assert line.startswith(begins)
        assert "has an entry that nothing in this check shows: LOCK-8; remove what is fixed" in line
        told = "known to be broken, but nothing in this check shows it: on purpose"
        assert told in " ".join(out.split())


@pytest.mark.parametrize("stage", [CheckStage.VECTORS, CheckStage.WALKER])
def test_a_stage_that_was_not_played_proves_nothing_fixed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stage: CheckStage,
) -> None:
    """A check that did not play all stages to their end says nothing of known differences."""

    def play(_run: StageRun) -> StageOutcome:
        return StageOutcome(StageResult(stage, 0, 0, 0.0, cut_short="the time was over"), {}, ())

    monkeypatch.setitem(check_module.STAGES, stage, play)
    check_here(monkeypatch)
    options = ("--only", "LOCK-8,TREE-1", *known(tmp_path, "LOCK-8"))
    assert main(["check", "reference", "--jobs", "1", "--strict", *options]) == 0
    assert not capsys.readouterr().err


def test_what_is_not_known_breaks_beside_what_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], vectors: list[Finding]
) -> None:
    """Another broken law fails the check beside a known one."""
    finding = Finding(
        "reported:Forgetful", Grounds.LAW, "RES-4", ("RES-4",), "so", "so", SERVE, 0, 1
    )
    vectors.append(evolve(finding, origin="vector RES-4-a"))
    options = ("--only", "vectors", *known(tmp_path, "LOCK-8"))
    printed = read(capsys, "check", "reported:Forgetful", *options, code=1)
    assert printed.splitlines()[-1] == "BROKEN (serving): RES-4. Played 1 vectors."


def test_the_page_in_the_docs_has_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    """The page in the docs has every option, and no other."""
    page = (DOCS / "check.md").read_text(encoding="utf-8")
    there = set(re.findall(r"--[a-z-]+", read(capsys, "check", "--help", code=0)))
    assert set(re.findall(r"`(--[a-z-]+)", page)) == there - {"--help"}


def test_quiet_prints_the_verdict_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, which is the last of the whole report; an area stands for its laws."""
    given = ("check", "reference", "--only", "vectors,lock")
    whole = read(capsys, *given)
    quiet = read(capsys, *given, "--quiet")
    assert quiet.splitlines() == whole.splitlines()[-1:]
    of_area = sum(law.area == "LOCK" for law in LAWS.values())
    assert f"{of_area} of {of_area} laws were exercised" in quiet
