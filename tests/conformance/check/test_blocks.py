"""Blocks of cases: their findings depend on the seed alone, and end when enough was found."""

from __future__ import annotations

import math
from itertools import count
from time import monotonic

import pytest
from attrs import evolve

import faulty
from few_cases import plan_of
from kvcanon.conformance.check import blocks, reduce, trial
from kvcanon.conformance.check.blocks import (
    BlocksReport,
    cases_of,
    local_caches,
    play_blocks,
    play_cases,
    time_to_reduce,
)
from kvcanon.conformance.check.plan import CachePlan
from kvcanon.conformance.check.reduce import reduce_all, reduced, share_of
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.stage import ENOUGH, OUT_OF_TIME
from kvcanon.conformance.check.triage import distinct
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.workers.workers import workers
from kvcanon.reference import ReferenceCache
from kvcanon.spec.law import LAWS

NEVER = math.inf


def plan(name: str, each: int = 8, **asked: object) -> CachePlan:
    """The plan of a cache, with blocks of so many cases."""
    made = plan_of(name, **asked)  # type: ignore[arg-type]  # What it takes.
    return evolve(made, effort=evolve(made.effort, block=each)).of(name)


LEAKY, REFERENCE = plan("faulty:Leaky"), plan("reference")


def played(cache: CachePlan, many: int = 4, jobs: int = 1) -> tuple[BlocksReport, str]:
    """The report of some blocks, and why they ended early."""
    with workers(jobs) as by:
        return play_blocks(cache, iter(range(many)), by, NEVER, lambda _block, _report: None)


def reduced_all(cache: CachePlan, report: BlocksReport) -> tuple[Finding, ...]:
    """The failures of a report."""
    with workers(1) as by:
        return reduce_all(cache, report, by)


@pytest.fixture(scope="module")
def leaky() -> BlocksReport:
    """The report of four blocks of a faulty cache."""
    return played(LEAKY)[0]


@pytest.fixture(scope="module")
def failures(leaky: BlocksReport) -> tuple[Finding, ...]:
    """Its failures."""
    return reduced_all(LEAKY, leaky)


def test_any_number_of_processes_finds_the_same(leaky: BlocksReport) -> None:
    """One process and two find the same."""
    assert played(LEAKY, jobs=2)[0] == leaky


def test_another_seed_plays_other_cases() -> None:
    """Two seeds play different cases."""
    one, other = (
        {cases_of(plan("reference", seed=seed)).case(number) for number in range(50)}
        for seed in (0, 1)
    )
    assert not one & other


def test_the_first_case_of_a_finding_counts(leaky: BlocksReport) -> None:
    """A failure comes from the first case that shows it."""
    (found,) = (each for each in leaky.found.values() if each.name == "ALLOC-3")
    cases = cases_of(LEAKY)
    for number in range(found.case_number):
        finding, _ = cases.trial(number).play(cases.case(number))
        assert finding is None or finding.name != "ALLOC-3"
    assert sum(each.times for each in leaky.found.values()) > len(leaky.found)


def test_cases_are_judged_from_inside_and_from_outside_and_compared() -> None:
    """Some cases are judged by states, some in black-box mode, and some are compared."""
    cases = cases_of(plan("faulty:Leaky", against="reference"))
    trials = [cases.trial(number) for number in range(32)]
    assert 16 <= sum(not trial.judges.black_box for trial in trials) < 32
    assert 0 < sum(trial.against is not None for trial in trials) <= 16
    report, _ = played(REFERENCE)
    assert len(report.tally.laws) > 0.7 * len(LAWS)
    # In a black-box check the adapter itself hides states.
    hidden, _ = played(plan("reference", black_box=True))
    assert "TREE-1" in report.tally.laws.keys() - hidden.tally.laws.keys()


def test_only_chosen_laws_are_checked() -> None:
    """A law that is left out does not end a case."""
    report, _ = played(plan("faulty:Leaky", only=("MATCH-1", "LOCK-1")), many=2)
    assert report.tally.laws.keys() <= {"MATCH-1", "LOCK-1"}
    # A leak goes on, until a slot that the client holds is refused.
    assert Grounds.LAW not in {each.grounds for each in report.found.values()}


def test_a_case_gets_what_was_asked_of_the_check() -> None:
    """What a plan asks of the judge reaches the trial of each case as it is."""
    cache = plan("faulty:Leaky", only=("LOCK-1", "MATCH-1"), known=("ALLOC-3",))
    for number in range(8):
        judges = cases_of(cache).trial(number).judges
        assert evolve(judges, black_box=False) == JudgeConfig(
            laws=("MATCH-1", "LOCK-1"), known=frozenset({"ALLOC-3"})
        )


