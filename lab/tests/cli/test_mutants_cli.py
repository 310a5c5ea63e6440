"""`kvcanon lab mutants`, also `--mechanical`: its output and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import usage_error
from kvcanon.conformance.cli import main
from kvcanon.lab.cli.mutants import AFTER_STEPS, HEADINGS
from kvcanon.lab.mutants import judge, measurement
from kvcanon.lab.mutants.judge import Budget
from kvcanon.lab.mutants.kill_matrix import HUNTS
from kvcanon.lab.mutants.planted import MUTANTS
from kvcanon.spec.law import LAWS
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
    return value


def test_each_way_finds_the_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    """Every method finds the mutants, and the bars count them."""
    value = printed(capsys, "--jobs", "1")
    assert [mutant["name"] for mutant in value["mutants"]] == list(TWO)
    for mutant in value["mutants"]:
        assert mutant["kills"].keys() == HUNTS.keys()
        assert mutant["kills"]["vectors"]["where"]
        assert all(kill["cases"] and kill["steps"] for kill in mutant["kills"].values())
    assert set(value["mutants"][1]["kills"]["inside"]["seen"]) <= set(LAWS)
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


def test_a_page_says_how_many_were_found_how_soon(capsys: pytest.CaptureFixture[str]) -> None:
    """Each way has a row: how many mutants it had found after ever more operations, and in all."""
    value = printed(capsys, "--jobs", "1")
    assert main([*QUICK, "--jobs", "1", "--markdown"]) == 0
    rows = re.findall(r"^\| ([a-z, ]+) \| ([\d |]+) \|$", capsys.readouterr().out, re.MULTILINE)
    assert [way for way, _ in rows] == list(HEADINGS.values())
    for (_, cells), way in zip(rows, HEADINGS, strict=True):
        steps = [mutant["kills"][way]["steps"] for mutant in value["mutants"]]
        counts = [sum(each <= most for each in steps) for most in AFTER_STEPS]
        assert [int(cell) for cell in cells.split(" | ")] == [*counts, len(TWO)]


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


SEEN = "insert._free:remove-call:1"
RUN = ("lab", "mutants", "--mechanical", "--jobs", "1")


@pytest.fixture
def _few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = {"quick": Budget(first=8, checked=4, stored=4, compared=20, inside=8)}
    monkeypatch.setattr(measurement, "BUDGETS", budgets)
    monkeypatch.setattr(judge, "by_vectors", lambda search: ())


@pytest.mark.usefixtures("_few_cases")
def test_a_mutant_that_the_laws_see_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A mutant that the laws find is counted once."""
    assert main([*RUN, "--only", SEEN, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    (mutant,) = value["mutants"]
    assert (mutant["id"], mutant["sight"]) == (SEEN, "law")
    assert mutant["diff"].startswith("reference/insert.py:")
    assert value["counts"]["law"] == 1
    assert value["percent"] == 100
    assert value["reached"]


@pytest.mark.usefixtures("_few_cases")
def test_a_hole_is_shown_with_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant that only the comparison finds is listed with its line."""
    monkeypatch.setattr(judge, "by_states", lambda search, numbers: ())
    monkeypatch.setattr(judge, "as_checked", lambda search, numbers: ())
    monkeypatch.setattr(judge, "with_store", lambda search, numbers: ())
    assert main([*RUN, "--only", SEEN]) == 1
    out = capsys.readouterr().out
    assert "1  only the comparison sees it" in out
    assert SEEN in out
    assert "release(state, component, GPU, slots) -> pass" in out
    assert "the laws alone see 0 of 1, 0.0 %; 97 % are needed" in out


@pytest.mark.usefixtures("_few_cases")
def test_a_page_has_a_row_for_each_that_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """The page has a row for each mutant that the laws do not find."""
    main([*RUN, "--only", f"{SEEN},state.State:plus-one:2", "--markdown"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert not any(SEEN in row for row in rows)


@pytest.mark.usefixtures("_few_cases")
def test_a_sample_is_as_large_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """A sample has the given number of mutants, each once."""
    assert main([*RUN, "--sample", "2", "--seed", "5", "--json"]) in {0, 1}
    ids = [mutant["id"] for mutant in json.loads(capsys.readouterr().out)["mutants"]]
    assert len(set(ids)) == 2
