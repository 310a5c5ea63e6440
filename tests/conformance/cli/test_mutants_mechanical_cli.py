"""`kvcanon mutants --mechanical`: what it prints of which mutants, and the code it exits with."""

from __future__ import annotations

import json

import pytest

from kvcanon.conformance.cli import main
from kvcanon.conformance.mutants import judge, measurement
from kvcanon.conformance.mutants.judge import Budget
from paths import ROOT

SEEN = "insert._free:remove-call:1"
RUN = ("mutants", "--mechanical", "--jobs", "1")


@pytest.fixture(autouse=True)
def _few_cases_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tests")
    budgets = {"quick": Budget(first=8, checked=4, compared=20, inside=8)}
    monkeypatch.setattr(measurement, "BUDGETS", budgets)
    monkeypatch.setattr(judge, "by_vectors", lambda search: ())


def test_a_mutant_that_the_laws_see_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """What was judged is not what was asked for, or is counted twice."""
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
    """A mutant that only the comparison sees passes for one that the laws see."""
    monkeypatch.setattr(judge, "by_states", lambda search, numbers: ())
    monkeypatch.setattr(judge, "as_checked", lambda search, numbers: ())
    assert main([*RUN, "--only", SEEN]) == 1
    out = capsys.readouterr().out
    assert "1  only the comparison sees it" in out
    assert SEEN in out
    assert "release(state, component, GPU, slots) -> pass" in out
    assert "the laws alone see 0 of 1, 0.0 %; 97 % are needed" in out


def test_a_page_has_a_row_for_each_that_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """The docs list survivors that are none, or lack the change."""
    main([*RUN, "--only", f"{SEEN},state.State:plus-one:2", "--markdown"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert not any(SEEN in row for row in rows)


def test_a_sample_is_as_large_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """All mutants are judged where a few were meant, or one of them twice."""
    assert main([*RUN, "--sample", "2", "--seed", "5", "--json"]) in {0, 1}
    ids = [mutant["id"] for mutant in json.loads(capsys.readouterr().out)["mutants"]]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mechanical", "--only", "nobody"), "no mechanical mutant 'nobody' of reference"),
        (("--mechanical", "--effort", "deep"), "no effort 'deep' for mutants"),
        (("--sample", "3"), "--sample and --core are for --mechanical"),
    ],
)
def test_calls_at_fault_are_said_in_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip on the command line ends in a traceback, or in a measure of something else."""
    assert main(["mutants", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
