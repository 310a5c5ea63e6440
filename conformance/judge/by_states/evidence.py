"""Evidence: how often each law was exercised, and how often each operation was served.

A law can be checked a thousand times and never be exercised: it says something about a cache only
where its premise is met (`spec.law`), so that a faulty cache could have broken it. Such situations
need operations that are served; a cache that refuses all of them breaks few laws.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any

from attrs import Factory, define, frozen

from kvcanon.conformance.judge.by_states.census import Census
from kvcanon.conformance.judge.by_states.relevance import Relevant
from kvcanon.spec.difference import Difference
from kvcanon.spec.law import (
    Kind,
    Law,
    NodePremise,
    Premise,
    Stream,
    Subject,
)
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    EvictHost,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.views import Step


@frozen
class Shared:
    """A premise with all its laws, so that it is evaluated once for all of them."""

    premise: Premise[Any]
    law_ids: tuple[str, ...]

    def exercised_by(self, subject: Subject) -> tuple[str, ...]:
        """Return the laws that a state, a step or a stream exercises."""
        return self.law_ids if self.premise.is_met(subject) else ()


def by_premise(laws: Iterable[Law], kind: Kind) -> tuple[Shared, ...]:
    """Group the laws of one kind of subject by their premises."""
    sharing: dict[int, list[Law]] = {}
    for law in laws:
        if law.kind is kind:
            sharing.setdefault(id(law.premise), []).append(law)
    return tuple(
        Shared(some[0].premise, tuple(law.law_id for law in some)) for some in sharing.values()
    )


class Evidence:
    """Counts, for each law, the states, steps and streams that met its premise.

    The nodes of a state are counted once, then updated by what each step touched. A thorough count
    evaluates every premise on every subject.
    """

    def __init__(self, laws: Collection[Law], *, thorough: bool = False) -> None:
        self._law_ids = tuple(law.law_id for law in laws)
        self._times_met: Counter[tuple[str, ...]] = Counter()
        """How often each set of laws was exercised: those of a premise, or of a state."""
        self._thorough = thorough
        self._of_states = by_premise(laws, Kind.STATE)
        self._of_steps = by_premise(laws, Kind.STEP)
        self._of_streams = by_premise(laws, Kind.STREAM)
        self._relevant_steps = Relevant(self._of_steps, Shared.exercised_by)
        self._relevant_streams = Relevant(self._of_streams, Shared.exercised_by)
        premises = [each.premise for each in self._of_states]
        self._census = Census(
            kind for each in premises if isinstance(each, NodePremise) for kind in each.kinds
        )
        self._last: Snapshot | None = None
        """The last state."""
        self._met: tuple[str, ...] = ()
        """The laws of states that `_last` exercises."""

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often the premise of each law was met."""
        exercised = dict.fromkeys(self._law_ids, 0)
        for law_ids, times in self._times_met.items():
            for law_id in law_ids:
                exercised[law_id] += times
        return exercised

    def see(self, step: Step, stream: Stream) -> None:
        """Count the laws whose premises are met by a step, its state after and its stream."""
        if self._thorough:
            self._count(self._of_states, step.after)
            self._count(self._of_steps, step)
            self._count(self._of_streams, stream)
        else:
            self._times_met[self._of_state(step.difference)] += 1
            self._count(self._relevant_steps.of_step(step), step)
            self._count(self._relevant_streams.of_stream(stream), stream)

    def _count(self, premises: Iterable[Shared], subject: Subject) -> None:
        for shared in premises:
            if shared.premise.is_met(subject):
                self._times_met[shared.law_ids] += 1

    def _of_state(self, difference: Difference) -> tuple[str, ...]:
        """Return the laws that the state after a step exercises."""
        before, after = difference.before, difference.after
        if after is not self._last:
            if before is self._last:
                self._census.update(difference)
            else:
                self._census.take(after)
            self._last = after
            self._met = tuple(
                law_id
                for each in self._of_states
                if self._is_met(each.premise, after)
                for law_id in each.law_ids
            )
        return self._met

    def _is_met(self, premise: Premise[Snapshot], state: Snapshot) -> bool:
        if isinstance(premise, NodePremise):
            return any(self._census.counts[kind] >= premise.enough for kind in premise.kinds)
        return premise.is_met(state)


@define
class Service:
    """How often each operation of a cache was served and refused, by method."""

    served: Counter[str] = Factory(Counter)
    refused: Counter[str] = Factory(Counter)

    def note(self, operation: Operation, *, refused: bool) -> None:
        """Count a call, unless its arguments are empty: no page, no slot."""
        asks_for = _ASKS_FOR.get(type(operation))
        if asks_for is None or asks_for(operation):
            counts = self.refused if refused else self.served
            counts[method_name(type(operation).__name__)] += 1


_ASKS_FOR: Mapping[type[Operation], Callable[[Any], object]] = {
    **dict.fromkeys((Match, Lock, InsertHost), lambda asked: asked.key),
    # Every cache refuses a quota below zero.
    LoadBack: lambda asked: asked.key and (asked.quota_pages or 0) >= 0,
    **dict.fromkeys((Unlock, UnlockWindow), lambda asked: asked.receipt.key),
    **dict.fromkeys((Allocate, Evict, EvictHost), lambda asked: asked.counts),
    **dict.fromkeys((Free, Insert), lambda asked: asked.slots.counts()),
}
"""The arguments of operations that may be empty; a cache serves an empty call by doing nothing."""


@cache
def method_name(operation: str) -> str:
    """Return the method name of an operation."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
