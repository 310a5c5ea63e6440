"""The check: stages, standings and failures of all caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvcanon.conformance.check import check as check_module
from kvcanon.conformance.check.campaign import adapter_as
from kvcanon.conformance.check.check import STAGES, check
from kvcanon.conformance.check.effort import EFFORTS, effort_named
from kvcanon.conformance.check.finding import Grounds
from kvcanon.conformance.check.result import CheckResult, Failure, Standing
from kvcanon.conformance.check.trial import Trial, same_fault
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.spec.law import LAWS

USUAL = dict(EFFORTS)
"""The unchanged efforts."""


@pytest.fixture(autouse=True)
def _small_efforts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The efforts, with fewer cases."""
    # Checks are equal only if no stage reaches its time limit, even on a busy machine.
    quick = evolve(
        EFFORTS["quick"], walker_cases=48, machine_cases=10, run=10, ranks_cases=16, seconds=560
    )
    monkeypatch.setitem(EFFORTS, "quick", quick)
    monkeypatch.setitem(EFFORTS, "deep", evolve(EFFORTS["deep"], block=8, run=10))


def facts(result: CheckResult) -> object:
    """Return a result without its times."""
    return result.caches, [(stage.name, stage.cases, stage.steps) for stage in result.stages]


def test_a_sound_cache_holds_every_law() -> None:
    """The reference holds every law, and exercises each."""
    result = check(["reference"], jobs=1)
    assert not result.failures
    assert [stage.name for stage in result.stages] == list(STAGES)
    assert all(stage.cases and stage.steps and not stage.cut_short for stage in result.stages)
    (cache,) = result.caches
    assert cache.tally.steps == sum(stage.steps for stage in result.stages)
    assert cache.lacks == ()
    for law_id, standing in cache.standings.items():
        assert standing is (Standing.HELD if cache.tally.laws[law_id] else Standing.NOT_EXERCISED)
    assert cache.standings.keys() == LAWS.keys()


def test_any_number_of_processes_comes_to_the_same_result() -> None:
    """One process and two give the same result."""
    names = ["reference", "faulty:NICKNAMED"]
    assert facts(check(names, jobs=2)) == facts(check(names, jobs=1))


def shows(failure: Failure) -> bool:
    """Whether a case shows its failure when it is played again."""
    trial = Trial(adapter_as(failure.finding.cache), JudgeConfig(black_box=failure.black_box))
    seen, _ = trial.play(failure.case)
    return same_fault(failure.finding, seen)


def test_each_failure_can_be_played_again() -> None:
    """The case of each failure shows the failure again."""
    failures = check(["faulty:Leaky"], only=["walker"], jobs=1).failures
    assert failures
    assert all(shows(failure) for failure in failures)


def test_a_broken_law_stands_as_broken_for_its_cache_alone() -> None:
    """A broken law counts against the faulty cache only."""
    sound, leaky = check(["reference", "faulty:Leaky"], only=["walker"], jobs=1).caches
    assert not sound.failures
    assert Standing.BROKEN not in sound.standings.values()
    assert leaky.standings["ALLOC-3"] is Standing.BROKEN
    broken = {law_id for law_id, each in leaky.standings.items() if each is Standing.BROKEN}
    assert broken == {
        law_id for first in leaky.failures for each in first.every for law_id in each.laws
    }


def test_hypothesis_finds_it_too() -> None:
    """The machine stage alone finds the fault."""
    result = check(["faulty:Leaky"], only=["machine"], jobs=1)
    assert [stage.name for stage in result.stages] == ["machine"]
    assert "enough was found" in result.stages[0].cut_short
    (failure,) = result.failures
    assert failure.origin == "machine, seed 0, run 0"
    assert failure.finding.name in failure.laws
    assert shows(failure)


def test_a_known_law_leads_to_no_finding_of_another_law() -> None:
    """From outside nothing is judged after a broken law: the records of the judge are wrong."""
    known = ["ALLOC-1", "ALLOC-3"]
    (cache,) = check(["faulty:Leaky"], only=["walker"], jobs=1, black_box=True, known=known).caches
    assert Standing.KNOWN in {cache.standings[each] for each in known}
    assert not {law_id for first in cache.failures for each in first.every for law_id in each.laws}


def test_only_chosen_laws_are_judged() -> None:
    """With `only`, other laws are not exercised."""
    (cache,) = check(["faulty:Leaky"], only=["MATCH-1", "walker"], jobs=1).caches
    assert cache.standings["MATCH-1"] is Standing.HELD
    assert cache.standings["ALLOC-1"] is Standing.NOT_EXERCISED
    assert not cache.failures


@pytest.mark.parametrize("stage", ["walker", "machine"])
def test_known_laws_are_shown_by_random_cases_and_end_none(stage: str) -> None:
    """Random cases check known laws, count the cases that break them, and go on."""
    broken = _broken(check(["faulty:Leaky"], only=[stage], jobs=1))
    result = check(["faulty:Leaky"], only=[stage], known=sorted(broken), jobs=1)
    (cache,) = result.caches
    shown = {law_id for law_id in broken if cache.standings[law_id] is Standing.KNOWN}
    assert shown
    assert shown == {law_id for law_id in broken if cache.tally.known[law_id]}
    assert not broken & _broken(result)


