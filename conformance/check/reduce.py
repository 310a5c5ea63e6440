"""Reduces findings: the same fault with fewer calls, smaller picks and a plainer configuration.

A case is reduced as long as the fault shows: parts of it are left out (*delta debugging*), the rest
is made plainer, and both are repeated until nothing helps. Then its actions are replaced by single
calls, of which again parts are left out. The reduced case breaks the law of the original, and may
break others; the finding is that of the reduced case, named after the law of the original.

The order of the plays is fixed, and their work is bounded, not their time: equal findings are
reduced to equal cases on every machine.

The findings of many cases are reduced once for each fingerprint, from the first case that shows it,
and once more for each law that no reduced case breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import combinations, permutations
from typing import Any

from attrs import evolve

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check.blocks import BlocksReport, cases_of
from kvcanon.conformance.check.plan import CachePlan
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.single_calls import in_single_calls
from kvcanon.conformance.check.triage import distinct
from kvcanon.conformance.check.trial import Trial, apart, short_limit
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import Workers
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.shortest import shortest
from kvcanon.spec.types import FULL, Component, Counts, EvictionPolicy, WritePolicy

PLAYS, STEPS = 1500, 24_000
"""The most plays to reduce a case, and the most operations in them."""
STEPS_TOGETHER, LEAST_STEPS = 48_000, 6_000
"""The operations to reduce the cases of one stage, and how many each case has at least."""
PLAYS_IF_SILENT = 12
"""The most plays if the cache gives no answer, so that each play takes long."""
PLAYS_IN_COPIES = 300
"""The most plays if the case ends its process: a copy of a process takes long to make."""

SMALL = 42
"""Picks below this are tried one by one: namespaces times lengths of a prompt."""
PAIRS_UP_TO = 16
"""In cases up to this length, pairs of actions are left out, too."""

LEAST = Counts(full=2, swa=2, mamba=1)
"""The smallest pools that are tried."""


def reduce_case(finding: Finding, trial: Trial, steps: int = STEPS) -> Finding | None:
    """The finding with the smallest case that about this many operations find.

    None if the case does not show the fault.
    """
    reducer = _Reducer(finding, trial, steps)
    if not reducer.tries(finding.case):
        return evolve(finding, reduced=False) if reducer.cut else None
    # Actions after the fault are of no use.
    reducer.tries(_ending(finding))
    _shorten(reducer)
    while _single_calls(reducer, trial):
        _shorten(reducer)
    return evolve(reducer.finding, reduced=not reducer.cut)


def _shorten(reducer: _Reducer) -> None:
    """Leave out and make plainer what can be, until nothing helps."""
    earlier = None
    while earlier != reducer.best:
        earlier = reducer.best
        for shorten in (_drain, _together, _actions, _pairs, _config, _picks):
            shorten(reducer)


class _Reducer:
    """The finding in the best case so far, and the work that is left."""

    def __init__(self, finding: Finding, trial: Trial, steps: int) -> None:
        self.finding = finding
        self.offer: Offer = trial.adapter.offer
        self.cut = False
        """Whether a case was not tried because the work was done."""
        self._first, self._trial, self._steps = finding, trial, steps
        self._plays = (
            PLAYS_IN_COPIES
            if finding.is_death
            else PLAYS_IF_SILENT
            if finding.is_silence
            else PLAYS
        )
        self._tried: set[Case] = set()

    @property
    def best(self) -> Case:
        """The best case so far."""
        return self.finding.case

    def tries(self, case: Case) -> bool:
        """Play a case; if it shows the fault, it becomes the best, and the result is True."""
        if case in self._tried:
            return False
        if self._plays == 0 or self._steps <= 0:
            self.cut = True
            return False
        self._tried.add(case)
        self._plays -= 1
        found, tally = self._trial.play(case)
        self._steps -= tally.steps
        if found is None or not self._first.is_same(found):
            return False
        if found.is_unlawful_call and not self._first.is_unlawful_call:
            return False  # That is shorter, and tells less.
        name = self._first.name
        by_law = found.grounds is Grounds.LAW
        self.finding = found.of_law(name) if by_law else found
        return True


def _ending(finding: Finding) -> Case:
    """The case up to its finding."""
    case = finding.case
    if finding.action < len(case.actions):
        return evolve(case, actions=case.actions[: finding.action + 1], drain=())
    return case


def _single_calls(reducer: _Reducer, trial: Trial) -> bool:
    """Replace the actions by single calls; returns whether that shows the fault."""
    finding = reducer.finding
    if finding.takes_its_process or not finding.operation:
        return False
    return any(map(reducer.tries, in_single_calls(finding.case, trial.adapter, trial.judges)))


def _drain(reducer: _Reducer) -> None:
    """Take the shortest drain that shows the fault, or none."""
    drain = reducer.best.drain
    for length in range(len(drain)):
        for order in permutations(sorted(drain), length):
            if reducer.tries(evolve(reducer.best, drain=order)):
                return


def _together(reducer: _Reducer) -> None:
    """Keep all ranks in one process."""
    if reducer.best.rank_apart:
        reducer.tries(evolve(reducer.best, rank_apart=False))


def _actions(reducer: _Reducer) -> None:
    """Leave out as many actions as possible."""

    def shows(actions: Sequence[Action]) -> bool:
        return reducer.tries(evolve(reducer.best, actions=tuple(actions)))

    shortest(reducer.best.actions, shows)


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


def _plainer(
    name: str, offered: Callable[[Offer], Iterable[Any]], plainness: Callable[[Any], int]
) -> Plainer:
    """Takes offered values of a field that are plainer than its own, the plainest first."""

    def plainer(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
        value = getattr(config, name)
        for other in sorted(set(offered(offer)), key=plainness):
            if plainness(other) < plainness(value):
                yield evolve(config, **{name: other})

    return plainer


def _no_host(config: CacheConfig, offer: Offer) -> Iterator[CacheConfig]:
    if config.host_tier and WritePolicy.NONE in offer.write_policies:
        yield evolve(config, write_policy=WritePolicy.NONE, host_slots=Counts())


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
    _plainer("mamba", lambda offer: offer.mamba, int),
    _plainer("window_tokens", lambda offer: offer.windows_tokens, lambda tokens: tokens or 0),
    _plainer("bigram", lambda offer: offer.bigram, int),
    _plainer("page_size", lambda offer: offer.page_sizes, int),
    _plainer(
        "write_policy",
        # Without a host tier there is no host pool either.
        lambda offer: set(offer.write_policies) - {WritePolicy.NONE},
        [*WritePolicy].index,
    ),
    _plainer("eviction_policy", lambda offer: offer.eviction_policies, [*EvictionPolicy].index),
    _plainer("load_back_threshold_pages", lambda offer: offer.load_back_thresholds_pages, int),
    _plainer("events", lambda offer: offer.events, lambda enabled: not enabled),
    _plainer("max_pending_events", lambda offer: offer.event_logs, lambda most: -most),
    *[_smaller_device_pools] * len(Component),
    *[_smaller_host_pools] * len(Component),
)


# The findings of many cases.


def reduced(
    cache: CachePlan, found: Finding, steps: int = STEPS, *, in_copies: bool = False
) -> Finding | None:
    """Reduce a finding to the smallest case, judged from outside if that shows the fault.

    `in_copies` plays each case in a copy of this process. None if an earlier run found it, and the
    cache does not show it any more.
    """
    cases = cases_of(cache)
    trial, origin = cases.trial(found.case_number), cases.origin(found.case_number)
    if in_copies:
        trial = apart(trial)
    smallest = reduce_case(found, trial, steps)
    finding = smallest or found
    if smallest is not None:
        outside = trial.from_outside()
        seen, _ = outside.play(finding.case)
        if seen is not None and finding.is_same(seen):
            trial, finding = outside, seen.of_law(finding.name) if finding.broken else seen
    elif found.earlier:
        return None
    else:
        origin += ", which does not show it every time"
    # States tell nothing of a process that ended, and take long where there is no answer.
    unseen = finding.is_death or finding.is_silence
    shown = evolve(
        trial.found(finding),
        origin=origin,
        times=found.times,
        reduced=smallest is not None and smallest.reduced,
    )
    return shown if unseen else trial.seen_inside(shown)


def reduce_all(cache: CachePlan, report: BlocksReport, by: Workers) -> tuple[Finding, ...]:
    """Reduce all findings, in the order of their first cases.

    So every law that was broken is shown by a case: after the first findings of each fingerprint,
    those of laws that none of the reduced cases breaks.
    """

    def reduce(findings: Sequence[Finding]) -> Iterator[Finding]:
        firsts = sorted(findings, key=lambda found: found.case_number)
        steps = share_of(len(findings))
        futures = [by.executor.submit(_reduce, cache, found, steps) for found in firsts]
        for found, future in zip(firsts, futures, strict=True):
            try:
                smallest = future.result()
            except ProcessDied:
                # A part of the case ends the process, though the whole case does not.
                smallest = by.executor.submit(_reduce_in_copies, cache, found, steps).result()
            if smallest is not None:
                yield smallest

    beside = {key: found for key, found in report.beside.items() if key not in report.found}
    firsts = [*reduce([*report.found.values()])]
    shown = {law_id for finding in firsts for law_id in finding.broken}
    others = reduce([each for each in beside.values() if each.name not in shown])
    return distinct([*firsts, *others])


def share_of(findings: int) -> int:
    """The operations for reducing one of several findings."""
    return max(LEAST_STEPS, min(STEPS, STEPS_TOGETHER // max(1, findings)))


def _reduce(cache: CachePlan, found: Finding, steps: int) -> Finding | None:
    """Reduce a finding, in any process."""
    if found.is_death or (found.takes_its_process and NOTE.shared):
        return _reduce_in_copies(cache, found, steps)
    return reduced(cache, found, steps)


def _reduce_in_copies(cache: CachePlan, found: Finding, steps: int) -> Finding | None:
    with short_limit() if found.is_silence else nullcontext():
        return reduced(cache, found, steps, in_copies=True)
