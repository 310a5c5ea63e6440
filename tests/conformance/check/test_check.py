"""The check: stages, standings and failures of all caches, whole or in shards."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve

from few_cases import FEW, plan_of
from kvcanon.conformance.check.check import SHARES, STAGES, check
from kvcanon.conformance.check.plan import EFFORTS, CheckStage, Shard, effort_named, stages_and_laws
from kvcanon.conformance.check.result import CheckResult, Finding, Grounds, Standing
from kvcanon.conformance.check.trial import Trial, adapter_as
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.report.known_differences import KnownDifference, line_on_stale
from kvcanon.conformance.report.report import report_of
from kvcanon.spec.law import LAWS
from paths import ROOT

DEEP = evolve(EFFORTS["deep"], block=8, run=10)


def facts(result: CheckResult) -> object:
    """Return a result without its times."""
    return result.caches, [(stage.name, stage.cases, stage.steps) for stage in result.stages]


def broken_in(result: CheckResult) -> set[str]:
    """The laws that some failure shows, also one that is folded into another."""
    return {law_id for first in result.failures for each in first.every for law_id in each.broken}


check_here = partial(check, apart=False)
"""Checks caches that neither end nor block their process without starting another one."""


def shows(failure: Finding) -> bool:
    """Whether a case shows its failure when it is played again."""
    trial = Trial(adapter_as(failure.cache), JudgeConfig(black_box=failure.black_box))
    seen, _ = trial.play(failure.case)
    return failure.is_same(seen)


@pytest.fixture(scope="module")
def leaky() -> CheckResult:
    """The walker on a faulty cache, beside a sound one."""
    return check_here(plan_of("reference", "faulty:Leaky", only=["walker"]))


def test_a_sound_cache_holds_every_law() -> None:
    """The reference holds every law, and exercises each."""
    result = check_here(plan_of("reference"))
    assert not result.failures
    assert [stage.name for stage in result.stages] == list(CheckStage)
    assert all(stage.cases and stage.steps and not stage.cut_short for stage in result.stages)
    (cache,) = result.caches
    assert cache.tally.steps == sum(stage.steps for stage in result.stages)
    assert cache.lacks == ()
    for law_id, standing in cache.standings.items():
        assert standing is (Standing.HELD if cache.tally.laws[law_id] else Standing.NOT_EXERCISED)
    assert cache.standings.keys() == LAWS.keys()


def test_any_number_of_processes_comes_to_the_same_result() -> None:
    """One process and two give the same result, with failures of every kind of case."""
    one, two = (check(plan_of("faulty:Short", jobs=jobs)) for jobs in (1, 2))
    assert facts(one) == facts(two)
    assert len(one.failures[0].every) > 1


def test_a_broken_law_stands_as_broken_for_its_cache_alone(leaky: CheckResult) -> None:
    """A broken law counts against the faulty cache only, and each failure shows it again."""
    sound, faulty = leaky.caches
    assert not sound.failures
    assert Standing.BROKEN not in sound.standings.values()
    assert faulty.standings["ALLOC-3"] is Standing.BROKEN
    broken = {law_id for law_id, each in faulty.standings.items() if each is Standing.BROKEN}
    assert broken == broken_in(leaky)
    assert all(shows(failure) for failure in leaky.failures)


def test_hypothesis_finds_it_too() -> None:
    """The machine stage alone finds the fault."""
    result = check_here(plan_of("faulty:Leaky", only=["machine"]))
    assert [stage.name for stage in result.stages] == ["machine"]
    assert "enough was found" in result.stages[0].cut_short
    (failure,) = result.failures
    assert failure.origin == "machine, seed 0, run 0"
    assert failure.name in failure.broken
    assert shows(failure)


def test_a_known_law_leads_to_no_finding_of_another_law() -> None:
    """From outside nothing is judged after a broken law: the records of the judge are wrong."""
    # Where nobody looks in between, a leak shows first as slots that are refused.
    known = ["ALLOC-1", "ALLOC-3", "REFUSE-1"]
    result = check_here(plan_of("faulty:Leaky", only=["walker"], black_box=True, known=known))
    (cache,) = result.caches
    assert Standing.KNOWN in {cache.standings[each] for each in known}
    assert not broken_in(result)


def test_only_chosen_laws_are_judged() -> None:
    """With `only`, other laws are not exercised."""
    (cache,) = check_here(plan_of("faulty:Leaky", only=["MATCH-1", "walker"])).caches
    assert cache.standings["MATCH-1"] is Standing.HELD
    assert cache.standings["ALLOC-1"] is Standing.NOT_EXERCISED
    assert Grounds.LAW not in {each.grounds for each in cache.failures}


@pytest.mark.parametrize("stage", [pytest.param("walker", marks=pytest.mark.nightly), "machine"])
def test_known_laws_are_shown_by_random_cases_and_end_none(stage: str) -> None:
    """Random cases check known laws, count the cases that break them, and go on."""
    broken = broken_in(check_here(plan_of("faulty:Leaky", only=[stage])))
    result = check_here(plan_of("faulty:Leaky", only=[stage], known=broken))
    (cache,) = result.caches
    shown = {law_id for law_id in broken if cache.standings[law_id] is Standing.KNOWN}
    assert shown
    assert shown == {law_id for law_id in broken if cache.tally.known[law_id]}
    assert not broken & broken_in(result)


@pytest.mark.parametrize("law_id", ["RES-4", "MATCH-1"])
def test_a_known_law_that_nothing_breaks_is_held(law_id: str) -> None:
    """A law that is known to be broken, and is not, is held; it may be an essential one."""
    (cache,) = check_here(plan_of("reference", only=["walker", law_id], known=[law_id])).caches
    assert cache.standings[law_id] is Standing.HELD
    assert not cache.tally.known
    assert not cache.missing


def test_a_cache_that_shows_little_says_what_it_lacks() -> None:
    """The result lists what a cache lacks; if nothing can be judged, that is a UsageError."""
    (cache,) = check_here(plan_of("faulty:OPAQUE", only=["walker"])).caches
    assert {"snapshot", "events", "bytes"} <= set(cache.lacks)
    assert cache.standings["TREE-1"] is Standing.NOT_EXERCISED
    assert Standing.HELD in cache.standings.values()
    with pytest.raises(UsageError, match="nothing was judged of faulty:OPAQUE; it lacks"):
        check_here(plan_of("faulty:OPAQUE", only=["TREE-1"]))


def test_a_cache_must_agree_with_another() -> None:
    """A cache that differs from the one to agree with fails."""
    plan = plan_of("faulty:Short", "reference", against="reference", only=["TREE-1", "walker"])
    result = check_here(plan)
    assert {failure.grounds for failure in result.failures} == {Grounds.AGREEMENT}
    assert {failure.cache for failure in result.failures} == {"faulty:Short"}
    assert result.failures[0].against == "reference"
    assert len(result.failures[0].case.actions) <= 3


def test_a_broken_cache_is_no_model() -> None:
    """A fault of the cache to agree with is reported as its own."""
    result = check_here(plan_of("reference", against="faulty:Crashing", only=["walker"]))
    assert [cache.name for cache in result.caches] == ["reference", "faulty:Crashing"]
    assert not result.caches[0].failures
    assert result.caches[1].failures


def test_a_check_that_is_out_of_time_says_so() -> None:
    """Each stage that ran out of time says so."""
    hasty = evolve(FEW, walker_cases=10**6, seconds=0.5)
    result = check_here(plan_of("reference", only=["walker"], effort=hasty))
    assert "reference: the time was over after" in result.stages[0].cut_short
    assert 0 < result.stages[0].cases < 10**6


def test_a_deep_check_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """A deep check with a store continues with the next blocks."""
    short = evolve(DEEP, seconds=0.6)
    plan = evolve(plan_of("reference", only=["walker"], effort=short), store=str(tmp_path))
    counts = [check_here(plan).caches[0].tally.cases for _ in range(2)]
    while counts[-1] == counts[0] and len(counts) < 24:  # A busy machine may play none in the time.
        counts.append(check_here(plan).caches[0].tally.cases)
    assert counts == sorted(counts)
    assert counts[-1] > counts[0] > 0


def test_a_deep_check_that_used_its_time_is_not_cut_short() -> None:
    """A deep check that used its time is not cut short."""
    short = evolve(DEEP, seconds=0.6)
    result = check_here(plan_of("reference", effort=short, only=["walker", "machine"]))
    assert [stage.cut_short for stage in result.stages] == ["", ""]


def test_a_cache_that_does_not_answer_is_left_out_of_later_stages() -> None:
    """Later stages leave out a cache that gave no answer."""
    result = check_here(plan_of("faulty:Silent", "reference", only=["walker", "machine"]))
    silent, sound = result.caches
    assert [failure.name for failure in silent.failures] == ["ChildSilent"]
    assert not sound.failures
    walker, machine = result.stages
    assert silent.tally.cases + sound.tally.cases == walker.cases + machine.cases
    assert "faulty:Silent: enough was found" in walker.cut_short
    assert not machine.cut_short


def test_progress_counts_cases() -> None:
    """Progress counts up to the number of cases."""
    shown: list[tuple[str, int, int | None]] = []
    check_here(plan_of("reference", only=["walker"]), progress=lambda *each: shown.append(each))
    assert shown == [("walker, reference", cases, 24) for cases in (8, 16, 24)]


# What is asked of it.


def test_a_plan_that_cannot_be_is_a_usage_error() -> None:
    """A plan with something that does not exist raises a UsageError that says what is wrong."""
    with pytest.raises(UsageError, match="no law NOPE-1; "):
        plan_of("reference", only=["NOPE-1"])
    with pytest.raises(UsageError, match="no law NOPE-1, which is given as known to be broken"):
        plan_of("reference", known=["NOPE-1"])
    with pytest.raises(UsageError, match="no effort 'huge'; choose one of quick, standard, deep"):
        effort_named("huge")
    with pytest.raises(UsageError, match="no cache 'nope'"):
        check_here(plan_of("reference", against="nope"))
    with pytest.raises(UsageError, match="leave the shard out"):
        evolve(plan_of("reference"), store="nowhere", shard=Shard(1, 2))


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1.5/4"])
def test_no_shard_is_refused(text: str) -> None:
    """A shard is a number and a count; anything else is refused in one line."""
    with pytest.raises(UsageError, match="no shard"):
        Shard.parse(text)


def test_stages_and_laws_are_chosen_by_name() -> None:
    """Names choose stages and laws, which keep their order; what is not named is whole."""
    assert stages_and_laws(()) == (tuple(CheckStage), None)
    assert stages_and_laws(("match-1", "LOCK-1")) == (tuple(CheckStage), ("MATCH-1", "LOCK-1"))
    assert stages_and_laws(("ranks", "walker")) == ((CheckStage.WALKER, CheckStage.RANKS), None)


def test_efforts_grow() -> None:
    """A larger effort plays more cases and has more time."""
    quick, standard, deep = (EFFORTS[name] for name in ("quick", "standard", "deep"))
    assert quick.seconds < standard.seconds < 600 < deep.seconds
    assert quick.walker_cases is not None
    assert standard.walker_cases is not None
    assert quick.walker_cases * 5 < standard.walker_cases
    assert effort_named("deep", minutes=90).seconds == 5400
    assert effort_named("quick", minutes=3.0).seconds == 180


def test_every_stage_can_be_run() -> None:
    """Every stage is there, and has a share of the time."""
    assert set(CheckStage) == STAGES.keys() == SHARES.keys()


# Shards.

TINY = evolve(
    FEW,
    corpus_cases=24,
    walker_cases=20,
    block=4,
    machine_cases=4,
    run=1,
    ranks_cases=16,
    store_cases=16,
)


def played(*results: CheckResult) -> dict[CheckStage, tuple[int, int, Counter[str]]]:
    """Cases, steps and exercised laws of each stage, over all results."""
    total = {}
    for stage in CheckStage:
        tallies = [each.caches[0].tallies[stage] for each in results]
        laws: Counter[str] = sum((each.laws for each in tallies), Counter())
        total[stage] = sum(e.cases for e in tallies), sum(e.steps for e in tallies), laws
    return total


@pytest.mark.nightly
def test_shards_play_the_whole_check_together() -> None:
    """The shards play the cases of the whole check, each once, and say that they are parts.

    A case that shows a known difference may be in another shard, so that none calls it stale.
    """
    plan = plan_of("reference", effort=TINY, known=["LOCK-8"])
    whole = check_here(plan)
    shards = [check_here(evolve(plan, shard=Shard.parse(f"{number}/3"))) for number in (1, 2, 3)]
    assert played(*shards) == played(whole)
    assert all(each.cases for shard in shards for each in shard.stages)
    assert [each.cut_short for each in whole.stages] == [""] * len(CheckStage)
    known = [KnownDifference("LOCK-8", "on purpose", "https://example.org/1")]
    for shard in shards:
        assert [each.cut_short[:10] for each in shard.stages] == ["only shard"] * len(CheckStage)
        assert not shard.caches[0].missing
        assert line_on_stale(ROOT, report_of(shard, known)) == ""
    assert "nothing in this check shows: LOCK-8" in line_on_stale(ROOT, report_of(whole, known))
