"""Reduced cases show the same fault, are small, and are the same every time."""

from __future__ import annotations

from functools import cache

import pytest
from attrs import evolve, frozen

from faulty import SIMPLE, Crashing, Leaky, unmade
from kvcanon.conformance.cases.actions import ACTIONS, UNDRAWN
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.wide_actions import WIDE
from kvcanon.conformance.check import reduce
from kvcanon.conformance.check.reduce import PLAYS, PLAYS_IF_SILENT, PLAYS_IN_COPIES, reduce_case
from kvcanon.conformance.check.result import Finding, Grounds, Tally
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.law import Need
from kvcanon.spec.operations import Receipt
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import Counts, EvictionPolicy, Key, Slots, WritePolicy

LEAKY = Trial(Adapter("leaky", Leaky))
CRASHING = Trial(Adapter("crashing", Crashing))


@cache
def first_finding(trial: Trial, length: int = 0) -> Finding:
    """Return the first finding in a case of a minimum length."""
    for seed in range(200):
        case = draw_case(seed, trial.adapter.offer)
        finding, _ = trial.play(case)
        if finding is not None and len(case.actions) >= length:
            return finding
    raise AssertionError("nothing was found")


@cache
def reduced(trial: Trial, finding: Finding) -> Finding:
    """The finding in the reduced case, which must show the fault."""
    smallest = reduce_case(finding, trial)
    assert smallest is not None
    return smallest


def test_what_is_left_shows_the_fault_when_it_is_played_again() -> None:
    """The reduced case shows the fault again."""
    finding = first_finding(LEAKY, length=60)
    seen = reduced(LEAKY, finding)
    smallest = seen.case
    again, _ = LEAKY.play(smallest)
    assert again == seen
    assert finding.is_same(seen)
    assert len(smallest.actions) <= 4


@pytest.mark.nightly
def test_reducing_is_repeatable() -> None:
    """Reducing a case twice gives the same case."""
    finding = first_finding(LEAKY)
    assert reduce_case(finding, LEAKY) == reduced(LEAKY, finding)


def test_no_part_of_what_is_left_can_be_left_out() -> None:
    """No action of the reduced case can be left out."""
    finding = first_finding(LEAKY, length=60)
    smallest = reduced(LEAKY, finding).case
    for at in range(len(smallest.actions)):
        rest = smallest.actions[:at] + smallest.actions[at + 1 :]
        seen, _ = LEAKY.play(evolve(smallest, actions=rest))
        assert not finding.is_same(seen)


class AfterEvenLocks(ReferenceCache):
    """Crashes if events are taken after an even number of locks."""

    def __init__(self, config: CacheConfig, engine: TransferEngine | None = None) -> None:
        super().__init__(config, engine)
        self._odd = False

    def lock(self, key: Key) -> Receipt:
        self._odd = not self._odd
        return super().lock(key)

    def take_events(self) -> tuple[Event, ...]:
        if not self._odd:
            raise ZeroDivisionError
        return super().take_events()


def test_two_actions_that_need_each_other_leave_together() -> None:
    """Two actions that can only be left out together are left out."""
    trial = Trial(Adapter("even", AfterEvenLocks, hides=frozenset({Need.EVENTS})))
    actions = tuple(Action(name) for name in ("lock", "poll", "lock", "take_events"))
    case = Case(CacheConfig(device_slots=Counts(full=4)), actions, ())
    finding, _ = trial.play(case)
    assert finding is not None
    smallest = reduced(trial, finding).case
    assert [action.name for action in smallest.actions] == ["take_events"]


def test_what_is_left_is_plain() -> None:
    """The reduced case has no window and no host tier if the fault needs none."""
    trial = Trial(Adapter("crashing", Crashing))
    first = first_finding(trial, length=60).case
    case = evolve(
        first,
        # The shortest case has one of these, and with it a host tier, or a large pool.
        actions=tuple(
            each
            for each in first.actions
            if not (ACTIONS | UNDRAWN)[each.name].host and each.name not in WIDE
        ),
        config=CacheConfig(
            page_size=4,
            window_tokens=8,
            mamba=True,
            bigram=True,
            device_slots=Counts(20, 14, 6),
            host_slots=Counts(20, 14, 6),
            write_policy=WritePolicy.WRITE_BACK,
            eviction_policy=EvictionPolicy.SLRU,
            load_back_threshold_pages=2,
        ),
    )
    finding, _ = trial.play(case)
    assert finding is not None
    smallest = reduced(trial, finding).case
    assert smallest.config == CacheConfig(device_slots=Counts(full=2))
    assert smallest.drain == ()
    assert all(pick < 42 for action in smallest.actions for pick in action[1:])


