"""Caches that do little do not hold: the check requires essentials."""

from __future__ import annotations

import re

import pytest
from attrs import evolve

from few_cases import FEW, plan_of
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.essentials import ESSENTIAL_LAWS, OPERATIONS
from kvcanon.conformance.check.plan import EFFORTS, CheckStage
from kvcanon.conformance.check.result import CacheResult, Standing
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.law import LAWS

DRAWN = ("walker", "machine")


SMALL = evolve(FEW, machine_cases=5, run=5)


def checked(name: str, *only: str, black_box: bool = True) -> CacheResult:
    """The result of a check with few cases."""
    plan = plan_of(name, only=only or DRAWN, black_box=black_box, effort=SMALL)
    return check(plan, apart=False).caches[0]


def test_every_kind_of_cache_has_its_essentials() -> None:
    """Essential laws exist, and essential operations are those that every cache must have."""
    assert OPERATIONS.keys() == ESSENTIAL_LAWS.keys()
    for law_ids in ESSENTIAL_LAWS.values():
        assert set(law_ids) <= LAWS.keys()


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("lazy:RefusesInserts", "insert was refused each of "),
        ("lazy:RefusesMatches", "match was refused each of "),
        ("lazy:LocksNothing", "lock was refused each of "),
        ("lazy:AllocatesNothing", "allocate was refused each of "),
        ("lazy:LoadsNothing", "load_back was refused each of "),
        ("lazy:DoesNothing", "match was refused each of "),
        ("lazy:ADMITS_NOBODY", "admit was refused each of "),
    ],
)
def test_a_cache_that_refuses_everything_of_a_kind_has_not_passed(name: str, begins: str) -> None:
    """A cache that always refuses an essential operation does not hold."""
    cache = checked(name)
    assert not cache.failures
    assert cache.missing[0].startswith(begins)
    assert cache.missing[0].endswith(" times")


@pytest.mark.parametrize("name", ["lazy:RefusesInserts", "lazy:DoesNothing"])
def test_where_its_state_is_seen_it_is_not_green_either(name: str) -> None:
    """A cache that refuses or does nothing does not hold if judged by states, either."""
    cache = checked(name, "walker", black_box=False)
    assert cache.failures or cache.missing


@pytest.mark.parametrize(
    ("name", "law_id"), [("lazy:FindsNothing", "MATCH-1"), ("lazy:KeepsNothing", "MATCH-6")]
)
def test_a_cache_that_serves_without_effect_breaks_a_law(name: str, law_id: str) -> None:
    """A cache that serves calls without effect breaks a law."""
    cache = checked(name)
    assert cache.standings[law_id] is Standing.BROKEN


def test_an_operation_that_is_never_served_is_found_in_the_drain() -> None:
    """An eviction that always refuses is found in the drain."""
    cache = checked("lazy:EvictsNothing", "walker")
    assert "BadArgument" in [failure.name for failure in cache.failures]


def test_a_cache_that_offers_hardly_any_configuration_says_so_by_an_offer() -> None:
    """A cache that refuses most drawn configurations does not hold."""
    some = evolve(SMALL, walker_cases=48)
    plan = plan_of("lazy:hardly_any", only=DRAWN, black_box=True, effort=some)
    result = check(plan, apart=False)
    found = [
        re.fullmatch(r"\d+ of \d+ drawn cases were not offered", each)
        for each in result.caches[0].missing
    ]
    assert sum(each is not None for each in found) == 1
    assert all(stage.unoffered for stage in result.stages)
    assert not checked("lazy:FULL_ALONE").missing


def test_a_cache_that_is_made_for_no_case_is_told_to_declare_an_offer() -> None:
    """A check that plays no case says how many the factory refused, and what to do."""
    none = evolve(SMALL, walker_cases=8)
    plan = plan_of("lazy:hardly_any", only=["walker"], black_box=True, effort=none)
    said = (
        r"its factory refused the configuration of (\d+) of \1 cases; list those that it supports"
    )
    with pytest.raises(UsageError, match=said):
        check(plan, apart=False)


def test_a_cache_that_has_no_more_than_it_must_can_pass() -> None:
    """A cache with the essential operations only can hold."""
    cache = checked("lazy:Least")
    assert not cache.failures
    assert not cache.missing
    held = [law_id for law_id, each in cache.standings.items() if each is Standing.HELD]
    assert set(ESSENTIAL_LAWS[next(iter(OPERATIONS))]) <= set(held)
    assert len(held) < len(LAWS) / 4


def test_what_a_profile_leaves_to_the_cache_need_not_come_up() -> None:
    """A cache that acts on its own shows few laws, and passes with what it shows."""
    cache = checked("lazy:EXPIRING_LEAST", "walker")
    assert not cache.failures
    assert cache.standings["ALLOC-5"] is Standing.NOT_EXERCISED
    assert not cache.missing


def test_nonsense_that_is_refused_is_no_lack_of_service() -> None:
    """An optional operation that only refused invalid calls is not missed."""
    cache = checked("lazy:FULL_ALONE", black_box=False)
    assert not cache.missing
    assert not cache.tally.served["load_back"]


def test_a_check_of_one_law_needs_no_other_essentials() -> None:
    """A check of one law needs no essentials of other laws."""
    cache = checked("lazy:RefusesInserts", "walker", "ALLOC-5")
    assert cache.standings["ALLOC-5"] is Standing.HELD
    assert not cache.missing


def test_an_essential_law_that_is_chosen_must_be_exercised() -> None:
    """A check of an essential law needs the law to be exercised."""
    cache = checked("lazy:RefusesInserts", "walker", "ALLOC-5", "MATCH-6")
    assert cache.missing == ("MATCH-6 was never exercised, which takes an insert",)


def test_the_command_says_in_the_second_and_the_last_line_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command exits with 1, and says why in the second and the last line."""
    monkeypatch.setitem(EFFORTS, "quick", SMALL)
    options = ("--only", ",".join(DRAWN), "--black-box", "--jobs", "1")
    assert main(["check", "lazy:RefusesInserts", *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{lines[1]}. Played 24 walker cases")
    assert lines[1].startswith("NOT EXERCISED: insert was refused each of ")


@pytest.mark.nightly
def test_laws_are_counted_by_stage() -> None:
    """Exercised laws are counted for each stage."""
    cache = checked("reference", *CheckStage, black_box=False)
    assert cache.tallies.keys() == set(CheckStage)
    by_stage = [tally.laws["MATCH-1"] for tally in cache.tallies.values()]
    assert all(by_stage)
    assert cache.tally.laws["MATCH-1"] == sum(by_stage)
    # Several ranks are drawn in some stages only.
    of_ranks = {stage for stage, tally in cache.tallies.items() if tally.laws["ASYNC-11"]}
    assert of_ranks == {CheckStage.VECTORS, CheckStage.RANKS, CheckStage.STORES}
