"""SHOULD laws: broken ones are reported, and hide no MUST law."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from attrs import evolve

from few_cases import FEW, check_here, plan_of
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check.blocks import play_cases
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.drawn_stages import run_once
from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Standing
from kvcanon.conformance.cli import main
from kvcanon.conformance.errors import OnShould, ViolationError
from kvcanon.conformance.judge.by_states.guard import guard_states
from kvcanon.conformance.judge.from_outside.request.guard import RequestBlackboxGuard
from kvcanon.conformance.judge.from_outside.tree.guard import BlackboxGuard
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    make_request_subject,
    make_subject,
    subject_of,
)
from kvcanon.conformance.pytest_plugin.checks import check_cache
from kvcanon.conformance.replay.replay import replay
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.mutants.kill_matrix import hunt_by_machine, hunt_inside
from kvcanon.lab.mutants.planted.entry import Mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Level, Violation
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Counts, Key, Slots, make_key
from serving import ServingCache
from should import SHOULD_ID, made

CONFIG = CacheConfig(device_slots=Counts(full=8))
KEY = make_key([1, 2], 1)
REFERENCE = Adapter("reference", ReferenceCache)


@pytest.fixture
def _thrift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a SHOULD law that the reference breaks."""
    monkeypatch.setitem(LAWS, SHOULD_ID, made())
    monkeypatch.setitem(EFFORTS, "quick", SMALL)


thrift = pytest.mark.usefixtures("_thrift")


SMALL = evolve(FEW, walker_cases=24, machine_cases=5, run=5)


def serve(cache: Cache, key: Key) -> None:
    """Insert a key that shares nothing with the cache."""
    cache.insert(key, 0, cache.allocate(Counts(len(key))))


# The judges.


@thrift
def test_a_guard_raises_or_calls_on_should() -> None:
    """A guard raises for a SHOULD law, or calls `on_should` and goes on."""
    with pytest.raises(ViolationError, match=SHOULD_ID):
        serve(guard_states(ReferenceCache(CONFIG)), KEY)
    noted: list[ViolationError] = []
    cache = guard_states(ReferenceCache(CONFIG), on_should=noted.append)
    serve(cache, KEY)
    assert cache.match(KEY).device_pages == 2
    assert [each.violations[0].law.law_id for each in noted] == [SHOULD_ID]


class Overstating(ReferenceCache):
    """Returns a prefix that is one page too long."""

    def match(self, key: Key) -> Matched:
        found = super().match(key)
        return evolve(found, prefix_pages=found.prefix_pages + bool(found.prefix_pages))


def overstated(on_should: OnShould) -> Callable[[], object]:
    """A call that breaks MATCH-1, of a tree cache that is judged from outside."""
    adapter = Adapter("overstating", Overstating)
    subject = make_subject(adapter, CONFIG)
    cache = BlackboxGuard(subject, adapter.profile, [LAWS["MATCH-1"]], on_should)
    serve(cache, KEY)
    return lambda: cache.match(KEY)


class Overcounting(ServingCache):
    """Returns a block table that is too short."""

    def extend(self, request_id: int, key: Key) -> Slots:
        table = super().extend(request_id, key)
        return evolve(table, full=table.full[:-1])


def overcounted(on_should: OnShould) -> Callable[[], object]:
    """A call that breaks ALLOC-5, of a request cache."""
    adapter = Adapter("overcounting", Overcounting, kind=CacheKind.REQUEST)
    subject = make_request_subject(adapter, CONFIG)
    laws = [LAWS["ALLOC-5"]]
    cache = RequestBlackboxGuard(subject, adapter.profile, laws, on_should, black_box=True)
    cache.admit(1, KEY)
    return lambda: cache.extend(1, make_key([1, 2, 3], 1))


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(("law_id", "breaks"), [("MATCH-1", overstated), ("ALLOC-5", overcounted)])
def test_from_outside_it_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
    law_id: str,
    breaks: Callable[[OnShould], Callable[[], object]],
    level: Level,
) -> None:
    """A black-box guard passes SHOULD laws to `on_should`, and raises for MUST laws."""
    monkeypatch.setitem(LAWS, law_id, evolve(LAWS[law_id], level=level))
    noted: list[ViolationError] = []
    call = breaks(noted.append)
    with pytest.raises(ViolationError) if level is Level.MUST else nullcontext():
        call()
    assert len(noted) == (level is Level.SHOULD)


@thrift
def test_violations_of_must_laws_come_first() -> None:
    """A violation error names MUST laws first."""
    should, must = LAWS[SHOULD_ID], LAWS["MATCH-1"]
    broken = ViolationError("so", [Violation(should, "s"), Violation(must, "m")])
    assert [each.law for each in broken.violations] == [must, should]
    assert not broken.only_should
    assert ViolationError("so", [Violation(should, "s")]).only_should


# Cases.


