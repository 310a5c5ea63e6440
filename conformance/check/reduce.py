"""Reduces a case: the same fault with fewer actions, smaller picks and a plainer configuration.

It leaves actions out as long as the fault shows, then makes the rest plainer, and repeats both
until nothing helps. The reduced case breaks the law of the original, and may break others; the
finding is that of the reduced case, named after the law of the original.

The order of the plays is fixed, so that the clock decides nothing unless the time runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, permutations
from math import inf
from time import monotonic

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check.finding import Finding, Grounds
from kvcanon.conformance.check.trial import Trial, is_silence, same_fault
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.shortest import shortest
from kvcanon.spec.types import FULL, Component, Counts, EvictionPolicy, WritePolicy

PLAYS = 1500
"""The most plays to reduce a case."""
PLAYS_IF_SILENT = 12
"""The most plays if the cache gives no answer, so that each play takes long."""

SMALL = 42
"""Picks below this are tried one by one: namespaces times lengths of a prompt."""
PAIRS_UP_TO = 16
"""In cases up to this length, pairs of actions are left out, too."""

LEAST = Counts(full=2, swa=2, mamba=1)
"""The smallest pools that are tried."""


@frozen
class Reduction:
    """The smallest case found that shows a fault."""

    case: Case
    finding: Finding
    done: bool
    """Whether nothing more could be left out; False if the time or the plays were over."""


def reduce_case(
    case: Case, finding: Finding, trial: Trial, plays: int | None = None
) -> tuple[Case, Finding] | None:
    """As `reduce_until`, in any time."""
    reduction = reduce_until(case, finding, trial, inf, plays)
    return None if reduction is None else (reduction.case, reduction.finding)


def reduce_until(
    case: Case, finding: Finding, trial: Trial, deadline: float, plays: int | None = None
) -> Reduction | None:
    """The smallest case that is found until the deadline, a moment of `monotonic`.

    If the time is enough, the same arguments give the same case. None if the case does not show the
    fault.
    """
    usual = PLAYS_IF_SILENT if is_silence(finding) else PLAYS
    reducer = _Reducer(case, finding, trial, usual if plays is None else plays, deadline)
    if not reducer.tries(case):
        return Reduction(case, finding, done=False) if reducer.cut else None
    # Actions after the fault are of no use.
    reducer.tries(_ending(case, finding))
    earlier = None
    while earlier != reducer.best:
        earlier = reducer.best
        for shorten in (_drain, _actions, _pairs, _config, _picks):
            shorten(reducer)
    return Reduction(reducer.best, reducer.finding, done=not reducer.cut)


class _Reducer:
    """The best case so far, and the remaining plays."""

    def __init__(
        self, case: Case, finding: Finding, trial: Trial, plays: int, deadline: float
    ) -> None:
        self.best, self.finding = case, finding
        self.offer: Offer = trial.adapter.offer
        self.cut = False
        """Whether a case was not tried because the time or the plays were over."""
        self._first, self._trial, self._plays, self._deadline = finding, trial, plays, deadline
        self._tried: set[Case] = set()

    def tries(self, case: Case) -> bool:
        """Play a case; if it shows the fault, it becomes the best, and the result is True."""
        if case in self._tried:
            return False
        if self._plays == 0 or monotonic() > self._deadline:
            self.cut = True
            return False
        self._tried.add(case)
        self._plays -= 1
        found, _ = self._trial.play(case)
        if found is None or not same_fault(self._first, found):
            return False
        if found.is_unlawful_call and not self._first.is_unlawful_call:
            return False  # That is shorter, and tells less.
        name = self._first.name
        by_law = found.grounds is Grounds.LAW
        self.best, self.finding = case, found.of_law(name) if by_law else found
        return True


def _ending(case: Case, finding: Finding) -> Case:
    """The case up to its finding."""
    if finding.action < len(case.actions):
        return evolve(case, actions=case.actions[: finding.action + 1], drain=())
    return case


def _drain(reducer: _Reducer) -> None:
    """Take the shortest drain that shows the fault, or none."""
    drain = reducer.best.drain
    for length in range(len(drain)):
        for order in permutations(sorted(drain), length):
            if reducer.tries(evolve(reducer.best, drain=order)):
                return


def _actions(reducer: _Reducer) -> None:
    """Leave out as many actions as possible."""
    shortest(
        reducer.best.actions,
        lambda actions: reducer.tries(evolve(reducer.best, actions=tuple(actions))),
    )


def _pairs(reducer: _Reducer) -> None:
    """Leave out pairs of actions, such as a call and the call that undoes it."""
    length = len(reducer.best.actions)
    if length > PAIRS_UP_TO:
        return
    for one, other in combinations(range(length), 2):
        actions = reducer.best.actions
        if other < len(actions):
            rest = tuple(each for at, each in enumerate(actions) if at not in (one, other))
            reducer.tries(evolve(reducer.best, actions=rest))


def _config(reducer: _Reducer) -> None:
    """Make the configuration plainer, one field at a time."""
    for plainer in PLAINER:
        for config in plainer(reducer.best.config, reducer.offer):
            if reducer.tries(evolve(reducer.best, config=config)):
                break


def _picks(reducer: _Reducer) -> None:
    """Make the picks of each action small; all three at once if possible."""
    for at in range(len(reducer.best.actions)):
        if not reducer.tries(_replaced(reducer.best, at, Action(reducer.best.actions[at].name))):
            for field in ("a", "b", "c"):
                _pick(reducer, at, field)


def _pick(reducer: _Reducer, at: int, field: str) -> None:
    """Make one pick of an action small, or else clear the bits that it does not need."""

    def tries(pick: int) -> bool:
        action = Action(**{**reducer.best.actions[at]._asdict(), field: pick})
        return reducer.tries(_replaced(reducer.best, at, action))

    pick: int = getattr(reducer.best.actions[at], field)
    if any(tries(less) for less in range(min(pick, SMALL))):
        return
    for bit in reversed(range(pick.bit_length())):
        less = pick & ~(1 << bit)
        if less != pick and tries(less):
            pick = less


def _replaced(case: Case, at: int, action: Action) -> Case:
    return evolve(case, actions=(*case.actions[:at], action, *case.actions[at + 1 :]))


# Plainer configurations.

Plainer = Callable[[CacheConfig, Offer], Iterator[CacheConfig]]


def _no_mamba(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    if config.mamba and False in offer.mamba:
        yield evolve(config, mamba=False)


def _no_bigram(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    if config.bigram and False in offer.bigram:
        yield evolve(config, bigram=False)


def _smaller_window(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    if config.window_tokens is not None:
        if None in offer.windows_tokens:
            yield evolve(config, window_tokens=None)
        offered = sorted({each for each in offer.windows_tokens if each is not None})
        for tokens in offered:
            if tokens < config.window_tokens:
                yield evolve(config, window_tokens=tokens)


def _smaller_pages(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    for size in sorted(set(offer.page_sizes)):
        if size < config.page_size:
            yield evolve(config, page_size=size)


def _no_host(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    if config.host_tier and WritePolicy.NONE in offer.write_policies:
        yield evolve(config, write_policy=WritePolicy.NONE, host_slots=Counts())


def _earlier_write_policy(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    for policy in WritePolicy:
        if policy is config.write_policy:
            return
        if policy is not WritePolicy.NONE and policy in offer.write_policies:
            yield evolve(config, write_policy=policy)


def _earlier_eviction_policy(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    for policy in EvictionPolicy:
        if policy is config.eviction_policy:
            return
        if policy in offer.eviction_policies:
            yield evolve(config, eviction_policy=policy)


def _lower_threshold(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    for pages in sorted(set(offer.load_back_thresholds_pages)):
        if pages < config.load_back_threshold_pages:
            yield evolve(config, load_back_threshold_pages=pages)


def _with_events(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    if not config.events and True in offer.events:
        yield evolve(config, events=True)


def _smaller_device_pools(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    for slots in _smaller(config.device_slots, config, offer):
        yield evolve(config, device_slots=slots)


def _smaller_host_pools(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    if config.host_tier:
        for slots in _smaller(config.host_slots, config, offer):
            yield evolve(config, host_slots=slots)


def _smaller(slots: Counts, config: CacheConfig, offer: Offer) -> Iterator[Counts]:
    """Fewer slots of one component; 0 if the component does not exist."""
    for component in Component:
        least = offer.least_slots if component is FULL else LEAST[component]
        there = component in config.components
        for count in range(least, slots[component]) if there else range(min(1, slots[component])):
            yield evolve(slots, **{component.value: count})


PLAINER: tuple[Plainer, ...] = (
    _no_host,
    _no_mamba,
    _smaller_window,
    _no_bigram,
    _smaller_pages,
    _earlier_write_policy,
    _earlier_eviction_policy,
    _lower_threshold,
    _with_events,
    *[_smaller_device_pools] * len(Component),
    *[_smaller_host_pools] * len(Component),
)
