"""The campaign: its findings depend on the seed alone, and it ends when enough was found."""

from __future__ import annotations

import math
from itertools import count
from time import monotonic

import pytest
from attrs import evolve

import faulty
from kvcanon.conformance.check import campaign
from kvcanon.conformance.check.campaign import (
    ENOUGH,
    OUT_OF_TIME,
    AnySearch,
    CampaignReport,
    CaseBlocks,
    Search,
    SearchSpec,
    play_block,
    search_blocks,
    time_to_reduce,
)
from kvcanon.conformance.check.finding import Grounds
from kvcanon.conformance.check.reductions import Share, distinct, reduce_all, reduced
from kvcanon.conformance.check.result import Failure
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.workers.workers import workers
from kvcanon.reference import ReferenceCache
from kvcanon.spec.law import LAWS

REFERENCE = Search(Adapter("reference", ReferenceCache))
LEAKY = Search(Adapter("leaky", faulty.Leaky))
NEVER = float("inf")


def searched(
    search: AnySearch, blocks: int = 4, jobs: int = 1, each: int = 8
) -> tuple[CampaignReport, str]:
    """The report of some blocks."""
    with workers(jobs) as by:
        numbers = CaseBlocks(iter(range(blocks)), each, lambda _block, _report: None)
        return search_blocks(search, numbers, by, NEVER)


def failures_of(search: AnySearch, jobs: int = 1) -> tuple[Failure, ...]:
    """The failures of four blocks."""
    report, _ = searched(search, jobs=jobs)
    with workers(jobs) as by:
        return reduce_all(search, report, by)


def test_any_number_of_processes_finds_the_same() -> None:
    """One process and two find the same failures."""
    search = SearchSpec("faulty:Leaky", seed=5)
    assert searched(search, jobs=2) == searched(search)
    assert failures_of(search, jobs=2) == failures_of(search)
    assert failures_of(search)


def test_another_seed_plays_other_cases() -> None:
    """Two seeds play different cases."""
    one, other = (evolve(REFERENCE, seed=seed) for seed in (0, 1))
    assert not {one.case(number) for number in range(50)} & {
        other.case(number) for number in range(50)
    }


def test_the_first_case_of_a_fault_counts() -> None:
    """A failure comes from the first case that shows its fault."""
    report, _ = searched(LEAKY)
    (found,) = (each for each in report.found.values() if each.finding.name == "ALLOC-3")
    for number in range(found.number):
        finding, _ = LEAKY.trial(number).play(LEAKY.case(number))
        assert finding is None or finding.name != "ALLOC-3"
    assert sum(each.times for each in report.found.values()) > len(report.found)


def test_cases_are_judged_from_inside_and_from_outside_and_compared() -> None:
    """A campaign judges by states, judges in black-box mode, and compares."""
    against = Adapter("other", ReferenceCache)
    trials = [evolve(REFERENCE, against=against).trial(number) for number in range(32)]
    assert 16 <= sum(not trial.judges.black_box for trial in trials) < 32
    assert 0 < sum(trial.against is not None for trial in trials) <= 16
    report, _ = searched(REFERENCE, blocks=8)
    assert len(report.tally.laws) > 0.8 * len(LAWS)


def test_only_chosen_laws_are_checked() -> None:
    """A law that is left out of a campaign does not end a case."""
    report, _ = searched(evolve(LEAKY, law_ids=("MATCH-1", "LOCK-1")))
    assert report.tally.laws.keys() <= {"MATCH-1", "LOCK-1"}
    assert not report.found


def test_disagreement_is_found() -> None:
    """A cache that differs from the one to agree with is found."""
    short = Search(
        Adapter("short", faulty.Short, faulty.SIMPLE),
        against=Adapter("reference", ReferenceCache),
        law_ids=("TREE-1",),
    )
    report, _ = searched(short)
    assert {found.finding.grounds for found in report.found.values()} == {Grounds.AGREEMENT}
    with workers(1) as by:
        (first, *_) = reduce_all(short, report, by)
    assert first.against == "reference"
    assert len(first.case.actions) <= 3


def test_a_cache_that_is_wrong_in_everything_is_left_soon() -> None:
    """A campaign ends after enough findings."""
    report, why = searched(Search(Adapter("crashing", faulty.Crashing)), blocks=100)
    assert why == ENOUGH
    assert report.tally.cases < 400


