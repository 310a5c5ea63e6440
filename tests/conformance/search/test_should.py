"""Laws that should be kept, and need not: they are reported, and hide nothing that must be."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.bench.replay import replay
from kvcanon.conformance.bench.workloads.request import Request
from kvcanon.conformance.blackbox.request.guard import RequestBlackboxGuard
from kvcanon.conformance.blackbox.tree.guard import BlackboxGuard
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.mutants.kill_matrix import hunt_by_machine, hunt_inside
from kvcanon.conformance.observe.guard import guard
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    make_request_subject,
    make_subject,
)
from kvcanon.conformance.search.campaign import Search, SearchSpec, play_block
from kvcanon.conformance.search.check import check
from kvcanon.conformance.search.effort import EFFORTS
from kvcanon.conformance.search.play import play
from kvcanon.conformance.search.random_stages import run_once
from kvcanon.conformance.search.result import Standing
from kvcanon.conformance.suite.checks import check_cache
from kvcanon.conformance.variants.override import Overrides
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Level, Violation
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Counts, Key, Slots, make_key
from meta.mutants.entry import Mutant
from serving import ServingCache
from should import SHOULD_ID, made

CONFIG = CacheConfig(device_slots=Counts(full=8))
KEY = make_key([1, 2], 1)
REFERENCE = Adapter("reference", ReferenceCache)


@pytest.fixture
def _thrift(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law in the book that should be kept, and that the plain cache does not keep."""
    monkeypatch.setitem(LAWS, SHOULD_ID, made())


thrift = pytest.mark.usefixtures("_thrift")