SERVED_TWICE = Case(CONFIG, (Action("serve", 0, 0, 1), Action("serve", 0, 1, 0)), ())


@thrift
def test_a_case_goes_on_where_it_is_not_kept() -> None:
    """A broken SHOULD law does not end a case."""
    (finding,), tallies = play(SERVED_TWICE, [REFERENCE])
    assert (finding.name, finding.only_should, finding.action) == (SHOULD_ID, True, 0)
    assert tallies["reference"].actions == 2


@thrift
def test_findings_of_must_laws_come_first() -> None:
    """A finding of a MUST law comes before one of a SHOULD law."""
    found, _ = play(SERVED_TWICE, [Adapter("overstating", Overstating)])
    assert [each.only_should for each in found] == [False, True]


@thrift
def test_cases_go_on_where_it_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings of SHOULD laws alone are never enough."""
    monkeypatch.setattr("kvcanon.conformance.check.blocks.FINDINGS_ENOUGH", 3)
    report = play_cases(plan_of("reference").of("reference"), range(24), math.inf)
    assert report.tally.cases == 24
    assert not report.enough
    (found,) = report.found.values()
    assert found.name == SHOULD_ID
    assert found.times > 3


@pytest.mark.nightly
@thrift
def test_the_machine_reports_it_where_nothing_else_is_wrong() -> None:
    """The machine reports a SHOULD law if it found nothing else."""
    drawn = run_once(plan_of("reference", effort=SMALL).of("reference"), 0, math.inf)
    (failure,) = drawn.findings
    assert failure.name == SHOULD_ID
    assert len(failure.case.actions) < 4
    assert drawn.tally.cases >= 5
    more = plan_of("faulty:Leaky", effort=evolve(SMALL, run=20)).of("faulty:Leaky")
    failures = run_once(more, 0, math.inf).findings
    assert failures
    assert not any(each.only_should for each in failures)


@thrift
def test_mutants_of_such_laws_are_found() -> None:
    """A mutant that breaks only SHOULD laws counts as found."""

    def sound(_: Overrides) -> None:
        """Plants no fault, so that only the SHOULD law is broken."""

    mutant = Mutant("sound", SHOULD_ID, sound, "none")
    for hunt in (hunt_inside, hunt_by_machine):
        kill = hunt(mutant, SMALL, 0)
        assert kill is not None
        assert kill.seen == (SHOULD_ID,)


# Checks.


@thrift
@pytest.mark.parametrize("strict", [False, True])
def test_a_check_fails_for_it_only_if_it_is_strict(strict: bool) -> None:
    """A broken SHOULD law fails only a strict check."""
    plan = plan_of("reference", only=["walker", "machine"], strict=strict, effort=SMALL, seed=1)
    result = check(plan, apart=False)
    (cache,) = result.caches
    assert not any(stage.cut_short for stage in result.stages)
    assert cache.standings[SHOULD_ID] is (Standing.BROKEN if strict else Standing.NOT_KEPT)
    (failure,) = cache.failures if strict else cache.unkept
    assert failure.name == SHOULD_ID
    assert failure.operation == 2
    assert not (cache.unkept if strict else cache.failures)
    assert not cache.missing


@thrift
def test_the_command_ends_with_0_unless_it_is_strict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command reports a broken SHOULD law, and exits with 1 only with --strict."""
    check_here(monkeypatch)  # The law is registered in this process alone.
    options = ("reference", "--only", "walker", "--jobs", "1", "--seed", "1")
    assert main(["check", *options]) == 0
    printed = capsys.readouterr().out
    assert f"SHOULD, not kept, 1: {SHOULD_ID} thrifty" in printed
    assert f"No MUST law is broken; SHOULD laws not kept: {SHOULD_ID}. " in printed
    assert main(["check", *options, "--strict"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"BROKEN (serving): {SHOULD_ID}. Played ")


@pytest.mark.nightly
@thrift
def test_check_cache_warns_unless_it_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check_cache` warns of a broken SHOULD law, and raises if it is strict."""
    monkeypatch.setitem(
        EFFORTS,
        "quick",
        evolve(SMALL, walker_cases=4, machine_cases=0, ranks_cases=0, store_cases=0),
    )
    with pytest.warns(UserWarning, match=f"SHOULD, not kept: {SHOULD_ID} thrifty: "):
        check_cache(REFERENCE)
    with pytest.raises(AssertionError, match=SHOULD_ID):
        check_cache(REFERENCE, strict=True)


@thrift
def test_a_replay_goes_on_where_it_is_not_kept() -> None:
    """A replay goes on after a broken SHOULD law, and reports it."""
    requests = [Request(3, lambda: (1, 2, 3)), Request(3, lambda: (4, 5, 6))]
    judgement = replay(subject_of(ReferenceCache(CONFIG)), requests, guard_rate=1.0).judgement
    assert judgement is not None
    assert judgement.unkept == (SHOULD_ID,)
    assert not judgement.broken
