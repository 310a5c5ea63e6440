"""The machine: Hypothesis finds faults, reduces them, and finds the same every time."""

from __future__ import annotations

import inspect
from itertools import count

import pytest
from hypothesis import Phase, Verbosity, seed, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.stateful import run_state_machine_as_test

from kvcanon.conformance.cases import request_client
from kvcanon.conformance.cases.actions import ACTIONS
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.check import machine
from kvcanon.conformance.check.finding import Grounds
from kvcanon.conformance.check.machine import (
    CI,
    HypothesisFailure,
    draw_cases,
    machine_of,
    run_machine,
)
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.adapter import Adapter, MakeCache, Offer
from kvcanon.lab.variants.override import Overrides, overriding
from kvcanon.reference import ReferenceCache, host_insert, lock
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evicted, Matched, Settled
from kvcanon.spec.types import Counts, EvictionPolicy, Key, WritePolicy

REFERENCE = Adapter("reference", ReferenceCache)
EVERYTHING = Offer()
NO_HOST = Offer(write_policies=(WritePolicy.NONE,))


def silent_fetches(patch: Overrides) -> None:
    """Emits no events for fetched pages."""
    patch.setattr(host_insert, "emit_stored", lambda *_: None)


def kept_windows(patch: Overrides) -> None:
    """Releases full data only."""
    patch.setattr(lock, "_release_window", lambda held: None)


def trial_of(make: MakeCache, offer: Offer = EVERYTHING) -> Trial:
    """A trial of one cache, judged by its states."""
    return Trial(Adapter("it", make, offer))


SILENT = trial_of(overriding(silent_fetches))
KEPT = trial_of(overriding(kept_windows), NO_HOST)


@pytest.mark.parametrize(
    ("trial", "law_id", "actions"),
    [(SILENT, "EVENT-10", ["fetch_and_load"]), (KEPT, "LOCK-8", ["lock", "unlock_window"])],
    ids=["silent fetches", "kept windows"],
)
def test_fault_is_found_and_reduced(trial: Trial, law_id: str, actions: list[str]) -> None:
    """A planted fault is found, and its case is reduced to the actions that show it."""
    failure, tally = run_machine(trial, examples=100)
    assert failure is not None
    assert failure.finding.grounds is Grounds.LAW
    assert law_id in failure.finding.broken
    assert len(failure.case.actions) <= len(actions)
    assert 0 < tally.cases <= 101
    assert failure.origin == "machine, seed 0"


def test_case_replays() -> None:
    """The case of a failure shows it without Hypothesis."""
    failure, _ = run_machine(SILENT, examples=50)
    assert failure is not None
    found, _ = play(failure.case, [SILENT.adapter])
    assert found == [failure.finding]


def test_sound_cache_is_not_accused() -> None:
    """The reference breaks no law, and every case is played."""
    failure, tally = run_machine(Trial(REFERENCE), examples=30)
    assert failure is None
    assert tally.cases >= 30
    assert tally.steps > tally.cases
    assert {"RES-4", "EVENT-4", "DATA-1"} <= set(+tally.laws)


def test_seed_decides() -> None:
    """A seed draws the same cases each time, and another seed draws others."""
    draws = (run_machine(Trial(REFERENCE), examples=8, from_seed=number) for number in (3, 3, 4))
    first, again, other = draws
    assert first == again
    assert first[1] != other[1]


def test_printed_code_can_be_pasted() -> None:
    """The code that Hypothesis prints runs, and shows the finding."""
    drawn = seed(1)(machine_of(KEPT))
    with pytest.raises(HypothesisFailure) as caught:
        run_state_machine_as_test(
            drawn, settings=settings(CI, max_examples=100, verbosity=Verbosity.normal)
        )
    code = "\n".join(note for note in caught.value.__notes__ if note.startswith("state"))
    with pytest.raises(HypothesisFailure) as pasted:
        exec(code, {"CacheMachine": machine_of(KEPT)})  # noqa: S102  # As a reader would run it.
    assert pasted.value.case == caught.value.case
    assert pasted.value.finding == caught.value.finding


def test_every_action_has_a_rule_with_the_picks_that_it_uses() -> None:
    """Every action has a rule with its picks, and runs only if it can do something."""
    rules = {each.function.__name__: each for each in machine_of(KEPT).setup_state().rules}
    assert rules.keys() == ACTIONS.keys()
    for name, kind in ACTIONS.items():
        doers = [kind.do, *request_client.ACTIONS.get(name, ())[:1]]
        used = {each for do in doers for each in inspect.signature(do).parameters}
        assert rules[name].arguments.keys() == used & set(Action._fields)
        assert bool(rules[name].preconditions) == kind.host


