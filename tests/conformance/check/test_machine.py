"""The machine: Hypothesis finds faults, reduces them, and finds the same every time."""

from __future__ import annotations

import inspect
import sys
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, Verbosity, seed, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.stateful import run_state_machine_as_test

from kvcanon.conformance.cases import request_client
from kvcanon.conformance.cases.actions import ACTIONS, UNDRAWN
from kvcanon.conformance.cases.added_actions import ADDED
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.state_actions import STATES
from kvcanon.conformance.cases.wait_actions import DRAWN as DRAWN_WAITS
from kvcanon.conformance.cases.wrong_calls import OF_KEYS
from kvcanon.conformance.check import machine
from kvcanon.conformance.check.machine import CI, Drawing, HypothesisFailure, draw_cases, machine_of
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding, Grounds
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


def first_failure(trial: Trial, drawing: Drawing) -> Finding:
    """The first failure in the cases that are drawn."""
    first, *_ = draw_cases(trial, drawing).findings
    return first


@pytest.mark.parametrize(
    ("trial", "law_id", "calls"),
    [(SILENT, "EVENT-10", 1), (KEPT, "LOCK-8", 4)],
    ids=["silent fetches", "kept windows"],
)
def test_fault_is_found_and_reduced(trial: Trial, law_id: str, calls: int) -> None:
    """A planted fault is found, its case is reduced, and shows it without Hypothesis."""
    drawn = draw_cases(trial, Drawing(100))
    failure = drawn.findings[0]
    assert failure.grounds is Grounds.LAW
    assert law_id in failure.broken
    assert failure.operation == calls
    assert 0 < drawn.tally.cases <= 101
    assert failure.origin == "machine, seed 0"
    (found,), _ = play(failure.case, [trial.adapter])
    assert (found.broken, found.words) == (failure.broken, failure.words)
    assert found.operation == failure.operation


def test_sound_cache_is_not_accused() -> None:
    """The reference breaks no law, and every case is played."""
    drawn = draw_cases(Trial(REFERENCE), Drawing(30))
    assert not drawn.findings
    assert drawn.tally.cases >= 30
    assert drawn.tally.steps > drawn.tally.cases
    assert {"RES-4", "EVENT-4", "DATA-1"} <= set(+drawn.tally.laws)


@pytest.mark.nightly
def test_seed_alone_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed draws the same cases each time, whatever modules are loaded; another draws others."""
    first, again, other = (
        draw_cases(Trial(REFERENCE), Drawing(12, from_seed=number)) for number in (3, 3, 4)
    )
    assert first == again
    assert first.tally != other.tally
    numbers = "\n".join(f"N{number} = {number}" for number in range(701, 3900, 53))
    source = tmp_path / "numbers_of_mine.py"
    source.write_text(numbers, encoding="utf-8")
    module = ModuleType(source.stem)
    module.__file__ = str(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, source.stem, module)
    assert draw_cases(Trial(REFERENCE), Drawing(12, from_seed=3)) == first


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
    assert pasted.value.finding == caught.value.finding


def test_every_action_has_a_rule_with_the_picks_that_it_uses() -> None:
    """Every action has a rule with its picks, and runs only if it can do something."""
    rules = {each.function.__name__: each for each in machine_of(KEPT).setup_state().rules}
    assert rules.keys() == {*ACTIONS, *ADDED, *STATES, *OF_KEYS, *DRAWN_WAITS}
    for name, made in rules.items():
        kind = ACTIONS.get(name) or UNDRAWN[name]
        doers = [kind.do, *request_client.ACTIONS.get(name, ())[:1]]
        used = {each for do in doers for each in inspect.signature(do).parameters}
        assert made.arguments.keys() == used & set(Action._fields)
        assert bool(made.preconditions) == (kind.host or name in {*OF_KEYS, *STATES})


class NeverFlushes(ReferenceCache):
    """Crashes in the drain."""

    def flush(self) -> Settled:
        raise RuntimeError("stuck")


class Generous(ReferenceCache):
    """Says that it freed a slot more than it did."""

    def evict(self, counts: Counts) -> Evicted:
        freed = super().evict(counts).freed
        return Evicted(Counts(freed.full + 1, freed.swa, freed.mamba))


class Moody(ReferenceCache):
    """Crashes now and then, whatever the call is."""

    calls = count()

    def match(self, key: Key) -> Matched:
        if next(Moody.calls) % 37 == 36:
            raise RuntimeError("not in the mood")
        return super().match(key)


def unmade(config: CacheConfig) -> ReferenceCache:
    """Cannot be made."""
    raise ZeroDivisionError("no room")


def picky(config: CacheConfig) -> ReferenceCache:
    """Is made under one eviction policy alone."""
    if config.eviction_policy is not EvictionPolicy.LRU:
        raise BadArgument("eviction_policy", "has to be LRU")
    return ReferenceCache(config)


@pytest.mark.parametrize(
    ("trial", "drawing", "grounds", "text"),
    [
        (trial_of(NeverFlushes, NO_HOST), Drawing(5, steps=5), Grounds.CRASH, "stuck"),
        (trial_of(unmade), Drawing(5), Grounds.CRASH, "no room"),
        (trial_of(Moody), Drawing(30), Grounds.CRASH, "not in the mood"),
        (Trial(Adapter("it", Generous), against=REFERENCE), Drawing(40, steps=10), None, ""),
    ],
    ids=["in the drain", "not made", "not deterministic", "disagreement"],
)
def test_other_faults_are_found(
    trial: Trial, drawing: Drawing, grounds: Grounds | None, text: str
) -> None:
    """What is wrong without a broken law is found, too, wherever it shows."""
    failure = first_failure(trial, drawing)
    assert grounds in (None, failure.grounds)
    assert text in failure.text
    if text == "stuck":
        assert failure.case.actions == ()
        assert failure.case.drain


def test_caches_that_agree_are_no_finding() -> None:
    """Two reference caches agree in every drawn case."""
    agreeing = Trial(Adapter("it", ReferenceCache), against=REFERENCE)
    assert not draw_cases(agreeing, Drawing(10)).findings


def test_configurations_that_are_not_offered_are_left_out() -> None:
    """Cases that are not offered are counted as such, and are no findings."""
    drawn = draw_cases(trial_of(picky), Drawing(40))
    assert not drawn.findings
    assert drawn.tally.unoffered > 0
    assert drawn.tally.cases > 0
    assert drawn.tally.cases + drawn.tally.unoffered >= 40


def test_what_was_found_before_is_tried_first() -> None:
    """With a database, the next run tries the earlier failure first."""
    database = InMemoryExampleDatabase()
    first = first_failure(KEPT, Drawing(100, database=database))
    again = draw_cases(KEPT, Drawing(1, from_seed=77, database=database))
    assert again.findings[0].case == first.case
    assert again.tally.cases == 1


def test_no_case_begins_after_the_end() -> None:
    """A run ends in time, and says whether cases are missing; what it found is reduced."""
    none = draw_cases(Trial(REFERENCE), Drawing(20), ends=0)
    assert (none.findings, none.tally.cases, none.cut) == ((), 0, True)
    found = draw_cases(SILENT, Drawing(100))
    assert not found.cut
    assert all(each.reduced for each in found.findings)


def test_profiles_are_fixed() -> None:
    """The settings do not depend on the clock, a database or the user's profile."""
    assert CI.derandomize
    assert CI.database is None
    assert CI.deadline is None
    assert not CI.report_multiple_bugs
    assert not machine.DEEP.derandomize
    assert set(CI.phases) == {Phase.reuse, Phase.generate}