def test_a_known_law_that_nothing_breaks_is_held() -> None:
    """A law that is known to be broken, and is not, is held."""
    (cache,) = check(["reference"], only=["walker", "RES-4"], known=["RES-4"], jobs=1).caches
    assert cache.standings["RES-4"] is Standing.HELD
    assert not cache.tally.known


def _broken(result: CheckResult) -> set[str]:
    """The laws that some failure shows, also one that is folded into another."""
    return {law_id for first in result.failures for each in first.every for law_id in each.laws}


def test_a_cache_that_shows_little_says_what_it_lacks() -> None:
    """The result lists what a cache lacks."""
    (cache,) = check(["faulty:OPAQUE"], only=["walker"], jobs=1).caches
    assert {"snapshot", "events", "bytes"} <= set(cache.lacks)
    assert cache.standings["TREE-1"] is Standing.NOT_EXERCISED
    assert Standing.HELD in cache.standings.values()


def test_a_check_that_judged_nothing_is_a_fault() -> None:
    """A check that exercised no law raises a UsageError."""
    with pytest.raises(UsageError, match="nothing was judged of faulty:OPAQUE; it lacks"):
        check(["faulty:OPAQUE"], only=["TREE-1"], jobs=1)


def test_a_cache_must_agree_with_another() -> None:
    """A cache that differs from the one to agree with fails."""
    result = check(
        ["faulty:Short", "reference"], against="reference", only=["TREE-1", "walker"], jobs=1
    )
    assert {failure.finding.grounds for failure in result.failures} == {Grounds.AGREEMENT}
    assert {failure.finding.cache for failure in result.failures} == {"faulty:Short"}
    assert result.failures[0].against == "reference"


def test_a_broken_cache_is_no_model() -> None:
    """A fault of the cache to agree with is reported as its own."""
    result = check(["reference"], against="faulty:Crashing", only=["walker"], jobs=1)
    assert [cache.name for cache in result.caches] == ["reference", "faulty:Crashing"]
    assert not result.caches[0].failures
    assert result.caches[1].failures


def test_a_check_that_is_out_of_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage that ran out of time says so."""
    hasty = evolve(EFFORTS["quick"], walker_cases=10**6, seconds=0.5)
    monkeypatch.setitem(EFFORTS, "quick", hasty)
    result = check(["reference"], only=["walker"], jobs=1)
    assert "reference: the time was over after" in result.stages[0].cut_short
    assert 0 < result.stages[0].cases < 10**6


def test_a_deep_check_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """A deep check with a store continues with the next blocks."""
    done = [
        check(
            ["reference"], effort="deep", minutes=0.02, store=str(tmp_path), only=["walker"], jobs=1
        )
        .caches[0]
        .tally.cases
        for _ in range(2)
    ]
    assert done[0] > 0
    assert done[1] > done[0]


def test_a_deep_check_that_used_its_time_is_not_cut_short() -> None:
    """A deep check that used its time is not cut short."""
    only = ["walker", "machine"]
    result = check(["reference"], effort="deep", minutes=0.01, only=only, jobs=1)
    assert [stage.cut_short for stage in result.stages] == ["", ""]


def test_a_cache_that_does_not_answer_is_left_out_of_later_stages() -> None:
    """Later stages leave out a cache that gave no answer."""
    result = check(["faulty:Silent", "reference"], only=["walker", "machine"], jobs=1)
    silent, sound = result.caches
    assert [failure.finding.name for failure in silent.failures] == ["ChildSilent"]
    assert not sound.failures
    walker, machine = result.stages
    assert silent.tally.cases + sound.tally.cases == walker.cases + machine.cases
    assert "faulty:Silent: enough was found" in walker.cut_short
    assert not machine.cut_short


def test_progress_counts_cases() -> None:
    """Progress counts up to the number of cases."""
    told: list[tuple[str, int, int | None]] = []
    check(["reference"], only=["walker"], jobs=1, progress=lambda *each: told.append(each))
    assert told == [("walker, reference", cases, 48) for cases in (16, 32, 48)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"only": ["NOPE-1"]}, "no law NOPE-1, and no stage"),
        ({"known": ["NOPE-1"]}, "no law NOPE-1, which is given as known to be broken"),
        ({"effort": "huge"}, "no effort 'huge'; choose one of quick, standard, deep"),
        ({"minutes": 3.0}, "a quick effort takes no minutes"),
        ({"against": "nope"}, "no cache 'nope'"),
    ],
)
def test_a_wrong_call_is_a_usage_error(arguments: dict[str, object], problem: str) -> None:
    """A wrong call raises a UsageError that says what is wrong."""
    with pytest.raises(UsageError, match=problem):
        check(["reference"], jobs=1, **arguments)  # type: ignore[arg-type]  # One of them each.


def test_efforts_grow() -> None:
    """A larger effort plays more cases and has more time."""
    quick, standard, deep = (USUAL[name] for name in ("quick", "standard", "deep"))
    assert quick.seconds < 60 < standard.seconds < 600 < deep.seconds
    assert quick.walker_cases is not None
    assert standard.walker_cases is not None
    assert quick.walker_cases * 5 < standard.walker_cases
    assert effort_named("deep", minutes=90).seconds == 5400


def test_every_stage_has_a_share_of_the_time() -> None:
    """Every stage has a share of the time."""
    assert STAGES.keys() <= check_module.SHARES.keys()
