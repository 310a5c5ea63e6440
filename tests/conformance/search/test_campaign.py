"""The campaign: what it finds depends on its seed alone, and it knows when to stop."""

from __future__ import annotations

from itertools import count
from time import monotonic

import pytest
from attrs import evolve

import faulty
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.search.campaign import (
    ENOUGH,
    OUT_OF_TIME,
    Asked,
    CampaignReport,
    CaseBlocks,
    Search,
    SearchSpec,
    distinct,
    play_block,
    reduce_all,
    reduced,
    search_blocks,
    workers,
)
from kvcanon.conformance.search.finding import Grounds
from kvcanon.conformance.search.result import Failure
from kvcanon.reference import ReferenceCache
from kvcanon.spec.law import LAWS

REFERENCE = Search(Adapter("reference", ReferenceCache))
LEAKY = Search(Adapter("leaky", faulty.Leaky))
NEVER = float("inf")


def searched(
    asked: Asked, blocks: int = 4, jobs: int = 1, each: int = 8
) -> tuple[CampaignReport, str]:
    """What comes of so many blocks."""
    with workers(jobs) as by:
        numbers = CaseBlocks(iter(range(blocks)), each, lambda _block, _report: None)
        return search_blocks(asked, numbers, by, NEVER)


def failures_of(asked: Asked, jobs: int = 1) -> tuple[Failure, ...]:
    """The failures of four blocks."""
    report, _ = searched(asked, jobs=jobs)
    with workers(jobs) as by:
        return reduce_all(asked, report, by)


def test_any_number_of_processes_finds_the_same() -> None:
    """Two machines report two failures for one seed, or an adapter is not found in a process."""
    asked = SearchSpec("faulty:Leaky", seed=5)
    assert searched(asked, jobs=2) == searched(asked)
    assert failures_of(asked, jobs=2) == failures_of(asked)
    assert failures_of(asked)


def test_another_seed_plays_other_cases() -> None:
    """A campaign of another seed plays the same again."""
    one, other = (evolve(REFERENCE, seed=seed) for seed in (0, 1))
    assert not {one.case(number) for number in range(50)} & {
        other.case(number) for number in range(50)
    }


def test_the_first_case_of_a_fault_counts() -> None:
    """A failure names a case, and an earlier one shows the same."""
    report, _ = searched(LEAKY)
    (found,) = (each for each in report.found.values() if each.finding.name == "ALLOC-3")
    for number in range(found.number):
        finding, _ = LEAKY.trial(number).play(LEAKY.case(number))
        assert finding is None or finding.name != "ALLOC-3"
    assert sum(each.times for each in report.found.values()) > len(report.found)


def test_cases_are_judged_from_inside_and_from_outside_and_compared() -> None:
    """Some laws, or the agreement, are never asked."""
    against = Adapter("other", ReferenceCache)
    trials = [evolve(REFERENCE, against=against).trial(number) for number in range(32)]
    assert 16 <= sum(not trial.judges.black_box for trial in trials) < 32
    assert 0 < sum(trial.against is not None for trial in trials) <= 16
    report, _ = searched(REFERENCE, blocks=8)
    assert len(report.tally.laws) > 0.8 * len(LAWS)


def test_only_the_laws_that_are_asked_for_are_asked() -> None:
    """A law that is left out, as it is known to be broken, ends all cases all the same."""
    report, _ = searched(evolve(LEAKY, law_ids=("MATCH-1", "LOCK-1")))
    assert report.tally.laws.keys() <= {"MATCH-1", "LOCK-1"}
    assert not report.found


def test_disagreement_is_found() -> None:
    """A cache that does something else than it is to agree with passes."""
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
    """A broken cache is played for as long as a sound one."""
    report, why = searched(Search(Adapter("crashing", faulty.Crashing)), blocks=100)
    assert why == ENOUGH
    assert report.tally.cases < 400


def test_a_cache_that_does_not_answer_is_asked_a_few_times_only() -> None:
    """A cache that hangs is waited for in every case, and a thousand times while it is reduced."""
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
    """A child process is started for every few cases."""
    made = []

    def counted(name: str) -> Adapter:
        made.append(name)
        return Adapter(name, ReferenceCache)

    monkeypatch.setattr("kvcanon.conformance.search.campaign.load_adapter", counted)
    searched(SearchSpec("counted", against="another"))
    assert sorted(made) == ["another", "counted"]


