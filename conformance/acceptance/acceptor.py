"""The acceptor: a cache that is judged by what it answers, while it works.

Around each operation it takes the answer and the events, looks at the free lists where the cache
shows them, and asks what they say next to all that was said before.

What readers get wrong: nothing here looks at a state. A fault that no answer, no event and no byte
ever shows is out of sight; the drain at the end of a case brings most of them into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from kvcanon.conformance.acceptance.books import Books
from kvcanon.conformance.acceptance.checks import Checks
from kvcanon.conformance.acceptance.evicting import after_evict, after_evict_host, host_leaves
from kvcanon.conformance.acceptance.hearing import SENDERS, add_up, hear, hear_late
from kvcanon.conformance.acceptance.inserting import after_insert, after_insert_host
from kvcanon.conformance.acceptance.loading import after_load_back, after_settling, check_due
from kvcanon.conformance.acceptance.refusing import after_refusal
from kvcanon.conformance.acceptance.slots import HELD, SlotBooks
from kvcanon.conformance.acceptance.using import (
    after_allocate,
    after_free,
    after_lock,
    after_match,
    after_reset,
    after_unlock,
)
from kvcanon.conformance.adapters.adapter import Capability, Subject
from kvcanon.conformance.explain import explain_violations, in_words
from kvcanon.conformance.verdict import LawsBroken, OnShould
from kvcanon.conformance.wrapping import Answer, Arguments, WrappedCache
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

CHECKS: dict[type[Operation], Callable[[Books, Any, Any], None]] = {
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
"""What is asked of the books, an operation and its answer."""
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


class Acceptor(WrappedCache):
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
        self._books = Books(
            config=config,
            profile=profile,
            slots=SlotBooks(subject.cache, config, shown=shown),
            checks=Checks(frozenset(law.law_id for law in laws)),
            hears=hears,
            read=subject.cache.read if Need.BYTES in subject.shows else None,
        )
        self._waiting: list[Event] = list(subject.cache.take_events()) if hears else []
        """Events that were heard, and that nobody has taken yet."""

    @property
    def laws_exercised(self) -> Counter[str]:
        """How often each law was exercised."""
        return self._books.checks.laws_exercised

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a device slot that a request holds."""
        asked, books = Write(component, slot, data), self._books
        try:
            super().write(component, slot, data)
        except CacheError as error:
            after_refusal(books, asked, error)
            self._raise(asked, f"refused: {error}")
            raise
        books.written[COLUMN[component]][slot] = data
        books.compared.clear()
        if books.slots.owners[COLUMN[component]].get(slot) is not HELD:
            text = f"{component} slot {slot} was written, and no request holds it"
            books.check("REFUSE-3", False, text)
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
            after_refusal(self._books, operation, error)
            self._raise(operation, f"refused: {error}")
            raise
        _check_kind(operation, answer)
        self._judge(operation, answer)
        self._raise(operation, answer)
        return self._handed_out(answer) if isinstance(operation, TakeEvents) else answer

    def _note_before(self, operation: Operation) -> None:
        """What has to be known of the time before an operation."""
        self.steps += 1
        books = self._books
        books.now += 1
        books.stored_on_host = 0
        if not isinstance(operation, Match):
            books.compared.clear()
        if isinstance(operation, EvictHost):
            books.leaves_of_host = host_leaves(books)
        elif isinstance(operation, Evict) and books.writes_back:
            books.room_on_host = books.slots.free_on_host()

    def _judge(self, operation: Operation, answer: object) -> None:
        """Check an operation that was served by what it answered and what was heard of it."""
        books = self._books
        if isinstance(operation, Insert | InsertHost):
            books.pages.path_made(operation.key, books.now)
        if not isinstance(operation, TakeEvents):
            self._hear(operation, refused=False)
        check = CHECKS.get(type(operation))
        if check is not None:
            check(books, operation, answer)
        if isinstance(operation, SENDERS) and not books.violations:
            if books.hears:
                add_up(books)
            check_due(books)
            books.pages.forget_gone()

    def _hear(self, operation: Operation, *, refused: bool) -> None:
        if self._books.hears:
            events = self._cache.take_events()
            self._waiting += events
            hear(self._books, operation, events, refused=refused)

    def _handed_out(self, answer: Answer) -> Answer:
        """All events that wait, of which the acceptor has taken most already."""
        if not isinstance(answer, tuple) or not (self._books.hears or self._late):
            return answer
        if self._late:
            hear_late(self._books, answer)
            return answer
        hear(self._books, TakeEvents(), answer, refused=False)
        waiting, self._waiting = (*self._waiting, *answer), []
        return waiting  # type: ignore[return-value]  # Answer is a tuple of events here.

    def _raise(self, operation: Operation, answer: object) -> None:
        violations = self._books.checks.close()
        if not violations:
            return
        answered = in_words(Refused(answer)) if isinstance(answer, CacheError) else str(answer)
        words = explain_violations(violations, self.steps, in_words(operation), answered)
        broken = LawsBroken(words, violations)
        if self._on_should is None or not broken.only_should:
            raise broken
        self._on_should(broken)


def _check_kind(operation: Operation, answer: object) -> None:
    """Raises: TypeError: the answer is none that the operation has."""
    kind = ANSWERS.get(type(operation), object)
    if not isinstance(answer, kind):
        name = type(operation).__name__
        raise TypeError(f"{name} was answered {answer!r}; it must be answered {kind.__name__}")
