"""Black-box guard of a tree cache: judges answers, events, bytes and free lists while it works.

After each operation it compares the answer and the events with all earlier ones. It never reads a
snapshot: a fault that no answer, event or byte shows stays hidden, and the drain at the end of a
case makes most of these visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from kvcanon.conformance.errors import AnswerError, OnShould, ViolationError, raise_violations
from kvcanon.conformance.judge.answers import (
    ANSWER_LAW,
    answer_violation,
    outcome_of,
    require_answer,
    typed_read,
)
from kvcanon.conformance.judge.by_states.capture import CallResult, call_cache
from kvcanon.conformance.judge.explain import explain_violations, in_words
from kvcanon.conformance.judge.from_outside.checks import Checks, left_to, may_give_up_events
from kvcanon.conformance.judge.from_outside.tree.events import (
    SENDERS,
    check_events,
    check_late_events,
    check_residency,
)
from kvcanon.conformance.judge.from_outside.tree.evict import (
    after_broken_eviction,
    after_evict,
    after_evict_host,
    find_host_leaves,
)
from kvcanon.conformance.judge.from_outside.tree.held import (
    after_allocate,
    after_free,
    after_lock,
    after_reset,
    after_unlock,
)
from kvcanon.conformance.judge.from_outside.tree.insert import after_insert, after_insert_host
from kvcanon.conformance.judge.from_outside.tree.load import (
    after_load_back,
    after_settling,
    check_due,
)
from kvcanon.conformance.judge.from_outside.tree.match import after_match
from kvcanon.conformance.judge.from_outside.tree.refusal import after_refusal
from kvcanon.conformance.judge.from_outside.tree.slots import HELD, SlotRecords, count_room
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState
from kvcanon.conformance.judge.judged_cache import JudgedCache
from kvcanon.conformance.protocol.adapter import Capability, Subject, engine_calls
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments
from kvcanon.spec.config import Profile
from kvcanon.spec.errors import CacheError, EngineRaised
from kvcanon.spec.events import Event
from kvcanon.spec.law import Law, Need
from kvcanon.spec.operations import (
    Allocate,
    Done,
    Evict,
    EvictHost,
    Flush,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Poll,
    Refused,
    Reset,
    Settle,
    TakeEvents,
    Unlock,
    UnlockWindow,
    Write,
    method_of,
)
from kvcanon.spec.types import Component, Slot
from kvcanon.spec.views import COLUMN

CHECKS: dict[type[Operation], Callable[[ObservedState, Any, Any], None]] = {
    Match: after_match,
    Lock: after_lock,
    Unlock: after_unlock,
    UnlockWindow: after_unlock,
    Allocate: after_allocate,
    Free: after_free,
    Insert: after_insert,
    InsertHost: after_insert_host,
    Evict: after_evict,
    EvictHost: after_evict_host,
    LoadBack: after_load_back,
    Settle: after_settling,
    Poll: after_settling,
    Flush: after_settling,
    Reset: after_reset,
}
"""A check of an operation and its answer against the observed state."""


class BlackboxGuard(JudgedCache):
    """A cache that is judged by its answers and events. `Cache` documents its methods."""

    def __init__(
        self,
        subject: Subject,
        profile: Profile,
        laws: Collection[Law],
        on_should: OnShould | None = None,
        *,
        on_violation: OnShould | None = None,
        unobserved: bool = False,
    ) -> None:
        super().__init__(subject.cache)
        self._on_should = on_should
        self._on_violation = on_violation
        """Gets all violations, in place of the caller of the cache."""
        config = subject.cache.config
        sent = Need.EVENTS in subject.shows and config.events
        late = unobserved or may_give_up_events(config)
        takes_events, self._late = sent and not late, sent and late
        shown = Capability.FREE_SLOTS in subject.can
        slots = SlotRecords(subject.cache, config, profile, shown=shown, unobserved=unobserved)
        self._state = ObservedState(
            config=config,
            profile=profile,
            slots=slots,
            checks=Checks(frozenset(law.law_id for law in laws), left_to(profile)),
            takes_events=takes_events,
            read=typed_read(subject.cache.read) if Need.BYTES in subject.shows else None,
        )
        self._copies = subject.copies
        self._begun = not takes_events
        """Whether the events of the new cache were taken."""
        self._untaken: list[Event] = []
        """Events that were checked, and that the client has not taken yet."""

    @property
    def judged(self) -> int:
        """How many operations were judged: all."""
        return self.steps

    @property
    def laws_exercised(self) -> Counter[str]:
        """How often each law was exercised."""
        return self._state.checks.laws_exercised

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot that a request holds."""
        operation, state = Write(component, slot, data), self._state
        if state.checks.lost:
            super().write(component, slot, data)
            return
        self._begin()
        try:
            super().write(component, slot, data)
        except CacheError as error:
            after_refusal(state, operation, error)
            self._raise_violations(operation, error)
            raise
        state.written[COLUMN[component]][slot] = data
        state.compared.clear()
        if state.slots.owners[COLUMN[component]].get(slot) is not HELD:
            text = f"{component} slot {slot} was written, and no request holds it"
            state.check("REFUSE-3", False, text)
        elif len(data) != state.config.slot_bytes:
            text = f"{len(data)} bytes were written; a slot has {state.config.slot_bytes}"
            state.check("REFUSE-3", False, text)
        self._raise_violations(operation, Done())

    def _judge_call(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        if self._state.checks.lost:
            return self._add_untaken(call(*args, **kwargs))
        self._note_before(operation)
        try:
            self._begin()
            result = call_cache(call, *args, **kwargs)
        except AnswerError as wrong:
            raise self._finding_of(wrong, operation) from None
        try:
            self._check(operation, result)
        except AnswerError as wrong:
            self._state.checks.close()
            self._report(self._finding_of(wrong, operation))
        answer = result.unwrap()
        if not isinstance(operation, TakeEvents):
            return answer
        taken = self._check_taken(answer)
        self._raise_violations(operation, taken)
        return taken

    def _check(self, operation: Operation, result: CallResult[Answer]) -> None:
        """Check what a call returned or raised. Raises: ViolationError, AnswerError."""
        calls = engine_calls(self._copies)
        self._state.copies_failed = calls is not None and bool(calls.failed)
        if result.refusal is not None:
            broken_off = isinstance(result.refusal, EngineRaised)
            self._check_events(operation, refused=not broken_off)
            if broken_off and isinstance(operation, Evict | LoadBack):
                after_broken_eviction(self._state)
                self._raise_violations(operation, result.refusal)
                return
            after_refusal(self._state, operation, result.refusal)
            self._raise_violations(operation, result.refusal)
            return
        answer = result.unwrap()
        require_answer(method_of(type(operation)), answer)
        self._judge(operation, answer)
        self._raise_violations(operation, answer)

    def _finding_of(self, wrong: AnswerError, operation: Operation) -> ViolationError:
        """The finding of an answer of a wrong type. Raises: AnswerError: no law checks it."""
        if ANSWER_LAW not in self._state.checks.law_ids:
            raise wrong
        return answer_violation(wrong, self.steps, in_words(operation))

    def _report(self, error: ViolationError) -> None:
        """Raise violations, or pass them on."""
        if self._on_violation is not None:
            self._on_violation(error)
        else:
            raise_violations(error, self._on_should)

    def _begin(self) -> None:
        """Take the events of the new cache, before its first operation."""
        if not self._begun:
            self._begun = True
            self._untaken += self._take_events()

    def _take_events(self) -> tuple[Event, ...]:
        events = self._cache.take_events()
        require_answer("take_events", events)
        return events

    def _note_before(self, operation: Operation) -> None:
        """Note the state before the operation that the checks after it need."""
        state = self._state
        state.now += 1
        state.stored_on_host = 0
        if state.profile.acts_unasked:
            state.doubt_all()
        if not isinstance(operation, Match):
            state.compared.clear()
        if isinstance(operation, EvictHost):
            state.host_leaves = find_host_leaves(state)
        elif isinstance(operation, Evict) and state.writes_back:
            state.free_host_slots = state.slots.free_on_host()

    def _judge(self, operation: Operation, answer: object) -> None:
        """Check a served operation by its answer and its events."""
        state = self._state
        if state.profile.acts_unasked:
            state.doubt_all()
        if isinstance(operation, Insert | InsertHost):
            state.pages.path_made(operation.key, state.now)
        if not isinstance(operation, TakeEvents):
            self._check_events(operation, refused=False)
        check = CHECKS.get(type(operation))
        if check is not None:
            check(state, operation, answer)
        count_room(state.slots, operation, answer)
        if isinstance(operation, SENDERS) and not state.has_failed():
            if state.takes_events:
                check_residency(state)
            check_due(state)
            state.pages.forget_gone()

    def _check_events(self, operation: Operation, *, refused: bool) -> None:
        if self._state.takes_events:
            events = self._take_events()
            self._untaken += events
            check_events(self._state, operation, events, refused=refused)

    def _check_taken(self, answer: Answer) -> Answer:
        """Check the events that a client takes; returns them after those checked before."""
        if not isinstance(answer, tuple) or not (self._state.takes_events or self._late):
            return answer
        if self._late:
            check_late_events(self._state, answer)
            return answer
        check_events(self._state, TakeEvents(), answer, refused=False)
        return self._add_untaken(answer)

    def _add_untaken(self, answer: Answer) -> Answer:
        """Events that a client takes, after those that were checked before; other answers alone."""
        if not self._untaken or not isinstance(answer, tuple):
            return answer
        waiting, self._untaken = (*self._untaken, *answer), []
        return waiting  # type: ignore[return-value]  # The answer is a tuple of events here.

    def _raise_violations(self, operation: Operation, answer: object) -> None:
        violations = self._state.checks.close()
        if not violations:
            return
        outcome = outcome_of(answer)
        answered = f"refused: {answer}" if isinstance(outcome, Refused) else str(answer)
        words = explain_violations(violations, self.steps, in_words(operation), answered)
        self._report(ViolationError(words, violations, type(operation).__name__, outcome))
