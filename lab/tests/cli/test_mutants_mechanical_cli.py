"""`kvcanon lab mutants --mechanical`: its output and its exit codes."""

from __future__ import annotations

import json

import pytest

from kvcanon.conformance.cli import main
from kvcanon.lab.mutants import judge, measurement
from kvcanon.lab.mutants.judge import Budget
from paths import ROOT

SEEN = "insert._free:remove-call:1"
RUN = ("lab", "mutants", "--mechanical", "--jobs", "1")


@pytest.fixture(autouse=True)
def _few_cases_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tests")
    budgets = {"quick": Budget(first=8, checked=4, compared=20, inside=8)}
    monkeypatch.setattr(measurement, "BUDGETS", budgets)
    monkeypatch.setattr(judge, "by_vectors", lambda search: ())


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


def test_a_hole_is_shown_with_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant that only the comparison finds is listed with its line."""
    monkeypatch.setattr(judge, "by_states", lambda search, numbers: ())
    monkeypatch.setattr(judge, "as_checked", lambda search, numbers: ())
    assert main([*RUN, "--only", SEEN]) == 1
    out = capsys.readouterr().out
    assert "1  only the comparison sees it" in out
    assert SEEN in out
    assert "release(state, component, GPU, slots) -> pass" in out
    assert "the laws alone see 0 of 1, 0.0 %; 97 % are needed" in out


def test_a_page_has_a_row_for_each_that_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """The page has a row for each mutant that the laws do not find."""
    main([*RUN, "--only", f"{SEEN},state.State:plus-one:2", "--markdown"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert not any(SEEN in row for row in rows)


def test_a_sample_is_as_large_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """A sample has the given number of mutants, each once."""
    assert main([*RUN, "--sample", "2", "--seed", "5", "--json"]) in {0, 1}
    ids = [mutant["id"] for mutant in json.loads(capsys.readouterr().out)["mutants"]]
    assert len(set(ids)) == 2
