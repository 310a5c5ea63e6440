"""The judge's own speed: what is counted, what the shares are of, and what is printed."""

from __future__ import annotations

import json
from functools import partial

import pytest

from faulty import CrashingAtOnce
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.lab.bench.judge_speed import INSIDE, OUTSIDE, Cost, cost_at, growth, rate, shares
from kvcanon.reference import ReferenceCache
from kvcanon.spec.law import LAWS

REFERENCE = Adapter("reference", ReferenceCache)


@pytest.mark.parametrize("judges", [INSIDE, OUTSIDE])
def test_at_least_one_case_is_played(judges: JudgeConfig) -> None:
    """A rate counts at least one case, however short the time."""
    measured = rate(REFERENCE, judges, seconds=0)
    assert measured.steps > 0
    assert measured.seconds > 0
    assert measured.per_second == measured.steps / measured.seconds


def test_shares_are_of_one_whole() -> None:
    """The shares of the time add up to 1."""
    inside, outside = (shares(REFERENCE, judges, seconds=0) for judges in (INSIDE, OUTSIDE))
    for each in (inside, outside):
        assert sum(each.values()) == pytest.approx(1)
        assert each["cache"] > 0
        assert each["rest"] > 0
    assert inside["laws"] > inside["cache"]
    assert inside["snapshot"] > 0
    assert outside["laws"] == 0
    # One snapshot when the cache is made: for its profile.
    assert outside["snapshot"] < inside["snapshot"]


def test_the_book_is_as_it_was_after_clocks_were_at_it() -> None:
    """After the measurement the laws have no clocks."""
    book = dict(LAWS)
    shares(REFERENCE, INSIDE, seconds=0)
    assert book == LAWS
    with pytest.raises(UsageError):
        shares(Adapter("crashing", CrashingAtOnce), INSIDE, seconds=0)
    assert book == LAWS


def test_a_cache_that_is_not_sound_is_not_measured() -> None:
    """A cache that breaks a law is a usage error, not a rate."""
    with pytest.raises(UsageError, match="crashing is not sound, in case"):
        rate(Adapter("crashing", CrashingAtOnce), OUTSIDE, seconds=0)


@pytest.mark.parametrize("judges", [INSIDE, OUTSIDE])
def test_costs_are_of_trees_of_the_size_that_was_asked_for(judges: JudgeConfig) -> None:
    """Each cost is measured on a tree of the given size."""
    small, large = (cost_at(REFERENCE, judges, nodes, actions=20) for nodes in (10, 40))
    assert 8 <= small.nodes <= 20
    assert 36 <= large.nodes <= 60
    assert small.us_per_step > 0


def test_growth_is_the_power_of_the_size() -> None:
    """Linear growth is power 1, and quadratic growth is power 2."""
    costs = partial(map, lambda power: [Cost(n, 3 * n**power) for n in (50, 100, 500)])
    assert [growth(each) for each in costs((0, 1, 2))] == pytest.approx([0, 1, 2])


ARGUMENTS = ("lab", "bench", "judge", "--seconds", "0", "--nodes", "5", "--nodes", "10")


def test_bench_judge_prints_rates_shares_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has every number that the docs describe."""
    assert main(ARGUMENTS) == 0
    printed = capsys.readouterr().out
    words = ("steps/s", "laws", "snapshot", "cache", "rest", "nodes^")
    for word in (*words, "inside", "thorough", "outside"):
        assert word in printed


def test_bench_judge_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the rates, the shares and the costs."""
    assert main((*ARGUMENTS, "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cache"] == "reference"
    assert report["levels"].keys() == {"inside", "thorough", "outside"}
    for level in report["levels"].values():
        assert level["steps_per_second"] > 0
        assert level["shares"].keys() == {"laws", "snapshot", "cache", "rest"}
        assert [cost["nodes"] >= size for cost, size in zip(level["costs"], (5, 10), strict=True)]