def test_disagreement_is_found() -> None:
    """A cache that differs from the one to agree with is found."""
    short = plan("faulty:SIMPLY_SHORT", against="reference", only=("TREE-1",))
    report, _ = played(short)
    assert {found.grounds for found in report.found.values()} == {Grounds.AGREEMENT}
    first, *_ = reduced_all(short, report)
    assert first.against == "reference"
    assert len(first.case.actions) <= 3


def test_the_time_is_a_ceiling() -> None:
    """Blocks end when their time is over, and say so."""
    with workers(1) as by:
        report, why = play_blocks(REFERENCE, count(), by, monotonic() + 0.2, lambda _b, _r: None)
    assert why == OUT_OF_TIME
    assert report.tally.cases > 0
    assert play_cases(REFERENCE, range(8), monotonic() - 1).cut


def test_a_configuration_that_is_not_offered_is_left_out() -> None:
    """A case with a configuration that is not offered counts as not offered, and is no finding."""
    report, _ = played(plan("faulty:choosy"))
    assert not report.found
    assert report.tally.unoffered > 0
    assert report.tally.cases + report.tally.unoffered == 32


def test_a_cache_that_ends_its_process_is_a_finding() -> None:
    """A cache that ends its process is a finding, and its case is known."""
    report, _ = played(plan("faulty:Dying", each=4), many=1, jobs=2)
    (found,) = report.found.values()
    assert found.name == "exit code 9"
    assert report.tally.cases == 4


def test_a_cache_that_is_wrong_in_everything_is_left_soon() -> None:
    """No more cases are played after enough findings."""
    report, why = played(plan("faulty:Crashing"), many=100)
    assert why == ENOUGH
    assert report.tally.cases < 400


def test_a_cache_that_does_not_answer_is_played_a_few_times_only() -> None:
    """A few cases without an answer are enough, and reducing takes few plays."""
    faulty.Silent.unanswered = 0
    silent = plan("faulty:Silent", each=100)
    report, why = played(silent, many=100)
    assert why == ENOUGH
    assert faulty.Silent.unanswered == 2
    with workers(1) as by:
        (failure,) = reduce_all(silent, report, by)
    assert failure.name == "ChildSilent"
    assert faulty.Silent.unanswered < 20


