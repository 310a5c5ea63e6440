"""The machine: Hypothesis finds what is wrong, makes it small, and finds the same every time."""

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
from kvcanon.conformance.protocol.adapter import Adapter, MakeCache, Offer
from kvcanon.conformance.search import machine
from kvcanon.conformance.search.finding import Grounds
from kvcanon.conformance.search.machine import CI, HypothesisFailure, machine_of, run_machine
from kvcanon.conformance.search.play import play
from kvcanon.conformance.search.trial import Trial
from kvcanon.conformance.variants.override import Overrides, overriding
from kvcanon.reference import ReferenceCache, host_insert, lock
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evicted, Matched, Settled
from kvcanon.spec.types import Counts, EvictionPolicy, Key, WritePolicy

REFERENCE = Adapter("reference", ReferenceCache)
EVERYTHING = Offer()
NO_HOST = Offer(write_policies=(WritePolicy.NONE,))


def silent_fetches(patch: Overrides) -> None:
    """Fetched pages are announced to nobody."""
    patch.setattr(host_insert, "emit_stored", lambda *_: None)


def kept_windows(patch: Overrides) -> None:
    """A release gives back full data only."""
    patch.setattr(lock, "_release_window", lambda held: None)


def trial_of(make: MakeCache, offer: Offer = EVERYTHING) -> Trial:
    """One cache, judged by its states."""
    return Trial(Adapter("it", make, offer))


SILENT = trial_of(overriding(silent_fetches))
KEPT = trial_of(overriding(kept_windows), NO_HOST)


@pytest.mark.parametrize(
    ("trial", "law_id", "actions"),
    [(SILENT, "EVENT-10", ["fetch_and_load"]), (KEPT, "LOCK-8", ["lock", "unlock_window"])],
    ids=["silent fetches", "kept windows"],
)
def test_fault_is_found_and_reduced(trial: Trial, law_id: str, actions: list[str]) -> None:
    """A planted fault escapes, or comes out with actions that have nothing to do with it."""
    failure, tally = run_machine(trial, examples=100)
    assert failure is not None
    assert failure.finding.grounds is Grounds.LAW
    assert law_id in failure.finding.broken
    assert len(failure.case.actions) <= len(actions)
    assert 0 < tally.cases <= 101
    assert failure.origin == "machine, seed 0"


def test_case_replays() -> None:
    """The case does not show what it is said to show, once Hypothesis is gone."""
    failure, _ = run_machine(SILENT, examples=50)
    assert failure is not None
    found, _ = play(failure.case, [SILENT.adapter])
    assert found == [failure.finding]


def test_sound_cache_is_not_accused() -> None:
    """The plain cache breaks a law in some case, or cases are left out."""
    failure, tally = run_machine(Trial(REFERENCE), examples=30)
    assert failure is None
    assert tally.cases >= 30
    assert tally.steps > tally.cases
    assert {"RES-4", "EVENT-4", "DATA-1"} <= set(+tally.laws)


def test_seed_decides() -> None:
    """The same seed draws other cases, or another seed the same."""
    draws = (run_machine(Trial(REFERENCE), examples=8, from_seed=number) for number in (3, 3, 4))
    first, again, other = draws
    assert first == again
    assert first[1] != other[1]


def test_printed_code_can_be_pasted() -> None:
    """What Hypothesis prints does not run, or does not show what was found."""
    drawn = seed(1)(machine_of(KEPT))
    with pytest.raises(HypothesisFailure) as caught:
        run_state_machine_as_test(
            drawn, settings=settings(CI, max_examples=100, verbosity=Verbosity.normal)
        )
    code = "\n".join(note for note in caught.value.__notes__ if note.startswith("state"))
    with pytest.raises(HypothesisFailure) as pasted:
        exec(code, {"CacheMachine": machine_of(KEPT)})  # noqa: S102  # It is what a reader would paste.
    assert pasted.value.case == caught.value.case
    assert pasted.value.finding == caught.value.finding


def test_every_action_has_a_rule_with_the_picks_that_it_uses() -> None:
    """An action is never drawn, or without a pick that it takes, or where it can do nothing."""
    rules = {each.function.__name__: each for each in machine_of(KEPT).setup_state().rules}
    assert rules.keys() == ACTIONS.keys()
    for name, kind in ACTIONS.items():
        doers = [kind.do, *request_client.ACTIONS.get(name, ())[:1]]
        used = {each for do in doers for each in inspect.signature(do).parameters}
        assert rules[name].arguments.keys() == used & set(Action._fields)
        assert bool(rules[name].preconditions) == kind.host


def test_fault_that_shows_in_the_drain_is_found() -> None:
    """The drain is not played at the end of a case, or is not a part of it."""

    class NeverFlushes(ReferenceCache):
        def flush(self) -> Settled:
            raise RuntimeError("stuck")

    failure, _ = run_machine(trial_of(NeverFlushes, NO_HOST), examples=5, steps=5)
    assert failure is not None
    assert failure.finding.grounds is Grounds.CRASH
    assert failure.case.actions == ()
    assert failure.case.drain


def test_configurations_that_are_not_offered_are_left_out() -> None:
    """A cache is accused of what it does not offer, or left-out cases are counted as played."""

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
    """A factory that fails ends the run, and nobody hears why."""

    def broken(config: CacheConfig) -> ReferenceCache:
        raise ZeroDivisionError("no room")

    failure, _ = run_machine(trial_of(broken), examples=5)
    assert failure is not None
    assert failure.finding.grounds is Grounds.CRASH
    assert "no room" in failure.finding.text


def test_disagreement_is_found() -> None:
    """A lawful cache that does another thing than the one beside it is taken to agree."""

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
    """A database is not asked, and each run starts from nothing."""
    database = InMemoryExampleDatabase()
    first, _ = run_machine(KEPT, examples=100, database=database)
    assert first is not None
    again, tally = run_machine(KEPT, examples=1, from_seed=77, database=database)
    assert again is not None
    assert again.case == first.case
    assert tally.cases == 1


def test_cache_that_changes_its_mind_is_found() -> None:
    """A cache that answers one case in two ways ends the run with an error of the judge."""
    calls = count()

    class Moody(ReferenceCache):
        def match(self, key: Key) -> Matched:
            if next(calls) % 37 == 36:
                raise RuntimeError("not in the mood")
            return super().match(key)

    failure, _ = run_machine(trial_of(Moody), examples=30)
    assert failure is not None
    assert failure.finding.name == "RuntimeError"


def test_profiles_are_fixed() -> None:
    """What is drawn hangs on the clock, on what was drawn before, or on somebody's profile."""
    assert CI.derandomize
    assert CI.database is None
    assert CI.deadline is None
    assert not CI.report_multiple_bugs
    assert not machine.DEEP.derandomize
    assert Phase.shrink in CI.phases
