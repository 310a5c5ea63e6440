"""The guard of caches with snapshots: a wrapper that judges a cache while it works.

`guard_states(cache)` returns a cache with the same methods. Around each operation, or around a
sample of them, it takes snapshots and checks the laws: of the state, of the step, and of all events
since the last judged operation. A violation is raised as a `SpecViolation` that names the law and
the operation. `blackbox.guard.guard` is for caches that may lack snapshots.

Trap: make every call through the guard. A caller that uses the wrapped cache directly, or takes its
events there, causes false violations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from heapq import nlargest
from random import Random

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.errors import AnswerError, OnShould, ViolationError, raise_violations
from kvcanon.conformance.judge.answers import ANSWER_LAW, answer_violation, require_answer
from kvcanon.conformance.judge.by_states.capture import CallResult, StepCapture, call_cache
from kvcanon.conformance.judge.by_states.law_checker import LawChecker, breaks_shape
from kvcanon.conformance.judge.by_states.store_watch import StoreWatch, prefetch_of
from kvcanon.conformance.judge.by_states.written_bytes import WrittenBytes
from kvcanon.conformance.judge.explain import explain, in_words
from kvcanon.conformance.judge.judged_cache import JudgedCache
from kvcanon.conformance.protocol.adapter import StoreControl, WatchedCopies
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import BadArgument, CacheError
from kvcanon.spec.events import AllBlocksCleared, Event, Residency
from kvcanon.spec.law import LAWS, Law, Need, Stream, Subject, Violation, judge
from kvcanon.spec.laws.expected_events import residency_of
from kvcanon.spec.operations import (
    METHODS,
    BytesRead,
    Done,
    EndPrefetch,
    Free,
    HostInserted,
    Insert,
    Inserted,
    InsertHost,
    Matched,
    Operation,
    Read,
    Receipt,
    Refused,
    Reset,
    TakeEvents,
    Write,
)
from kvcanon.spec.snapshot import RankView, Snapshot
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import CPU, Component, Key, Medium, ReceiptId, Slot
from kvcanon.spec.views import Stamp, Step


def guard_states(
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
    ranks: Callable[[], tuple[RankView, ...]] | None = None,
    store: StoreControl | None = None,
) -> GuardedCache:
    """Wrap a cache so that a share `rate` of its operations is judged; `seed` decides which.

    Checks all laws unless `laws` are given. Violations are raised, or passed to `on_violation`.
    Violations of SHOULD laws alone go to `on_should`, if it is given, and the cache goes on.
    `copies` says how copies end, and enables the laws that need it. `new` says that no events were
    taken from the cache yet. A `thorough` guard checks every law of everything after each step; it
    is slower, and finds what the usual one finds. `ranks` shows the last operation on each of
    several ranks, of which `cache` is the first. `store` is the control of the store below it.
    """
    chosen = LAWS.values() if laws is None else laws
    if copies is None:
        chosen = [law for law in chosen if Need.ENDS not in law.needs]
    if ranks is None:
        chosen = [law for law in chosen if Need.RANKS not in law.needs]
    if store is None:
        chosen = [law for law in chosen if Need.STORE not in law.needs]
    return GuardedCache(
        cache,
        rate,
        seed,
        chosen,
        on_violation,
        copies=copies,
        new=new,
        on_should=on_should,
        thorough=thorough,
        ranks=ranks,
        store=store,
    )


class GuardedCache(JudgedCache):
    """A cache that is judged by its states. `Cache` documents its methods."""

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
        ranks: Callable[[], tuple[RankView, ...]] | None,
        store: StoreControl | None,
    ) -> None:
        super().__init__(cache)
        if not 0 <= rate <= 1:
            raise BadArgument("rate", f"is {rate}; it is a share of the steps, 0 .. 1")
        self.judged = 0
        """How many operations were judged."""
        self._rate = rate
        self._random = Random(seed)
        self._written = WrittenBytes()
        self._reads = callable(getattr(cache, "read", None))
        self.below = store
        """The control of the store below the cache; None without one."""
        self._store = None if store is None else StoreWatch(store, self._written, cache.read)
        self._capture = StepCapture(
            cache, copies, self._read_stamps, ranks, self._store, thorough=thorough
        )
        self._on_violation = on_violation
        self._begins = new
        self._on_should = on_should
        self._given: set[ReceiptId] = set()
        """The ids of all receipts that the cache returned."""
        self._arrived: tuple[Completion, ...] | None = None
        """What `arrived` answered, if nothing was called since."""
        self._last: Snapshot | None = None
        """The current state; None if the last operation was not judged."""
        self._residency = Residency()
        """The pages that the events put on each medium, up to the last judged operation."""
        self._taken: list[Event] = []
        """Events that clients took since the last judged operation."""
        self._folded: tuple[Event, ...] = ()
        """The events that wait in the cache and are already folded into `_residency`."""
        self._inserts_watched = 0
        """How many inserts were watched for snapshots that change with the cache."""
        if rate > 0:
            self._last = cache.snapshot()
            laws = [law for law in laws if law.is_judged_under(self._last.profile)]
            if self._last.events[:1] != (AllBlocksCleared(),) and not new:
                self._start_from(self._last)
        self._checker = LawChecker(laws, events=cache.config.events, thorough=thorough)
        self._checks_answers = any(law.law_id == ANSWER_LAW for law in laws)

    def left_out(self, most_receipts: int) -> None:
        """Note that calls bypassed the guard, and forget all but the newest receipts."""
        self._last = self._arrived = None
        if len(self._given) > most_receipts:
            self._given = set(nlargest(most_receipts // 2, self._given))

    def took(self, events: tuple[Event, ...]) -> None:
        """Note events that were taken past the guard."""
        self._taken.extend(self._unfolded(events))
        self._folded = ()

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often each law was exercised: its premise met in a step without violation."""
        return self._checker.laws_exercised

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes of a slot."""
        operation = Read(component, medium, slot)
        try:
            data = self._cache.read(component, medium, slot)
        except CacheError as error:
            self._judge_access(operation, Refused(error))
            raise
        require_answer("read", data)
        self._judge_access(operation, BytesRead(data))
        return data

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot that a request holds."""
        operation = Write(component, slot, data)
        try:
            self._cache.write(component, slot, data)
        except CacheError as error:
            self._judge_access(operation, Refused(error))
            raise
        if self._rate > 0:
            self._written.wrote(component, slot, data, self._cache.snapshot)
        self._judge_access(operation, Done())

    def arrived(self) -> tuple[Completion, ...]:
        """Return the transfers that can settle; checked with the call that settles them."""
        self._arrived = arrived = super().arrived()
        return arrived

    def _judge_access(self, operation: Read | Write, outcome: Refused | BytesRead | Done) -> None:
        """Check that a read or a write was refused if it had to be, if the state is known.

        Neither changes the state, so the last snapshot is the state before and after.
        """
        if self._last is None:
            return
        stamps: tuple[Stamp, ...] = ()
        reads = isinstance(operation, Read) and operation.medium is CPU
        if reads and isinstance(outcome, BytesRead):
            where = operation.component, operation.slot
            stamps = self._written.stamp_on_host(self._last, *where, outcome.data)
        step = Step(self._last, operation, outcome, self._last, (), stamps)
        found = self._checker.check_access(step)
        if found:
            refusal = outcome.error if isinstance(outcome, Refused) else None
            words = "" if self._on_violation is not None else explain(found, step, self.steps)
            self._report(found, step, words, refusal)

    def _judge_call(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        """Call, and judge the operation if it is in the sample."""
        arrived, self._arrived = self._arrived, None
        if self._rate < 1.0 and self._random.random() >= self._rate:
            self._last = None
            result = call_cache(call, *args, **kwargs)
            if result.refusal is None:
                self._follow(operation, result.answer)
            if self._store is not None:
                self._store.calls()  # They are those of this operation, and not of the next.
        else:
            before = self._last
            if before is None:
                before = self._cache.snapshot()
                require_answer("snapshot", before)
            watched = self._text_of(before, operation)
            was_judged, self._last = self._last is not None, None
            result = call_cache(call, *args, **kwargs)
            self._judge(before, operation, result, watched, arrived, was_judged=was_judged)
        if result.refusal is not None:
            raise result.refusal
        return result.answer  # type: ignore[return-value]  # It was not refused.

    def _follow(self, operation: Operation, answer: object) -> None:
        """Record the bytes and events of a served operation, judged or not."""
        if self._rate == 0:
            return
        if isinstance(operation, Free):
            self._written.freed(operation.slots)
        elif isinstance(operation, Insert) and isinstance(answer, Inserted):
            self._written.inserted(operation, answer)
        elif isinstance(operation, InsertHost) and isinstance(answer, HostInserted):
            self._written.inserted_host(operation.key, operation.payload, answer)
        elif isinstance(operation, Reset):
            self._written.cleared()
        elif isinstance(operation, TakeEvents) and isinstance(answer, tuple):
            self.took(answer)

    def _follow_fetch(self, operation: Operation, before: Snapshot) -> None:
        """Record the bytes of the pages that a served end of a prefetch placed."""
        order = prefetch_of(before, operation) if isinstance(operation, EndPrefetch) else None
        if order is not None and self._store is not None:
            self._written.fetched(self._store.fetched(order))

    def _judge(
        self,
        before: Snapshot,
        operation: Operation,
        result: CallResult[Answer],
        watched: str | None,
        arrived: tuple[Completion, ...] | None,
        *,
        was_judged: bool,
    ) -> None:
        """Check the laws of the step, in which a call had this result. Raises: ViolationError.

        `watched` is the state before as text, and `was_judged` says whether the operation before
        was judged, too.
        """
        earlier = (*self._taken, *self._unfolded(before.events))
        try:
            if result.refusal is None:
                require_answer(METHODS[type(operation)], result.answer)
                self._follow(operation, result.answer)
                self._follow_fetch(operation, before)
            step = self._capture.step(before, operation, result.outcome, self._given, arrived)
            if watched is not None:
                _require_unchanged(before, watched, operation)
        except AnswerError as wrong:
            self._report_answer(wrong, before, operation)
            return
        stream = Stream(self._residency, (*earlier, *step.events), step.after, self._begins)
        self._begins = False
        self.judged += 1
        found = self._checker.check(step, stream)
        words = ""
        if found and self._on_violation is None:
            unjudged = () if was_judged else (before, Stream(self._residency, earlier, before))
            words = explain(found, step, self.steps, _broken_in(found, *unjudged))
        if stream.events:
            stream.folded.settle()
        self._taken.clear()
        self._folded = step.after.events
        if isinstance(result.outcome, Receipt):
            self._given.add(result.outcome.receipt_id)
        if not found or not breaks_shape(found):
            self._written.forget(step)
            self._last = step.after
        if found:
            self._report(found, step, words, result.refusal)

    def _text_of(self, before: Snapshot, operation: Operation) -> str | None:
        """Return a state as text, before the first inserts; they change most of it."""
        if not isinstance(operation, Insert) or self._inserts_watched >= INSERTS_WATCHED:
            return None
        self._inserts_watched += 1
        return repr(before)

    def _start_from(self, state: Snapshot) -> None:
        """Take the pages of a state as what the events said, where earlier events are lost."""
        self._residency = Residency(residency_of(state))
        self._taken.clear()
        self._folded = state.events

    def _report_answer(self, wrong: AnswerError, before: Snapshot, operation: Operation) -> None:
        """Report an answer of a wrong type, and judge the next operation from its own state.

        Raises: ViolationError, or AnswerError if the law of answers is not checked.
        """
        if not self._checks_answers:
            raise wrong
        found = answer_violation(wrong, self.steps, in_words(operation))
        step = Step(before, operation, Done(), before, ())
        self._report(found.violations, step, str(found), None)
        state = self._cache.snapshot()
        require_answer("snapshot", state)
        self._start_from(state)

    def _report(
        self, found: Sequence[Violation], step: Step, words: str, refusal: CacheError | None
    ) -> None:
        """Pass violations to `on_violation` or `on_should`. Raises: ViolationError if neither."""
        if self._on_violation is not None:
            for violation in found:
                self._on_violation(violation, step)
        elif found:
            operation = type(step.operation).__name__
            error = ViolationError(words, found, operation, step.outcome, step)
            raise_violations(error, self._on_should, refusal)

    def _read_stamps(self, key: Key, matched: Matched) -> tuple[Stamp, ...]:
        """Return the bytes of the slots that a match returned, if they are known."""
        if not self._reads:
            return ()
        return self._written.stamps(key, matched, self._cache.config, self._cache.read)

    def _unfolded(self, waiting: tuple[Event, ...]) -> tuple[Event, ...]:
        """Return the events that wait and are not folded: all, where they replace earlier ones."""
        known = len(self._folded)
        return waiting[known:] if waiting[:known] == self._folded else waiting


INSERTS_WATCHED = 3
"""How many inserts are watched for snapshots that change with the cache: it takes time."""


def _require_unchanged(before: Snapshot, text: str | None, operation: Operation) -> None:
    """Refuse a snapshot that shares its data with the cache. Raises: AnswerError."""
    if text is not None and repr(before) != text:
        raise AnswerError(
            "snapshot answered a Snapshot that shares data with the cache: "
            f"{METHODS[type(operation)]} changed one that was taken before it; it must be a copy"
        )


def _broken_in(found: Collection[Violation], *subjects: Subject) -> set[str]:
    """Return the ids of the broken laws that are also broken in these subjects."""
    laws = [violation.law for violation in found]
    return {violation.law.law_id for each in subjects for violation in judge(each, laws)}