def test_an_adapter_is_made_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process makes an adapter once."""
    made = []

    def counted(name: str) -> Adapter:
        made.append(name)
        return Adapter(name, ReferenceCache)

    monkeypatch.setattr(trial, "adapter_in_time", counted)
    played(plan("counted", against="another"))
    assert sorted(made) == ["another", "counted"]


def test_blocks_are_reported_in_their_order() -> None:
    """Reports of blocks are in the order of the blocks."""
    done = []
    with workers(2) as by:
        play_blocks(
            plan("reference", each=4),
            iter(range(5)),
            by,
            NEVER,
            lambda block, report: done.append((block, report.cut)),
        )
    assert done == [(block, False) for block in range(5)]


def test_a_cache_that_cannot_be_made_is_found_and_others_go_on() -> None:
    """A factory that raises is a finding, and the other cases are played."""
    report, _ = played(plan("faulty:unmade"))
    (found,) = report.found.values()
    assert found.grounds is Grounds.CRASH
    assert "no such kernel" in found.text
    assert report.tally.cases == 32


def test_what_does_not_show_again_is_reported_as_it_was() -> None:
    """A finding that does not show again is reported with its case."""
    report, _ = played(plan("faulty:flaky"))
    (found,) = report.found.values()
    failure = reduced(REFERENCE, found)
    assert failure is not None
    assert failure.case == found.case
    assert "not show it every time" in failure.origin


def test_what_an_earlier_run_found_must_show_again(leaky: BlocksReport) -> None:
    """A finding of an earlier run is dropped if the cache of that name does not show it."""
    earlier = [evolve(found, earlier=True) for found in leaky.found.values()]
    assert all(reduced(LEAKY, found) is not None for found in earlier)
    with local_caches(Adapter("faulty:Leaky", ReferenceCache)):
        assert all(reduced(LEAKY, found) is None for found in earlier)
    assert all(reduced(LEAKY, found) is not None for found in earlier)


@pytest.fixture(scope="module")
def one(failures: tuple[Finding, ...]) -> Finding:
    """A failure that answers and events show."""
    return next(each for each in failures if each.black_box and each.grounds is Grounds.LAW)


def named(finding: Finding, *texts: tuple[str, str]) -> Finding:
    """A finding with these broken laws and their sentences."""
    broken, words = zip(*texts, strict=True)
    return evolve(finding, broken=broken, texts=words)


def test_failures_of_one_fingerprint_are_one(one: Finding) -> None:
    """Failures with one fingerprint become one, with all their findings counted."""
    longer = evolve(one, case=cases_of(LEAKY).case(3), times=5, origin="elsewhere")
    (joined,) = distinct([longer, one])
    assert joined == evolve(one, times=one.times + 5)


def test_a_law_that_only_a_longer_failure_breaks_keeps_it(one: Finding) -> None:
    """A longer failure is kept for a law that no other breaks, and is named after that law."""
    more = named(one, *one.evidence.items(), ("TREE-1", "so it is"))
    longer = evolve(more, case=cases_of(LEAKY).case(3))
    first, other = distinct([longer, one])
    assert first == evolve(one, times=2 * one.times)
    assert (other.name, other.text) == ("TREE-1", "so it is")


def test_one_case_for_two_laws_is_one_failure_named_after_the_more_frequent(one: Finding) -> None:
    """Two laws that break at the same call of one case are one failure."""
    both = named(one, ("ALLOC-1", "a"), ("ALLOC-3", "c"))
    rare = evolve(both.of_law("ALLOC-1"), times=1)
    often = evolve(both.of_law("ALLOC-3"), times=7)
    (joined,) = distinct([rare, often])
    assert (joined.name, joined.text, joined.times) == ("ALLOC-3", "c", 8)


def test_every_law_that_was_broken_is_broken_by_a_reduced_case() -> None:
    """Each law that was seen broken has a failure with a sentence for it."""
    cache = plan("reported:evicted_window_slots_leak")
    report, _ = played(cache)
    seen = {name for group in (report.found, report.beside) for _, _, name in group}
    assert len(seen) > 4
    assert report.beside.keys() - report.found.keys()
    evidence: dict[str, str] = {}
    for failure in reduced_all(cache, report):
        evidence |= failure.evidence
        assert failure.text == failure.evidence[failure.name]
    assert seen <= evidence.keys()
    assert all(evidence.values())


def test_blocks_with_findings_end_before_their_deadline(
    one: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks after a finding have an earlier deadline than those before it."""
    assert time_to_reduce(monotonic() + 100) == pytest.approx(40, abs=1)
    assert time_to_reduce(monotonic() + 1e6) == 120
    assert time_to_reduce(0) == 0
    deadlines: list[float] = []

    def play(_cache: CachePlan, numbers: range, deadline: float) -> BlocksReport:
        deadlines.append(deadline)
        report = BlocksReport()
        if 1 in numbers:
            report.note(one)
        return report

    monkeypatch.setattr(blocks, "play_cases", play)
    deadline = monotonic() + 100
    with workers(1) as by:
        few = plan("faulty:Leaky", each=1)
        play_blocks(few, iter(range(4)), by, deadline, lambda _block, _report: None)
    assert deadlines[:2] == [deadline] * 2
    assert deadlines[2:] == pytest.approx([deadline - 40] * 2, abs=1)


def test_reductions_share_the_work_of_a_stage(
    leaky: BlocksReport, failures: tuple[Finding, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reduction has its share of the operations; what was not reduced says so."""
    assert share_of(0) == share_of(1) == reduce.STEPS
    assert share_of(4) == reduce.STEPS_TOGETHER // 4
    assert share_of(1_000) == reduce.LEAST_STEPS
    monkeypatch.setattr(reduce, "LEAST_STEPS", 1)
    monkeypatch.setattr(reduce, "STEPS_TOGETHER", 0)
    with workers(1) as by:
        cut = reduce_all(LEAKY, leaky, by)
    assert cut
    assert not any(failure.reduced for failure in cut)
    assert all(failure.reduced for failure in failures)


def test_a_finding_names_the_cache_as_the_command_line_does() -> None:
    """A finding names the cache as the command line does; the adapter is the same."""
    cache = plan("faulty:NICKNAMED")
    report, _ = played(cache)
    assert {found.cache for found in report.found.values()} == {"faulty:NICKNAMED"}
    assert cases_of(cache).base.adapter.offer == faulty.SIMPLE != Offer()
