"""Shards: N jobs play together what one check plays."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve

from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.effort import EFFORTS
from kvcanon.conformance.check.plan import Shard
from kvcanon.conformance.check.result import CheckResult
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.known_differences import KnownDifference
from kvcanon.conformance.report.known_shown import line_on_stale
from kvcanon.conformance.report.report import report_of
from paths import ROOT

STAGES = ("vectors", "walker", "machine")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    few = evolve(
        EFFORTS["quick"],
        walker_cases=20,
        block=4,
        machine_cases=4,
        run=1,
        ranks_cases=16,
        seconds=560,
    )
    monkeypatch.setitem(EFFORTS, "quick", few)


def played(*results: CheckResult) -> dict[str, tuple[int, int, Counter[str]]]:
    """Cases, steps and exercised laws of each stage, over all results."""
    total = {}
    for stage in STAGES:
        tallies = [each.caches[0].tallies[stage] for each in results]
        laws: Counter[str] = sum((each.laws for each in tallies), Counter())
        total[stage] = sum(e.cases for e in tallies), sum(e.steps for e in tallies), laws
    return total


def test_shards_play_the_whole_check_together() -> None:
    """The shards play the same cases as the whole check, each once, and say that they are parts."""
    whole = check(["reference"], jobs=1)
    shards = [check(["reference"], jobs=1, shard=f"{number}/3") for number in (1, 2, 3)]
    assert played(*shards) == played(whole)
    assert all(each.cases for shard in shards for each in shard.stages)
    for shard in shards:
        assert [each.cut_short[:10] for each in shard.stages] == ["only shard"] * 4
        assert not shard.caches[0].missing
    assert [each.cut_short for each in whole.stages] == [""] * 4


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1.5/4"])
def test_no_shard_is_refused(text: str) -> None:
    """A shard is a number and a count; anything else is refused in one line."""
    with pytest.raises(UsageError, match="no shard"):
        Shard.parse(text)


def test_a_store_needs_no_shard() -> None:
    """A store and a shard together are refused, before anything is played."""
    with pytest.raises(UsageError, match="leave the shard out"):
        check(["reference"], effort="deep", store="nowhere", shard="1/2")


def test_a_shard_calls_no_known_difference_stale() -> None:
    """A case that shows a known difference may be in another shard."""
    known = KnownDifference("LOCK-8", "on purpose", "https://example.org/1")
    whole, part = (
        report_of(check(["reference"], jobs=1, known=["LOCK-8"], shard=shard), known=[known])
        for shard in ("1/1", "1/2")
    )
    assert "nothing in this check shows: LOCK-8" in line_on_stale(ROOT, whole)
    assert line_on_stale(ROOT, part) == ""