def test_what_is_not_offered_is_not_tried() -> None:
    """Only offered configurations are tried."""
    offer = Offer(
        page_sizes=(4,),
        windows_tokens=(8,),
        mamba=(True,),
        bigram=(True,),
        write_policies=(WritePolicy.WRITE_BACK,),
        eviction_policies=(EvictionPolicy.FIFO,),
        load_back_thresholds_pages=(2,),
        least_slots=9,
    )
    trial = Trial(Adapter("crashing", Crashing, offer))
    config = reduced(trial, first_finding(trial)).case.config
    assert (config.page_size, config.window_tokens, config.mamba) == (4, 8, True)
    assert (config.bigram, config.write_policy) == (True, WritePolicy.WRITE_BACK)
    assert (config.eviction_policy, config.load_back_threshold_pages) == ("fifo", 2)
    assert config.device_slots.full == 9


def test_the_fault_stays_the_same() -> None:
    """The reduced case shows the original fault, not another."""

    class Both(Leaky):
        """Leaks slots, and crashes with small pools."""

        def __init__(self, config: CacheConfig, engine: TransferEngine | None = None) -> None:
            if config.device_slots.full < 5:
                raise ZeroDivisionError
            super().__init__(config, engine)

    trial = Trial(Adapter("both", Both, Offer(least_slots=5)))
    finding = first_finding(trial)
    assert finding.grounds is Grounds.LAW
    tempted = Trial(Adapter("both", Both, Offer(least_slots=2)))
    seen = reduced(tempted, finding)
    smallest = seen.case
    assert seen.grounds is Grounds.LAW
    assert smallest.config.device_slots.full == 5


def test_a_cache_that_cannot_be_made_needs_no_actions() -> None:
    """The reduced case of a factory that raises has no actions."""
    trial = Trial(Adapter("unmade", unmade))
    seen = reduced(trial, first_finding(trial))
    smallest = seen.case
    assert seen.grounds is Grounds.CRASH
    assert smallest.actions == ()
    assert smallest.config == CacheConfig(page_size=2, device_slots=Counts(full=2))


@frozen
class Counting(Trial):
    """Counts its plays."""

    def play(self, case: Case) -> tuple[Finding | None, Tally]:
        plays.append(case)
        return super().play(case)


plays: list[Case] = []


def test_plays_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of plays is bounded; it is smaller for a cache that ends or blocks its process."""
    assert PLAYS_IF_SILENT < PLAYS_IN_COPIES < PLAYS
    monkeypatch.setattr(reduce, "PLAYS", 7)
    trial = Counting(Adapter("leaky", Leaky))
    finding = first_finding(trial)
    plays.clear()
    assert reduced(trial, finding) != finding
    assert len(plays) == 7


def test_operations_are_bounded() -> None:
    """A reduction ends after its operations, and says that it was not done."""
    finding = first_finding(LEAKY, length=60)
    cut = reduce_case(finding, LEAKY, 1)
    assert cut is not None
    assert not cut.reduced
    whole = reduced(LEAKY, finding)
    assert whole.reduced
    assert whole.operation < cut.operation


def test_a_call_that_must_be_refused_is_not_taken_for_a_lawful_one() -> None:
    """A lawful call that breaks a law is not reduced to one that must be refused."""
    trial = Trial(Adapter("nonsense", Obedient))
    case = Case(CacheConfig(device_slots=Counts(full=4)), (Action("admit"), Action("abort")), ())
    finding, _ = trial.play(case)
    assert finding is not None
    assert not finding.is_unlawful_call
    seen = reduced(trial, finding)
    assert not seen.is_unlawful_call


class Obedient(ReferenceCache):
    """Frees nothing, also if the slots are nobody's."""

    def free(self, slots: Slots) -> None:
        """Do nothing."""


def test_a_fault_that_does_not_show_again_is_not_reduced() -> None:
    """A fault that does not show again is not reduced."""
    finding = first_finding(LEAKY)
    sound = Trial(Adapter("leaky", ReferenceCache, SIMPLE))
    assert reduce_case(finding, sound) is None
