"""The guard: a cache that is judged while it works.

`guard(cache)` is a cache like the one that it wraps. Around each operation, or a sample of them, it
takes snapshots and asks the laws: of the state, of the step, and of all events since it last asked.
What is wrong is raised as a `SpecViolation` that names the law and the operation.

What readers get wrong: the guard sees only what goes through it. Whoever holds the wrapped cache
too, and calls it or takes its events, makes the guard's sums wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.errors import OnShould, ViolationError
from kvcanon.conformance.observe.evidence import Evidence
from kvcanon.conformance.observe.explain import explain
from kvcanon.conformance.observe.law_checker import Inquiry, shapeless
from kvcanon.conformance.observe.ledger import Ledger
from kvcanon.conformance.observe.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.protocol.adapter import WatchedCopies, ends_known
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import BadArgument, CacheError
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event, Residency, Resident
from kvcanon.spec.law import LAWS, Law, Need, Stream, Subject, Violation, judge
from kvcanon.spec.laws.expected_events import residency_of
from kvcanon.spec.operations import (
    BytesRead,
    Done,
    Free,
    HostInserted,
    Insert,
    Inserted,
    InsertHost,
    Match,
    Matched,
    Operation,
    Outcome,
    Read,
    Receipt,
    Refused,
    Reset,
    TakeEvents,
    Taken,
    Write,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Component, Medium, ReceiptId, Slot
from kvcanon.spec.views import Stamp, Step


class StepViolation(ViolationError):
    """Laws that do not hold after a step."""

    def __init__(self, words: str, violations: Sequence[Violation], step: Step) -> None:
        super().__init__(words, violations)
        self.step = step


def guard(
    cache: Cache,
    rate: float = 1.0,
    seed: int = 0,
    laws: Collection[Law] | None = None,
    on_violation: Callable[[Violation, Step], None] | None = None,
    *,
    copies: WatchedCopies | None = None,
    new: bool = False,
    on_should: OnShould | None = None,
    thorough: bool = False,
) -> GuardedCache:
    """Wrap a cache so that a share of its operations is judged; which ones, the seed decides.

    All laws are asked unless some are given. What is broken is raised, or passed to `on_violation`;
    where nothing is but laws that should be kept, `on_should` may take it, and the cache goes on.
    Where `copies` says how copies end, the cache is held to that, too. Of one that is `new` nobody
    has taken events yet. A `thorough` guard asks every law about everything after each step, and
    finds what the usual one finds.
    """
    asked = LAWS.values() if laws is None else laws
    if copies is None:
        asked = [law for law in asked if Need.ENDS not in law.needs]
    return GuardedCache(
        cache,
        rate,
        seed,
        asked,
        on_violation,
        copies=copies,
        new=new,
        on_should=on_should,
        thorough=thorough,
    )


class GuardedCache(WrappedCache):
    """A cache that is judged while it works. What its methods do, `Cache` says."""

    def __init__(
        self,
        cache: Cache,
        rate: float,
        seed: int,
        laws: Collection[Law],
        on_violation: Callable[[Violation, Step], None] | None,
        *,
        copies: WatchedCopies | None,
        new: bool,
        on_should: OnShould | None,
        thorough: bool,
    ) -> None:
        super().__init__(cache)
        if not 0 <= rate <= 1:
            raise BadArgument("rate", f"is {rate}; it is a share of the steps, 0 .. 1")
        self.steps = 0
        """Operations that were called."""
        self.judged = 0
        """Operations around which laws were asked."""
        self._rate = rate
        self._random = Random(seed)
        events = cache.config.events
        shown = [law for law in laws if events or Need.EVENTS not in law.needs]
        self._evidence = Evidence(shown, thorough=thorough)
        self._inquiry = Inquiry(laws, thorough=thorough)
        self._on_violation = on_violation
        self._copies = copies
        self._begins = new
        self._on_should = on_should
        self._given: set[ReceiptId] = set()
        """The numbers of the receipts that were given out."""
        self._ledger = Ledger()
        self._last: Snapshot | None = None
        """The state now; None where the operation before was not judged."""
        self._told: set[Resident] = set()
        """What the events say is where, up to the last operation that was judged."""
        self._unheard: list[Event] = []
        """Events that were taken since."""
        self._heard_waiting = 0
        """How many of the events that wait in the cache are in `_told`."""
        if rate > 0:
            self._last = cache.snapshot()
            if self._last.events[:1] != (AllBlocksCleared(),) and not new:
                # Some of its events are gone, so that what they said is taken from the state.
                self._told.update(residency_of(self._last))
                self._heard_waiting = len(self._last.events)

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often each law was exercised: its premise was met in a step that broke no law."""
        return self._evidence.laws_exercised

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot."""
        asked = Read(component, medium, slot)
        try:
            data = super().read(component, medium, slot)
        except CacheError as error:
            self._judge_access(asked, Refused(error))
            raise
        self._judge_access(asked, BytesRead(data))
        return data

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds."""
        asked = Write(component, slot, data)
        try:
            super().write(component, slot, data)
        except CacheError as error:
            self._judge_access(asked, Refused(error))
            raise
        if self._rate > 0:
            self._ledger.wrote(component, slot, data, self._cache.snapshot)
        self._judge_access(asked, Done())

    def _judge_access(self, asked: Read | Write, outcome: Refused | BytesRead | Done) -> None:
        """Ask whether a read or a write had to be refused, where the state is known.

        Neither changes the state, so that no snapshot is taken; there is one for each operation.
        """
        if self._last is None:
            return
        step = Step(self._last, asked, outcome, self._last, ())
        found = self._inquiry.ask_access(step)
        if not found:
            return
        if self._on_violation is None:
            refusal = outcome.error if isinstance(outcome, Refused) else None
            self._accuse(StepViolation(explain(found, step, self.steps), found, step), refusal)
        for violation in found:
            if self._on_violation is not None:
                self._on_violation(violation, step)

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """Call, and judge if this operation is one of the sample."""
        self.steps += 1
        if self._rate < 1.0 and self._random.random() >= self._rate:
            self._last = None
            answer = call(*args, **kwargs)
            self._follow(operation, answer)
            return answer
        return self._judge(operation, partial(call, *args, **kwargs))

    def _follow(self, operation: Operation, answer: object) -> None:
        """Note what the guard has to know of every operation, whether it is judged or not."""
        if self._rate == 0:
            return
        if isinstance(operation, Free):
            self._ledger.freed(operation.slots)
        elif isinstance(operation, Insert) and isinstance(answer, Inserted):
            self._ledger.inserted(operation.key, operation.slots, answer)
        elif isinstance(operation, InsertHost) and isinstance(answer, HostInserted):
            self._ledger.inserted_host(operation.key, operation.payload, answer)
        elif isinstance(operation, Reset):
            self._ledger.cleared()
        elif isinstance(operation, TakeEvents) and isinstance(answer, tuple):
            self._unheard.extend(answer[self._heard_waiting :])
            self._heard_waiting = 0

    def _judge(self, operation: Operation, call: Callable[[], Answer]) -> Answer:
        """Call, ask the laws about the step that it was, and answer as the cache did."""
        seen = self._last is not None
        before = self._last or self._cache.snapshot()
        earlier = (*self._unheard, *before.events[self._heard_waiting :])
        self._last, refusal = None, None
        outcome: Outcome
        try:
            answer = call()
        except CacheError as error:
            refusal, outcome = error, Refused(error)
        else:
            self._follow(operation, answer)
            outcome = _outcome_of(answer)
        difference = self._inquiry.compared(before, self._cache.snapshot())
        after = difference.after
        sent = after.events[0 if isinstance(outcome, Taken) else len(before.events) :]
        stamps = self._stamps(operation, outcome)
        step = Step(
            before,
            operation,
            outcome,
            after,
            sent,
            stamps,
            given=self._given,
            ended=ends_known(self._copies, before),
            difference=difference,
        )
        told = Residency(self._told)
        stream = Stream(told, (*earlier, *sent), after, self._begins)
        self._begins = False
        found = self._ask(step, stream)
        words = ""
        if found and self._on_violation is None:
            guiltless = set() if seen else _broken(found, before, Stream(told, earlier, before))
            words = explain(found, step, self.steps, guiltless)
        self._hear((*earlier, *sent), after)
        if isinstance(outcome, Receipt):
            self._given.add(outcome.receipt_id)
        if not shapeless(found):
            self._ledger.forget(step)
            self._last = after
        if words:
            self._accuse(StepViolation(words, found, step), refusal)
        for violation in found:
            if self._on_violation is not None:
                self._on_violation(violation, step)
        if refusal is not None:
            raise refusal
        return answer

    def _accuse(self, broken: StepViolation, refusal: CacheError | None) -> None:
        """Raise what is broken, unless it is only what should be kept, and somebody is told."""
        if self._on_should is None or not broken.only_should:
            raise broken from refusal
        self._on_should(broken)

    def _stamps(self, operation: Operation, outcome: Outcome) -> tuple[Stamp, ...]:
        """What is behind the slots that a match returned."""
        if isinstance(operation, Match) and isinstance(outcome, Matched):
            return self._ledger.stamps(operation.key, outcome, self._cache.config, self._cache.read)
        return ()

    def _ask(self, step: Step, stream: Stream) -> list[Violation]:
        """Ask all laws."""
        self.judged += 1
        found = self._inquiry.ask(step, stream)
        if not found:
            self._evidence.see(step, stream)
        return found

    def _hear(self, events: Iterable[Event], after: Snapshot) -> None:
        """Fold events, those that still wait in the state included."""
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self._told.clear()
            elif isinstance(event, BlockStored):
                self._told.add((event.medium, event.block_hash))
            else:
                self._told.discard((event.medium, event.block_hash))
        self._unheard.clear()
        self._heard_waiting = len(after.events)


def _outcome_of(answer: Outcome | tuple[Event, ...] | None) -> Outcome:
    """What a method returned, as the outcome of its operation."""
    if answer is None:
        return Done()
    return Taken(answer) if isinstance(answer, tuple) else answer


def _broken(found: Collection[Violation], *subjects: Subject) -> set[str]:
    """Which of the laws that are broken are broken in other subjects, too."""
    laws = [violation.law for violation in found]
    return {violation.law.law_id for each in subjects for violation in judge(each, laws)}