def test_a_cache_that_does_not_answer_is_played_a_few_times_only() -> None:
    """A campaign ends after a few cases without an answer, and reducing takes few plays."""
    faulty.Silent.asked = 0
    silent = Search(Adapter("silent", faulty.Silent))
    report, why = searched(silent, blocks=100, each=100)
    assert why == ENOUGH
    assert faulty.Silent.asked == 2
    with workers(1) as by:
        (failure,) = reduce_all(silent, report, by)
    assert failure.finding.name == "ChildSilent"
    assert faulty.Silent.asked < 20


def test_an_adapter_is_made_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process makes an adapter once."""
    made = []

    def counted(name: str) -> Adapter:
        made.append(name)
        return Adapter(name, ReferenceCache)

    monkeypatch.setattr("kvcanon.conformance.check.making.load_adapter", counted)
    searched(SearchSpec("counted", against="another"))
    assert sorted(made) == ["another", "counted"]


def test_the_time_is_a_ceiling() -> None:
    """A campaign ends when its time is over, and says so."""
    with workers(1) as by:
        blocks = CaseBlocks(count(), 8, lambda _block, _report: None)
        report, why = search_blocks(REFERENCE, blocks, by, monotonic() + 0.2)
    assert why == OUT_OF_TIME
    assert report.tally.cases > 0
    assert play_block(REFERENCE, range(8), monotonic() - 1).cut


def test_blocks_are_reported_in_their_order() -> None:
    """Reports of blocks are in the order of the blocks."""
    told = []
    with workers(2) as by:
        blocks = CaseBlocks(
            iter(range(5)), 4, lambda block, report: told.append((block, report.cut))
        )
        search_blocks(SearchSpec("reference"), blocks, by, NEVER)
    assert told == [(block, False) for block in range(5)]


def test_a_configuration_that_is_not_offered_is_left_out() -> None:
    """A case with a configuration that is not offered counts as not offered, and is no finding."""
    report, _ = searched(Search(Adapter("choosy", faulty.choosy)))
    assert not report.found
    assert report.tally.unoffered > 0
    assert report.tally.cases + report.tally.unoffered == 32


def test_a_cache_that_cannot_be_made_is_found_and_others_go_on() -> None:
    """A factory that raises is a finding, and the campaign goes on."""
    report, _ = searched(Search(Adapter("unmade", faulty.unmade)))
    (found,) = report.found.values()
    assert found.finding.grounds is Grounds.CRASH
    assert "no such kernel" in found.finding.text
    assert report.tally.cases == 32


def test_a_cache_that_ends_its_process_is_a_finding() -> None:
    """A cache that ends its process is a finding, and its case is known."""
    report, _ = searched(SearchSpec("faulty:Dying"), jobs=2, blocks=1, each=4)
    (found,) = report.found.values()
    assert found.finding.name == "exit code 9"
    assert report.tally.cases == 4


def test_what_does_not_show_again_is_reported_as_it_was() -> None:
    """A finding that does not show again is reported with its original case."""
    report, _ = searched(Search(Adapter("flaky", faulty.flaky)))
    (found,) = report.found.values()
    failure = reduced(REFERENCE, found)
    assert failure is not None
    assert failure.case == found.case
    assert "not show it every time" in failure.origin


def test_what_an_earlier_run_found_must_show_again() -> None:
    """A finding of an earlier run is dropped if it does not show again."""
    report, _ = searched(LEAKY)
    earlier = [evolve(found, earlier=True) for found in report.found.values()]
    mended = evolve(LEAKY, adapter=Adapter("leaky", ReferenceCache))
    assert all(reduced(LEAKY, found) is not None for found in earlier)
    assert all(reduced(mended, found) is None for found in earlier)


def test_what_can_be_seen_from_outside_is_reported_so() -> None:
    """A failure that answers and events show is marked as such."""
    outside = {failure.finding.name: failure.black_box for failure in failures_of(LEAKY)}
    assert outside["ALLOC-3"]


def test_failures_of_one_fingerprint_are_one() -> None:
    """Failures with one fingerprint become one, with all their findings counted."""
    one, *_ = failures_of(LEAKY)
    longer = evolve(one, case=LEAKY.case(3), times=5, origin="elsewhere")
    (joined,) = distinct([longer, one])
    assert joined.case == one.case
    assert joined.times == one.times + 5


def test_a_law_that_only_a_longer_failure_breaks_keeps_it() -> None:
    """A longer failure is kept for a law that no other breaks, and is named after that law."""
    one, *_ = failures_of(LEAKY)
    name, broken = one.finding.name, (*one.finding.broken, "TREE-1")
    texts = (*one.finding.texts, "so it is")
    finding = evolve(one.finding, broken=broken, texts=texts)
    first, other = distinct([evolve(one, finding=finding, case=LEAKY.case(3)), one])
    assert first.finding == one.finding
    assert first.finding.name == name
    assert (other.finding.name, other.finding.text) == ("TREE-1", "so it is")


def test_one_case_for_two_laws_is_one_failure_named_after_the_more_frequent() -> None:
    """Two laws that break at the same call of one case are one failure."""
    one, *_ = failures_of(LEAKY)
    broken = evolve(one.finding, broken=("ALLOC-1", "ALLOC-3"), texts=("a", "c"))
    rare = evolve(one, finding=broken.of_law("ALLOC-1"), times=1)
    often = evolve(one, finding=broken.of_law("ALLOC-3"), times=7)
    (joined,) = distinct([rare, often])
    assert (joined.finding.name, joined.finding.text, joined.times) == ("ALLOC-3", "c", 8)


def test_every_law_that_was_broken_is_broken_by_a_reduced_case() -> None:
    """Each law that the search saw broken has a failure with a sentence for it."""
    search = SearchSpec("reported:evicted_window_slots_leak")
    report, _ = searched(search)
    seen = {name for group in (report.found, report.beside) for _, _, name in group}
    assert len(seen) > 4
    assert report.beside.keys() - report.found.keys()
    evidence: dict[str, str] = {}
    for failure in failures_of(search):
        evidence |= failure.finding.evidence
        assert failure.finding.text == failure.finding.evidence[failure.finding.name]
    assert seen <= evidence.keys()
    assert all(evidence.values())


def test_a_search_that_found_something_leaves_time_to_reduce_it() -> None:
    """With findings, a search ends before its deadline; without, it does not."""
    assert time_to_reduce(monotonic() + 100) == pytest.approx(40, abs=1)
    assert time_to_reduce(monotonic() + 1e6) == 120
    assert time_to_reduce(0) == 0


def test_a_search_with_findings_ends_before_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks after a finding have an earlier deadline than those before it."""
    one, *_ = failures_of(LEAKY)
    deadlines: list[float] = []

    def play(_search: AnySearch, numbers: range, deadline: float) -> CampaignReport:
        deadlines.append(deadline)
        report = CampaignReport()
        if 1 in numbers:
            report.note(one.finding, one.case, 1)
        return report

    monkeypatch.setattr(campaign, "_play", play)
    deadline = monotonic() + 100
    with workers(1) as by:
        blocks = CaseBlocks(iter(range(4)), 1, lambda _block, _report: None)
        search_blocks(LEAKY, blocks, by, deadline)
    assert deadlines[:2] == [deadline] * 2
    assert deadlines[2:] == pytest.approx([deadline - 40] * 2, abs=1)


def test_reductions_share_the_time_that_is_left() -> None:
    """Each reduction has its share of the time; what was not reduced says so."""
    assert Share(math.inf, 2, 5).ends() == math.inf
    now = monotonic()
    assert Share(now + 30, 2, 6).ends() == pytest.approx(now + 10, abs=1)
    assert Share(now + 30, 2, 1).ends() == pytest.approx(now + 30, abs=1)
    report, _ = searched(LEAKY)
    with workers(1) as by:
        failures = reduce_all(LEAKY, report, by, now - 1)
    assert failures
    assert not any(failure.reduced for failure in failures)
    assert all(failure.reduced for failure in failures_of(LEAKY))


def test_a_failure_names_the_cache_as_the_command_line_does() -> None:
    """A failure names the cache as the command line does."""
    report, _ = searched(SearchSpec("faulty:NICKNAMED"))
    assert {found.finding.cache for found in report.found.values()} == {"faulty:NICKNAMED"}
    assert SearchSpec("faulty:NICKNAMED").search().adapter.offer != Offer()
