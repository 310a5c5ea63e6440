"""`kvcanon lab mutants`: its output and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import usage_error
from kvcanon.conformance.cli import main
from kvcanon.lab.mutants.kill_matrix import HUNTS
from kvcanon.lab.mutants.planted import MUTANTS
from paths import ROOT

TWO = ("salt_is_ignored", "match_ignores_tombstones")
QUICK = ("lab", "mutants", "--effort", "quick", "--only", ",".join(TWO))


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tests")


def printed(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """Return the JSON of the command for two mutants, without times."""
    assert main([*QUICK, "--json", *more]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    for mutant in value["mutants"]:
        for kill in mutant["kills"].values():
            del kill["seconds"]
        # Hypothesis also draws numbers that it reads in all loaded modules.
        mutant["kills"]["machine"] = mutant["kills"]["machine"] is not None
    return value


def test_each_way_finds_the_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    """Every method finds the mutants, and the bars count them."""
    value = printed(capsys, "--jobs", "1")
    assert [mutant["name"] for mutant in value["mutants"]] == list(TWO)
    for mutant in value["mutants"]:
        assert mutant["kills"].keys() == HUNTS.keys()
        assert mutant["kills"]["vectors"]["where"]
        assert mutant["kills"].pop("machine")
        assert all(kill["cases"] and kill["steps"] for kill in mutant["kills"].values())
    assert "MATCH-2" in value["mutants"][1]["kills"]["inside"]["seen"]
    assert [(bar["found"], bar["reached"]) for bar in value["bars"] if bar["of"]] == [(2, True)] * 5


def test_any_number_of_processes_comes_to_the_same_matrix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One process and two give the same matrix."""
    assert printed(capsys, "--jobs", "2") == printed(capsys, "--jobs", "1")


def test_another_seed_draws_other_cases(capsys: pytest.CaptureFixture[str]) -> None:
    """Two seeds draw different cases."""
    kills = [printed(capsys, "--jobs", "1", "--seed", str(seed))["mutants"] for seed in (0, 7)]
    assert kills[0] != kills[1]


def test_a_survivor_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant that a method does not find is reported, and the exit code is 1."""
    monkeypatch.setitem(HUNTS, "machine", lambda *_: None)
    assert main([*QUICK, "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "found by the machine: 0/2, of which 2 are needed" in out
    assert out.count("survived") == 2


def test_a_page_has_nothing_that_differs_by_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """The page is the same each time."""
    pages = []
    for _ in range(2):
        assert main([*QUICK, "--jobs", "1", "--markdown"]) == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
    assert all(f"| `{name}`" in pages[0] for name in TWO)


def test_without_a_checkout_there_are_no_mutants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a checkout the command says that it needs one."""
    monkeypatch.chdir(tmp_path)
    assert "is in no checkout of kvcanon" in usage_error(capsys, "lab", "mutants")


def test_the_committed_page_is_of_these_mutants() -> None:
    """`docs/mutants.md` has these mutants; `make mutants` writes it."""
    page = (ROOT / "docs/mutants.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)`", page, re.MULTILINE)
    assert named == [each.name for each in MUTANTS]
    summary = page.partition("| mutant |")[0]
    for way in ("the walker", "the machine", "a vector", "laws alone"):
        assert f"found by {way}: {len(MUTANTS)}/{len(MUTANTS)}" in summary