@pytest.fixture(autouse=True)
def _small_efforts(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = evolve(EFFORTS["quick"], walker_cases=80, machine_cases=5, run=5, seconds=560)
    monkeypatch.setitem(EFFORTS, "quick", quick)


def serve(cache: Cache, key: Key) -> None:
    """Insert a key that shares nothing with what is there."""
    cache.insert(key, 0, cache.allocate(Counts(len(key))))


# The judges.


@thrift
def test_a_guard_raises_it_unless_somebody_is_told() -> None:
    """A guard says nothing of a law that should be kept, or does not go on where it is told to."""
    with pytest.raises(ViolationError, match=SHOULD_ID):
        serve(guard(ReferenceCache(CONFIG)), KEY)
    told: list[ViolationError] = []
    cache = guard(ReferenceCache(CONFIG), on_should=told.append)
    serve(cache, KEY)
    assert cache.match(KEY).device_pages == 2
    assert [each.violations[0].law.law_id for each in told] == [SHOULD_ID]


class Overstating(ReferenceCache):
    """Finds a page that is not there, beside those that are."""

    def match(self, key: Key) -> Matched:
        """Find it."""
        found = super().match(key)
        return evolve(found, prefix_pages=found.prefix_pages + bool(found.prefix_pages))


@pytest.mark.parametrize("level", Level)
def test_from_outside_it_is_the_same(monkeypatch: pytest.MonkeyPatch, level: Level) -> None:
    """A judge that sees answers alone raises what should be kept, or tells what must be."""
    monkeypatch.setitem(LAWS, "MATCH-1", evolve(LAWS["MATCH-1"], level=level))
    told: list[ViolationError] = []
    adapter = Adapter("overstating", Overstating)
    subject = make_subject(adapter, CONFIG)
    cache = BlackboxGuard(subject, adapter.profile, [LAWS["MATCH-1"]], told.append)
    serve(cache, KEY)
    if level is Level.MUST:
        with pytest.raises(ViolationError):
            cache.match(KEY)
    else:
        cache.match(KEY)
    assert len(told) == (level is Level.SHOULD)


class Overcounting(ServingCache):
    """Gives a block table that is too short."""

    def extend(self, request_id: int, key: Key) -> Slots:
        """Leave the last slot out."""
        table = super().extend(request_id, key)
        return evolve(table, full=table.full[:-1])


@pytest.mark.parametrize("level", Level)
def test_with_requests_it_is_the_same(monkeypatch: pytest.MonkeyPatch, level: Level) -> None:
    """The same of a cache that is used by requests."""
    monkeypatch.setitem(LAWS, "ALLOC-5", evolve(LAWS["ALLOC-5"], level=level))
    told: list[ViolationError] = []
    adapter = Adapter("overcounting", Overcounting, kind=CacheKind.REQUEST)
    subject = make_request_subject(adapter, CONFIG)
    laws = [LAWS["ALLOC-5"]]
    cache = RequestBlackboxGuard(subject, adapter.profile, laws, told.append, black_box=True)
    cache.admit(1, KEY)
    if level is Level.MUST:
        with pytest.raises(ViolationError):
            cache.extend(1, make_key([1, 2, 3], 1))
    else:
        cache.extend(1, make_key([1, 2, 3], 1))
    assert len(told) == (level is Level.SHOULD)


@thrift
def test_what_must_be_kept_comes_first() -> None:
    """An operation breaks two laws, and is told by the one that need not be kept."""
    should, must = LAWS[SHOULD_ID], LAWS["MATCH-1"]
    broken = ViolationError("so", [Violation(should, "s"), Violation(must, "m")])
    assert [each.law for each in broken.violations] == [must, should]
    assert not broken.only_should
    assert ViolationError("so", [Violation(should, "s")]).only_should


# Cases.


SERVED_TWICE = Case(CONFIG, (Action("serve", 0, 0, 1), Action("serve", 0, 1, 0)), ())


@thrift
def test_a_case_goes_on_where_it_is_not_kept() -> None:
    """A case ends at what only should be kept, and what must be is never asked after it."""
    (finding,), tallies = play(SERVED_TWICE, [REFERENCE])
    assert (finding.name, finding.only_should, finding.action) == (SHOULD_ID, True, 0)
    assert tallies["reference"].actions == 2


@thrift
def test_what_must_be_kept_is_told_before_what_should() -> None:
    """A fault is hidden by what only should be kept."""
    found, _ = play(SERVED_TWICE, [Adapter("overstating", Overstating)])
    assert [each.only_should for each in found] == [False, True]


@thrift
def test_a_campaign_goes_on_where_it_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough is found when a law that only should be kept is broken in every case."""
    monkeypatch.setattr("kvcanon.conformance.search.campaign.FINDINGS_ENOUGH", 3)
    report = play_block(Search(REFERENCE), range(80), float("inf"))
    assert report.tally.cases == 80
    assert not report.enough
    (found,) = report.found.values()
    assert found.finding.name == SHOULD_ID
    assert found.times > 3


@thrift
def test_the_machine_reports_it_where_nothing_else_is_wrong() -> None:
    """Hypothesis stops at what only should be kept, or says nothing of it."""
    failure, tally = run_once(SearchSpec("reference"), 0, 5, None)
    assert failure is not None
    assert failure.finding.name == SHOULD_ID
    assert len(failure.case.actions) < 4
    assert tally.cases >= 5
    failure, _ = run_once(SearchSpec("faulty:Leaky"), 0, 20, None)
    assert failure is not None
    assert not failure.finding.only_should


@thrift
def test_mutants_of_such_laws_are_found() -> None:
    """A fault that breaks only what should be kept counts as one that nobody sees."""

    def sound(_: Overrides) -> None:
        """Nothing is wrong but thrift."""

    mutant = Mutant("sound", SHOULD_ID, sound, "none")
    for hunt in (hunt_inside, hunt_by_machine):
        kill = hunt(mutant, EFFORTS["quick"], 0)
        assert kill is not None
        assert kill.seen == (SHOULD_ID,)


# Checks.


@thrift
@pytest.mark.parametrize("strict", [False, True])
def test_a_check_fails_for_it_only_if_it_is_strict(strict: bool) -> None:
    """A law that need not be kept fails every check, or none."""
    result = check(["reference"], only=["walker", "machine"], strict=strict, jobs=1)
    (cache,) = result.caches
    assert not any(stage.cut_short for stage in result.stages)
    assert cache.standings[SHOULD_ID] is (Standing.BROKEN if strict else Standing.NOT_KEPT)
    (failure,) = cache.failures if strict else cache.unkept
    assert failure.finding.name == SHOULD_ID
    assert len(failure.case.actions) == 1
    assert not (cache.unkept if strict else cache.failures)
    assert not cache.missing


@thrift
def test_the_command_ends_with_0_unless_it_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    """What only should be kept stops a pull request, or is not to be seen."""
    options = ("reference", "--only", "walker", "--jobs", "1")
    assert main(["check", *options]) == 0
    printed = capsys.readouterr().out
    assert f"SHOULD, not kept, 1: {SHOULD_ID} thrifty" in printed
    assert f"No MUST law is broken; SHOULD laws not kept: {SHOULD_ID}. " in printed
    assert main(["check", *options, "--strict"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"BROKEN: {SHOULD_ID}"


@thrift
def test_check_cache_warns_unless_it_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only should be kept fails somebody's tests, or they never hear of it."""
    monkeypatch.setattr("kvcanon.conformance.suite.checks.MACHINE_CASES", 5)
    with pytest.warns(UserWarning, match=rf"SHOULD, not kept: (?s:.*)\n{SHOULD_ID} thrifty"):
        check_cache(REFERENCE)
    with pytest.raises(AssertionError, match=SHOULD_ID):
        check_cache(REFERENCE, strict=True)


@thrift
def test_a_replay_goes_on_where_it_is_not_kept() -> None:
    """A replay ends at what only should be kept, or does not mention it."""
    requests = [Request(3, lambda: (1, 2, 3)), Request(3, lambda: (4, 5, 6))]
    judgement = replay(ReferenceCache(CONFIG), requests, guard_rate=1.0).judgement
    assert judgement is not None
    assert judgement.unkept == (SHOULD_ID,)
    assert not judgement.broken
