"""The watched cache: a wrapper that checks the laws of each step of an exploration.

It does for the steps from one known state what the guard does for a running cache. The laws of
states are checked once for each state, when the exploration goes on from it; of each step only the
laws of the tree's shape are checked, since all other laws walk on the tree.

The laws of steps are checked even where a step leads to a known state: the state was seen before,
but the step was not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from kvcanon.conformance.cases.client import Stamps
from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.judge import (
    Relevance,
    Shared,
    StepCapture,
    StoreWatch,
    by_premise,
    call_cache,
    met_by,
    read_known_slots,
    require_answer,
)
from kvcanon.conformance.protocol.adapter import WatchedCopies
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.events import Residency, Resident
from kvcanon.spec.law import LAWS, SHAPE, Kind, Law, Need, Stream, Violation, violations_of
from kvcanon.spec.laws.expected_events import residency_of
from kvcanon.spec.laws.unasked import without_unasked
from kvcanon.spec.operations import Matched, Operation, method_of
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Component, Key
from kvcanon.spec.views import Stamp, Step


class LawSet:
    """The laws that are checked, by kind. Those of the tree's shape are always among them."""

    def __init__(self, laws: Iterable[Law], shows: frozenset[Need]) -> None:
        asked = [law for law in laws if law.needs <= shows and law.law_id not in SHAPE]
        self.shape = tuple(LAWS[law_id] for law_id in SHAPE)
        self.states = tuple(law for law in asked if law.kind is Kind.STATE)
        self.relevance = Relevance(asked, asked)
        ids = {law.law_id for law in (*self.shape, *asked)}
        self.law_ids = tuple(law_id for law_id in LAWS if law_id in ids)
        """The ids of all these laws, in the order of `LAWS`."""


class Witness:
    """Checks the laws of a set, and counts how often each was exercised."""

    def __init__(self, book: LawSet) -> None:
        self.book = book
        self.states = 0
        """How many states were checked."""
        self.steps = 0
        """How many operations were checked."""
        self.laws_exercised: Counter[str] = Counter()
        """How often the premise of each law was met."""
        self._silent: Snapshot | None = None
        """The last state for which the laws of streams were checked with no event."""
        self._of_states = by_premise((*book.shape, *book.states), Kind.STATE)

    def see_start(self, state: Snapshot) -> None:
        """Check the events of a new cache, before its first operation. Raises: ViolationError."""
        stream = Stream(Residency(), state.events, state, begins=True)
        agenda = self.book.relevance.of_stream(stream)
        _require(violations_of(agenda.laws, stream))
        self._count(met_by(agenda, stream))

    def see_state(self, state: Snapshot) -> None:
        """Check the laws of a state. Raises: ViolationError."""
        _require(violations_of(self.book.shape, state))
        _require(violations_of(self.book.states, state))
        self.states += 1
        self._count(each for each in self._of_states if each.premise.is_met(state))

    def see_step(self, step: Step, stream: Stream) -> None:
        """Check the laws of a step and of its events. Raises: ViolationError."""
        still = step.before is step.after
        if not still and not _share(step.before, step.after):
            # The tree changed. The shape of the tree before was checked with its state.
            _require(violations_of(self.book.shape, step.after))
        asked = without_unasked(step)
        of_step = self.book.relevance.of_step(asked)
        of_stream = self.book.relevance.of_stream(stream)
        found = violations_of(of_step.laws, asked)
        if not (still and step.before is self._silent):
            # Nothing to check again where the state is the same and there was no event.
            found += violations_of(of_stream.laws, stream)
            self._silent = step.before if still else self._silent
        _require(found)
        self.steps += 1
        self._count(met_by(of_step, asked))
        self._count(met_by(of_stream, stream))

    def _count(self, met: Iterable[Shared]) -> None:
        for shared in met:
            self.laws_exercised.update(shared.law_ids)


class WatchedCache(WrappedCache):
    """A cache each of whose operations is judged. `Cache` documents its methods."""

    def __init__(
        self,
        cache: Cache,
        state: Snapshot,
        residency: set[Resident],
        witness: Witness,
        stamps: Stamps | None,
        *,
        copies: WatchedCopies | None,
        store: StoreWatch | None = None,
    ) -> None:
        super().__init__(cache)
        self.state = state
        """The state now."""
        self._residency = residency
        """Which pages are where by the events so far."""
        self._witness = witness
        self._capture = StepCapture(cache, copies, self._read_stamps, store=store)
        self._stamps = stamps
        """None where the bytes behind slots cannot be read."""

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        result = call_cache(call, *args, **kwargs)
        if result.refusal is None:
            require_answer(method_of(type(operation)), result.unwrap())
        step = self._capture.step(self.state, operation, result.outcome)
        self._witness.see_step(step, Stream(Residency(self._residency), step.events, step.after))
        self.state = step.after
        if step.events:
            # The laws of events held, so the events add up to what the state shows.
            self._residency = residency_of(step.after)
        return result.unwrap()

    def _read_stamps(self, key: Key, matched: Matched) -> tuple[Stamp, ...]:
        """The bytes behind the slots that a match returned, beside those written for the pages."""
        stamps = self._stamps
        if stamps is None:
            return ()

        def known_bytes(component: Component) -> list[tuple[bytes, ...]]:
            return [(data,) for data in stamps.of_key(component, key)]

        return read_known_slots(matched, self.config, self._cache.read, known_bytes)


def _share(before: Snapshot, after: Snapshot) -> bool:
    """Make nodes that are equal in both states one object, so that laws compare them fast.

    Returns whether the trees are the same.
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


def _require(found: list[Violation]) -> None:
    if found:
        raise ViolationError(str(found[0]), found)
