"""Watching: a cache around each of whose operations every law is asked that a step can break.

It is the guard's work for the steps from one known state. The laws of states are asked once for
each state, when the exploration goes on from it; here only those of the tree's shape are, since all
others walk on it.

What readers get wrong: laws are asked of every step, also where it leads to a state that was seen
before. The state may be an old one; the way to it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kvcanon.conformance.cases.client import Stamps
from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.observe.evidence import Shared, by_premise
from kvcanon.conformance.observe.relevance import Relevant
from kvcanon.conformance.observe.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.protocol.adapter import WatchedCopies, ends_known
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event, Residency, Resident
from kvcanon.spec.law import LAWS, SHAPE, Kind, Law, Need, Stream, Subject, Violation
from kvcanon.spec.laws.expected_events import residency_of
from kvcanon.spec.operations import Done, Match, Matched, Operation, Outcome, Refused, Taken
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import GPU
from kvcanon.spec.views import Stamp, Step


class LawSet:
    """The laws that are asked of a cache. Those of the tree's shape are asked in any case."""

    def __init__(self, laws: Iterable[Law], shows: frozenset[Need]) -> None:
        asked = [law for law in laws if law.needs <= shows and law.law_id not in SHAPE]
        self.shape = tuple(LAWS[law_id] for law_id in SHAPE)
        self.states = tuple(law for law in asked if law.kind is Kind.STATE)
        self.steps = Relevant([law for law in asked if law.kind is Kind.STEP], _broken)
        self.streams = Relevant([law for law in asked if law.kind is Kind.STREAM], _broken)
        ids = {law.law_id for law in (*self.shape, *asked)}
        self.law_ids = tuple(law_id for law_id in LAWS if law_id in ids)
        """The ids of all of them, in the order of the book."""


class Witness:
    """Asks the laws of a book, and counts how often each was exercised."""

    def __init__(self, book: LawSet) -> None:
        self.book = book
        self.states = 0
        """States of which the laws of states were asked."""
        self.steps = 0
        """Operations of the cache of which the laws of steps and streams were asked."""
        self.laws_exercised: Counter[str] = Counter()
        """How often the premise of each law was met."""
        self._silent: Snapshot | None = None
        """The last state of which the laws of streams were asked with nothing in the stream."""
        laws = [LAWS[law_id] for law_id in book.law_ids]
        self._states = by_premise(laws, Kind.STATE)
        self._steps = Relevant(by_premise(laws, Kind.STEP), Shared.exercised_by)
        self._streams = Relevant(by_premise(laws, Kind.STREAM), Shared.exercised_by)

    def see_start(self, state: Snapshot) -> None:
        """Ask the laws of the events of a cache that nobody has used. Raises: ViolationError."""
        stream = Stream(Residency(()), state.events, state, begins=True)
        _require(_all_broken(self.book.streams.of_stream(stream), stream))
        self._count(self._streams.of_stream(stream), stream)

    def see_state(self, state: Snapshot) -> None:
        """Ask the laws of a state. Raises: ViolationError."""
        _require(_all_broken(self.book.shape, state))
        _require(_all_broken(self.book.states, state))
        self.states += 1
        self._count(self._states, state)

    def see_step(self, step: Step, stream: Stream) -> None:
        """Ask the laws of a step, and of the events that it sent. Raises: ViolationError."""
        still = step.before is step.after
        if not still and not _share(step.before, step.after):
            # Else it is the tree of the state before, which was asked for its shape then.
            _require(_all_broken(self.book.shape, step.after))
        found = _all_broken(self.book.steps.of_step(step), step)
        if not (still and step.before is self._silent):
            # Else nothing was sent between a state and itself, and it was asked of the same before.
            found += _all_broken(self.book.streams.of_stream(stream), stream)
            self._silent = step.before if still else self._silent
        _require(found)
        self.steps += 1
        self._count(self._steps.of_step(step), step)
        self._count(self._streams.of_stream(stream), stream)

    def _count(self, premises: Iterable[Shared], subject: Subject) -> None:
        for shared in premises:
            self.laws_exercised.update(shared.exercised_by(subject))


class WatchedCache(WrappedCache):
    """A cache of which each operation is judged. What its methods do, `Cache` says."""

    def __init__(
        self,
        cache: Cache,
        state: Snapshot,
        told: set[Resident],
        witness: Witness,
        stamps: Stamps | None,
        *,
        copies: WatchedCopies | None,
    ) -> None:
        super().__init__(cache)
        self.state = state
        """The state now."""
        self._told = told
        self._witness = witness
        self._copies = copies
        self._stamps = stamps
        """None where the bytes behind slots cannot be compared."""

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        outcome: Outcome
        refusal: CacheError | None = None
        try:
            answer = call(*args, **kwargs)
        except CacheError as error:
            refusal, outcome = error, Refused(error)
        else:
            outcome = _outcome_of(answer)
        self._judge(operation, outcome)
        if refusal is not None:
            raise refusal
        return answer

    def _judge(self, operation: Operation, outcome: Outcome) -> None:
        before, after = self.state, self._cache.snapshot()
        if after == before:
            after = before
        sent = after.events[0 if isinstance(outcome, Taken) else len(before.events) :]
        stamps = self._read(operation, outcome)
        ended = ends_known(self._copies, before)
        step = Step(before, operation, outcome, after, sent, stamps, ended=ended)
        stream = Stream(Residency(self._told), sent, after)
        self._witness.see_step(step, stream)
        self.state = after
        if sent:
            # What was told is what is there: the laws of events have just said so.
            self._told = residency_of(after)

    def _read(self, operation: Operation, outcome: Outcome) -> tuple[Stamp, ...]:
        """What is behind the slots that a match returned, beside what was written for the page.

        Slots that no pool has, and pages that the key has not, are left to the laws of matches.
        """
        if self._stamps is None or not isinstance(operation, Match):
            return ()
        if not isinstance(outcome, Matched):
            return ()
        found: list[Stamp] = []
        for component, some in outcome.slots:
            if not some:
                continue
            expected = self._stamps.of_key(component, operation.key)
            capacity = self.config.capacity(component, GPU)
            for page, slot in enumerate(some, outcome.device_pages - len(some)):
                if 0 <= page < len(expected) and 0 <= slot < capacity:
                    data = self._cache.read(component, GPU, slot)
                    found.append(Stamp(component, page, slot, expected[page], data))
        return tuple(found)


def _outcome_of(answer: Outcome | tuple[Event, ...] | None) -> Outcome:
    """What a method returned, as the outcome of its operation."""
    if answer is None:
        return Done()
    return Taken(answer) if isinstance(answer, tuple) else answer


def _share(before: Snapshot, after: Snapshot) -> bool:
    """Let nodes that are equal in both states be one object: laws compare them again and again.

    Returns whether all are, so that the trees are the same.
    """
    nodes = after.nodes
    if not isinstance(nodes, dict):
        return False
    shared = 0
    for node_id, node in before.nodes.items():
        if nodes.get(node_id) == node:
            nodes[node_id] = node
            shared += 1
    return shared == len(nodes) == len(before.nodes) and before.root_id == after.root_id


def _broken(law: Law, subject: Subject) -> list[str]:
    return list(law.check(subject))


def _all_broken(laws: Iterable[Law], subject: Subject) -> list[Violation]:
    return [Violation(law, text) for law in laws for text in law.check(subject)]


def _require(found: list[Violation]) -> None:
    if found:
        raise ViolationError(str(found[0]), found)
