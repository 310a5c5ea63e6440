"""Black-box guard of a tree cache: judges answers, events, bytes and free lists while it works.

After each operation it compares the answer and the events with all earlier ones. It never reads a
snapshot: a fault that no answer, event or byte shows stays hidden, and the drain at the end of a
case makes most of them visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from kvcanon.conformance.blackbox.checks import Checks
from kvcanon.conformance.blackbox.tree.events import SENDERS, add_up, hear, hear_late
from kvcanon.conformance.blackbox.tree.evict import after_evict, after_evict_host, host_leaves
from kvcanon.conformance.blackbox.tree.insert import after_insert, after_insert_host
from kvcanon.conformance.blackbox.tree.load import after_load_back, after_settling, check_due
from kvcanon.conformance.blackbox.tree.match import (
    after_allocate,
    after_free,
    after_lock,
    after_match,
    after_reset,
    after_unlock,
)
from kvcanon.conformance.blackbox.tree.refusal import after_refusal
from kvcanon.conformance.blackbox.tree.slots import HELD, SlotRecords
from kvcanon.conformance.blackbox.tree.state import ObservedState
from kvcanon.conformance.errors import OnShould, ViolationError
from kvcanon.conformance.observe.explain import explain_violations, in_words
from kvcanon.conformance.observe.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.protocol.adapter import Capability, Subject
from kvcanon.spec.config import Profile
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event
from kvcanon.spec.law import Law, Need
from kvcanon.spec.operations import (
    Allocate,
    Done,
    Evict,
    Evicted,
    EvictHost,
    Flush,
    Free,
    HostInserted,
    Insert,
    Inserted,
    InsertHost,
    LoadBack,
    LoadedBack,
    Lock,
    Match,
    Matched,
    Operation,
    Poll,
    Receipt,
    Refused,
    Reset,
    Settled,
    TakeEvents,
    Unlock,
    UnlockWindow,
    Write,
)
from kvcanon.spec.types import Component, Slot, Slots
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
    Poll: after_settling,
    Flush: after_settling,
    Reset: after_reset,
}
"""A check of an operation and its answer against the observed state."""
ANSWERS: dict[type[Operation], type] = {
    Match: Matched,
    Lock: Receipt,
    Allocate: Slots,
    Insert: Inserted,
    InsertHost: HostInserted,
    Evict: Evicted,
    EvictHost: Evicted,
    LoadBack: LoadedBack,
    Poll: Settled,
    Flush: Settled,
    TakeEvents: tuple,
}
"""What kind of answer each operation has; nobody looks at that of the others."""


class BlackboxGuard(WrappedCache):
    """A cache that is judged by what it answers. What its methods do, `Cache` says."""

    def __init__(
        self,
        subject: Subject,
        profile: Profile,
        laws: Collection[Law],
        on_should: OnShould | None = None,
        *,
        late: bool = False,
    ) -> None:
        super().__init__(subject.cache)
        self._on_should = on_should
        config = subject.cache.config
        self.steps = 0
        """Operations that were called."""
        sent = Need.EVENTS in subject.shows and config.events
        hears, self._late = sent and not late, sent and late
        shown = Capability.FREE_SLOTS in subject.can
        self._state = ObservedState(
            config=config,
            profile=profile,
            slots=SlotRecords(subject.cache, config, shown=shown),
            checks=Checks(frozenset(law.law_id for law in laws)),
            hears=hears,
            read=subject.cache.read if Need.BYTES in subject.shows else None,
        )
        self._waiting: list[Event] = list(subject.cache.take_events()) if hears else []
        """Events that were heard, and that nobody has taken yet."""

    @property
    def laws_exercised(self) -> Counter[str]:
        """How often each law was exercised."""
        return self._state.checks.laws_exercised

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds."""
        asked, state = Write(component, slot, data), self._state
        try:
            super().write(component, slot, data)
        except CacheError as error:
            after_refusal(state, asked, error)
            self._raise(asked, f"refused: {error}")
            raise
        state.written[COLUMN[component]][slot] = data
        state.compared.clear()
        if state.slots.owners[COLUMN[component]].get(slot) is not HELD:
            text = f"{component} slot {slot} was written, and no request holds it"
            state.check("REFUSE-3", False, text)
            self._raise(asked, Done())

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        self._note_before(operation)
        try:
            answer = call(*args, **kwargs)
        except CacheError as error:
            self._hear(operation, refused=True)
            after_refusal(self._state, operation, error)
            self._raise(operation, f"refused: {error}")
            raise
        _check_kind(operation, answer)
        self._judge(operation, answer)
        self._raise(operation, answer)
        return self._handed_out(answer) if isinstance(operation, TakeEvents) else answer

    def _note_before(self, operation: Operation) -> None:
        """What has to be known of the time before an operation."""
        self.steps += 1
        state = self._state
        state.now += 1
        state.stored_on_host = 0
        if not isinstance(operation, Match):
            state.compared.clear()
        if isinstance(operation, EvictHost):
            state.leaves_of_host = host_leaves(state)
        elif isinstance(operation, Evict) and state.writes_back:
            state.room_on_host = state.slots.free_on_host()

    def _judge(self, operation: Operation, answer: object) -> None:
        """Check an operation that was served by what it answered and what was heard of it."""
        state = self._state
        if isinstance(operation, Insert | InsertHost):
            state.pages.path_made(operation.key, state.now)
        if not isinstance(operation, TakeEvents):
            self._hear(operation, refused=False)
        check = CHECKS.get(type(operation))
        if check is not None:
            check(state, operation, answer)
        if isinstance(operation, SENDERS) and not state.violations:
            if state.hears:
                add_up(state)
            check_due(state)
            state.pages.forget_gone()

    def _hear(self, operation: Operation, *, refused: bool) -> None:
        if self._state.hears:
            events = self._cache.take_events()
            self._waiting += events
            hear(self._state, operation, events, refused=refused)

    def _handed_out(self, answer: Answer) -> Answer:
        """All events that wait, of which the acceptor has taken most already."""
        if not isinstance(answer, tuple) or not (self._state.hears or self._late):
            return answer
        if self._late:
            hear_late(self._state, answer)
            return answer
        hear(self._state, TakeEvents(), answer, refused=False)
        waiting, self._waiting = (*self._waiting, *answer), []
        return waiting  # type: ignore[return-value]  # Answer is a tuple of events here.

    def _raise(self, operation: Operation, answer: object) -> None:
        violations = self._state.checks.close()
        if not violations:
            return
        answered = in_words(Refused(answer)) if isinstance(answer, CacheError) else str(answer)
        words = explain_violations(violations, self.steps, in_words(operation), answered)
        broken = ViolationError(words, violations)
        if self._on_should is None or not broken.only_should:
            raise broken
        self._on_should(broken)


def _check_kind(operation: Operation, answer: object) -> None:
    """Raises: TypeError: the answer is none that the operation has."""
    kind = ANSWERS.get(type(operation), object)
    if not isinstance(answer, kind):
        name = type(operation).__name__
        raise TypeError(f"{name} was answered {answer!r}; it must be answered {kind.__name__}")