def test_fault_that_shows_in_the_drain_is_found() -> None:
    """A fault that shows in the drain is found, and its case has the drain."""

    class NeverFlushes(ReferenceCache):
        def flush(self) -> Settled:
            raise RuntimeError("stuck")

    failure, _ = run_machine(trial_of(NeverFlushes, NO_HOST), examples=5, steps=5)
    assert failure is not None
    assert failure.finding.grounds is Grounds.CRASH
    assert failure.case.actions == ()
    assert failure.case.drain


def test_configurations_that_are_not_offered_are_left_out() -> None:
    """Cases that are not offered are counted as such, and are no findings."""

    def picky(config: CacheConfig) -> ReferenceCache:
        if config.eviction_policy is not EvictionPolicy.LRU:
            raise BadArgument("eviction_policy", "has to be LRU")
        return ReferenceCache(config)

    failure, tally = run_machine(trial_of(picky), examples=40)
    assert failure is None
    assert tally.unoffered > 0
    assert tally.cases > 0
    assert tally.cases + tally.unoffered >= 40


def test_cache_that_cannot_be_made_is_found() -> None:
    """A factory that raises is a finding."""

    def broken(config: CacheConfig) -> ReferenceCache:
        raise ZeroDivisionError("no room")

    failure, _ = run_machine(trial_of(broken), examples=5)
    assert failure is not None
    assert failure.finding.grounds is Grounds.CRASH
    assert "no room" in failure.finding.text


def test_disagreement_is_found() -> None:
    """A lawful cache that differs from the one to agree with is found."""

    class Generous(ReferenceCache):
        def evict(self, counts: Counts) -> Evicted:
            freed = super().evict(counts).freed
            return Evicted(Counts(freed.full + 1, freed.swa, freed.mamba))

    trial = Trial(Adapter("it", Generous, hides=frozenset()), against=REFERENCE)
    assert trial.against is not None
    failure, _ = run_machine(trial, examples=40, steps=10)
    assert failure is not None
    agreeing, _ = run_machine(Trial(Adapter("it", ReferenceCache), against=REFERENCE), examples=10)
    assert agreeing is None


def test_what_was_found_before_is_tried_first() -> None:
    """With a database, the next run tries the earlier failure first."""
    database = InMemoryExampleDatabase()
    first, _ = run_machine(KEPT, examples=100, database=database)
    assert first is not None
    again, tally = run_machine(KEPT, examples=1, from_seed=77, database=database)
    assert again is not None
    assert again.case == first.case
    assert tally.cases == 1


def test_cache_that_changes_its_mind_is_found() -> None:
    """A cache that is not deterministic is a finding."""
    calls = count()

    class Moody(ReferenceCache):
        def match(self, key: Key) -> Matched:
            if next(calls) % 37 == 36:
                raise RuntimeError("not in the mood")
            return super().match(key)

    failure, _ = run_machine(trial_of(Moody), examples=30)
    assert failure is not None
    assert failure.finding.name == "RuntimeError"


def test_no_case_begins_after_the_end_and_none_is_reduced_after_the_deadline() -> None:
    """A run ends in time, and says whether cases are missing or a case was not reduced."""
    none = draw_cases(Trial(REFERENCE), examples=20, ends=0)
    assert (none.failures, none.tally.cases, none.cut) == ((), 0, True)
    in_time = draw_cases(SILENT, examples=100)
    late = draw_cases(SILENT, examples=100, deadline=0)
    assert not in_time.cut
    assert not late.cut
    assert in_time.tally == late.tally
    (short,), (long,) = in_time.failures, late.failures[:1]
    assert (short.reduced, long.reduced) == (True, False)
    assert len(short.case.actions) <= len(long.case.actions)
    assert short.finding.name == long.finding.name


def test_profiles_are_fixed() -> None:
    """The settings do not depend on the clock, a database or the user's profile."""
    assert CI.derandomize
    assert CI.database is None
    assert CI.deadline is None
    assert not CI.report_multiple_bugs
    assert not machine.DEEP.derandomize
    assert set(CI.phases) == {Phase.reuse, Phase.generate}