def test_the_time_is_a_ceiling() -> None:
    """A campaign goes on when its time is over, or hides that it was."""
    with workers(1) as by:
        blocks = CaseBlocks(count(), 8, lambda _block, _report: None)
        report, why = search_blocks(REFERENCE, blocks, by, monotonic() + 0.2)
    assert why == OUT_OF_TIME
    assert report.tally.cases > 0
    assert play_block(REFERENCE, range(8), monotonic() - 1).cut


def test_blocks_are_told_of_in_their_order() -> None:
    """Progress runs backwards, or a store is told that a block is done which is not."""
    told = []
    with workers(2) as by:
        blocks = CaseBlocks(
            iter(range(5)), 4, lambda block, report: told.append((block, report.cut))
        )
        search_blocks(SearchSpec("reference"), blocks, by, NEVER)
    assert told == [(block, False) for block in range(5)]


def test_a_configuration_that_is_not_offered_is_left_out() -> None:
    """Saying no to a configuration is taken for a fault, or for a case that held."""
    report, _ = searched(Search(Adapter("choosy", faulty.choosy)))
    assert not report.found
    assert report.tally.unoffered > 0
    assert report.tally.cases + report.tally.unoffered == 32


def test_a_cache_that_cannot_be_made_is_found_and_others_go_on() -> None:
    """One configuration that crashes in the factory ends the whole campaign."""
    report, _ = searched(Search(Adapter("unmade", faulty.unmade)))
    (found,) = report.found.values()
    assert found.finding.grounds is Grounds.CRASH
    assert "no such kernel" in found.finding.text
    assert report.tally.cases == 32


def test_a_cache_that_ends_its_process_is_a_fault_in_one_line() -> None:
    """A crash of native code is a traceback of the judge's, or the check waits for ever."""
    with pytest.raises(
        UsageError, match="faulty:Dying ended its process, in one of the cases 0 to"
    ):
        searched(SearchSpec("faulty:Dying"), jobs=2)


def test_what_does_not_show_again_is_reported_as_it_was() -> None:
    """A fault that comes and goes is taken for none, or its case for a reduced one."""
    report, _ = searched(Search(Adapter("flaky", faulty.flaky)))
    (found,) = report.found.values()
    failure = reduced(REFERENCE, found)
    assert failure is not None
    assert failure.case == found.case
    assert "not show it every time" in failure.origin


def test_what_an_earlier_run_found_must_show_again() -> None:
    """A cache that was mended is reported as broken, as somebody's store says so."""
    report, _ = searched(LEAKY)
    earlier = [evolve(found, earlier=True) for found in report.found.values()]
    mended = evolve(LEAKY, adapter=Adapter("leaky", ReferenceCache))
    assert all(reduced(LEAKY, found) is not None for found in earlier)
    assert all(reduced(mended, found) is None for found in earlier)


def test_what_can_be_seen_from_outside_is_reported_so() -> None:
    """A failure is said to need a look at the state, and any client can see it."""
    outside = {failure.finding.name: failure.black_box for failure in failures_of(LEAKY)}
    assert outside["ALLOC-3"]


def test_failures_of_one_fingerprint_are_one() -> None:
    """A report tells one fault several times, or forgets how often it was found."""
    one, *_ = failures_of(LEAKY)
    longer = evolve(
        one, case=LEAKY.case(3), times=5, laws=frozenset({"TREE-1"}), origin="elsewhere"
    )
    (joined,) = distinct([longer, one])
    assert joined.case == one.case
    assert joined.times == one.times + 5
    assert joined.laws == one.laws | {"TREE-1"}


def test_a_failure_is_called_by_the_name_that_leads_back() -> None:
    """A script names a cache that nobody can find."""
    report, _ = searched(SearchSpec("faulty:NICKNAMED"))
    assert {found.finding.cache for found in report.found.values()} == {"faulty:NICKNAMED"}
    assert SearchSpec("faulty:NICKNAMED").search().adapter.offer != Offer()
