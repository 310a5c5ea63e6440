"""The sampler: judges a sample of the calls that an engine makes of a cache, and never fails one.

Each caller gets what the cache answered, whatever the judge does, and the sampler counts what it
did. It judges a call only if no other is in the cache, and if the time for judging is not spent.
"""

from __future__ import annotations

import logging
import os
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from math import log1p
from random import Random
from time import perf_counter
from typing import cast

from attrs import frozen

from kvcanon.conformance.errors import UsageError, shown
from kvcanon.conformance.judge.by_states.guard import GuardedCache
from kvcanon.conformance.judge.call_gate import CallGate
from kvcanon.conformance.judge.engine_call import Clock, EngineCall, HeardCache
from kvcanon.conformance.judge.guards import OnViolation
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event
from kvcanon.spec.law import Violation
from kvcanon.spec.views import Step

MOST_TAKEN = 100_000
"""Events that are kept between two judged calls; after more, the judge begins anew."""
MOST_RECEIPTS = 1 << 16
"""Ids of receipts that are kept, to know one that is given twice."""
MOST_SKIPPED = 1e18
"""Calls between two that are judged."""
TAKE_EVENTS = "take_events"
_FAILURES = (Exception, CancelledError)
"""What the judge or a handler may raise. It runs between two steps of a task, where nobody cancels
it: its CancelledError is an error of its own, and would be taken for the end of a request."""
_LOG = logging.getLogger(__name__)


@frozen
class GuardCounts:
    """What a guard in production has done since it was made."""

    calls: int
    judged: int
    postponed: int
    """Calls that were drawn to be judged, and were not: the time for it was spent."""
    overlapped: int
    """Calls that were drawn to be judged, and were not: others ran at the same time."""
    errors: int
    """Errors of the judge and of `on_violation`, of which no caller heard."""
    violations: Mapping[str, int]
    """How often each law was broken, by its id."""
    seconds: float
    """Time of callers that judging took."""
    longest_seconds: float
    """The most that it took of one call."""


class CallSampler:
    """Makes the calls of an engine, and judges a sample of them."""

    def __init__(
        self,
        cache: Cache,
        make: Callable[[Cache, OnViolation], GuardedCache],
        rate: float,
        budget: float | None,
        *,
        seed: int = 0,
        on_violation: OnViolation | None = None,
        laws_checked: Collection[str] = (),
        clock: Clock = perf_counter,
    ) -> None:
        """`make` makes the judge of a cache, at the first judged call and when it begins anew."""
        self.cache, self.laws_checked = cache, laws_checked
        self._make, self._rate, self._budget = make, rate, budget
        self._random, self._clock = Random(seed), clock
        self._on_violation = on_violation
        self._gate = CallGate()
        self._heard = HeardCache(cache)
        self._judge: GuardedCache | None = None
        """None until the next judged call, if it begins anew."""
        self._found: list[tuple[Violation, Step | None]] = []
        """What was found in the call that is judged."""
        self._taken = 0
        """Events that were taken since the last judged call."""
        self._pid = os.getpid()
        """The process that made the judge: a fork may come in the middle of its work."""
        self._judged_at = self._not_before = float("-inf")
        self._skips = self._drawn()
        self._calls = self._judged = self._postponed = self._overlapped = self._errors = 0
        self._violations: Counter[str] = Counter()
        self._exercised: Counter[str] = Counter()
        """How often judges exercised each law that were given up."""
        self._seconds = self._longest = 0.0

    @property
    def counts(self) -> GuardCounts:
        """What was done."""
        with self._gate.lock:
            return GuardCounts(
                self._calls,
                self._judged,
                self._postponed,
                self._overlapped,
                self._errors,
                dict(self._violations),
                self._seconds,
                self._longest,
            )

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often each law was exercised."""
        with self._gate.lock:
            exercised = Counter(self._exercised)
            if self._judge is not None:
                exercised.update(self._judge.laws_exercised)
            return dict(exercised)

    # Calls.

    def pass_through(
        self, method: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Make a call that is no operation, and may change the cache for all that is known."""
        with self._gate.lock:
            self._gate.enter()
        try:
            return method(*args, **kwargs)
        finally:
            with self._gate.lock:
                self._gate.leave()

    def operate(
        self,
        name: str,
        method: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Make the call of an operation, which may be drawn to be judged."""
        gate = self._gate
        with gate.lock:
            is_nested, is_alone = gate.is_inside, gate.is_empty
            gate.enter()
            is_judged = not is_nested and self._draws(is_alone=is_alone)
            if is_judged:
                gate.begin_judging()
        try:
            if is_judged:
                return self._judged_call(EngineCall(name, method, args, kwargs, self._clock))
            if name == TAKE_EVENTS:
                return self._take(method, args, kwargs)
            return method(*args, **kwargs)
        finally:
            with gate.lock:
                gate.leave()

    def _draws(self, *, is_alone: bool) -> bool:
        """Count a call, and say whether it is judged."""
        self._calls += 1
        if self._skips > 0:
            self._skips -= 1
            return False
        self._skips = self._drawn()
        if not is_alone:
            self._note_overlapped()
            return False
        now = self._clock()
        # A clock that was set back says nothing about the time since then.
        if self._judged_at <= now < self._not_before:
            self._note_postponed()
            return False
        return True

    def _drawn(self) -> int:
        """How many calls are not judged before the next that is."""
        if self._rate == 1:
            return 0
        return int(min(MOST_SKIPPED, log1p(-self._random.random()) / log1p(-self._rate)))

    def _take(
        self, method: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Let a client take events, and note them for the judge."""
        with self._gate.lock:
            self._gate.takers += 1
            is_first = self._gate.takers == 1
        events: object = None
        try:
            events = method(*args, **kwargs)
        finally:
            with self._gate.lock:
                self._gate.takers -= 1
                # Of two that take at one time nobody knows which events came first, and of a call
                # that was broken off not which are gone.
                if is_first and self._gate.takers == 0 and isinstance(events, tuple):
                    self._took(events)
                else:
                    self._give_up()
        return events

    def _judged_call(self, call: EngineCall) -> object:
        """Make a call and judge it; what the cache did is what the caller gets."""
        begin = self._clock()
        try:
            if self._is_judged(call):
                self._report(self._found)
        finally:
            self._found = []
            self._end(begin, call.seconds)
        return call.deliver()

    def _is_judged(self, call: EngineCall) -> bool:
        """Judge a call, and say whether what was found can be relied on."""
        gate, is_judged, was_disturbed = self._gate, False, True
        try:
            is_judged = self._is_watched(call)
        finally:
            with gate.lock:
                was_disturbed = gate.end_judging()
                if was_disturbed:
                    self._give_up()
                elif is_judged:
                    self._judged += 1
        if was_disturbed:
            self._note_overlapped()
        return is_judged and not was_disturbed

    def _is_watched(self, call: EngineCall) -> bool:
        """Let the judge make a call, and say whether it came to its end."""
        self._heard.call = call
        try:
            judge = self._ready(call)
            getattr(judge, call.name)(*call.args, **call.kwargs)
        except _FAILURES as error:
            if isinstance(error, CacheError) and error is call.raised:
                judge.left_out(MOST_RECEIPTS)
                return True
            if error is not call.raised:
                self._failed(error)
            self._give_up()
            return False
        except BaseException as error:
            self._give_up()  # It was interrupted between two of its steps.
            if error is call.raised:
                return False
            raise
        finally:
            self._heard.call = None
        judge.left_out(MOST_RECEIPTS)
        return True

    def _end(self, begin: float, call_seconds: float) -> None:
        """Count the time that judging took, and until when there is no more of it."""
        now = self._clock()
        took = max(0.0, now - begin - call_seconds)
        with self._gate.lock:
            self._seconds += took
            self._longest = max(self._longest, took)
            self._judged_at = now
            if self._budget is not None:
                self._not_before = now + took / self._budget

    # The judge.

    def _ready(self, call: EngineCall) -> GuardedCache:
        """The judge of a call. Raises: UsageError: it cannot be judged."""
        for value in (*call.args, *call.kwargs.values()):
            if isinstance(value, Iterator):
                raise UsageError(
                    f"{call.name} got {shown(value)}, which can be read only once, and so not by "
                    "the judge; pass a tuple"
                )
        judge = self._judge if self._pid == os.getpid() and self._taken <= MOST_TAKEN else None
        if judge is None:
            self._give_up()
            judge = self._make(cast("Cache", self._heard), self._note)
            self._judge, self._pid = judge, os.getpid()
        self._taken = 0
        return judge

    def _took(self, events: tuple[Event, ...]) -> None:
        """Note for the judge which events a client took."""
        if self._gate.is_judging:
            return  # The judged call is disturbed, so that the judge begins anew.
        self._taken += len(events)
        if self._taken > MOST_TAKEN:
            self._give_up()
        elif self._judge is not None:
            self._judge.took(events)

    def _give_up(self) -> None:
        """Let the judge begin anew."""
        with self._gate.lock:
            if self._judge is not None:
                self._exercised.update(self._judge.laws_exercised)
                self._judge = None

    # What is said.

    def _note(self, violation: Violation, step: Step | None) -> None:
        self._found.append((violation, step))

    def _report(self, found: Sequence[tuple[Violation, Step | None]]) -> None:
        """Count violations, and log them or pass them on."""
        for violation, step in found:
            law_id = violation.law.law_id
            with self._gate.lock:
                self._violations[law_id] += 1
                times = self._violations[law_id]
            if self._on_violation is None:
                if _is_told(times):
                    _say(logging.ERROR, "%s (%d times)", violation, times)
                continue
            try:
                self._on_violation(violation, step)
            except _FAILURES as error:
                self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """Count an error of the judge or of a handler."""
        with self._gate.lock:
            self._errors += 1
        if _is_told(self._errors):
            words = "the guard failed, and the call did not (%d)"
            _say(logging.WARNING, words, self._errors, error=error)

    def _note_postponed(self) -> None:
        self._postponed += 1
        if self._postponed == 1:
            _say(
                logging.WARNING,
                "judging takes more than %.1f %% of the time: fewer calls are judged than the rate "
                "of %g says",
                100 * (self._budget or 1),
                self._rate,
            )

    def _note_overlapped(self) -> None:
        self._overlapped += 1
        if self._overlapped == 1:
            _say(
                logging.WARNING,
                "calls run at the same time, of several threads or one inside the other: fewer are "
                "judged than the rate of %g says",
                self._rate,
            )


def _is_told(count: int) -> bool:
    """Whether something is logged: the first, second, fourth, eighth time."""
    return count & (count - 1) == 0


def _say(level: int, words: str, *values: object, error: BaseException | None = None) -> None:
    """Log a line; filters and handlers of the engine's log may raise."""
    with suppress(*_FAILURES):
        _LOG.log(level, words, *values, exc_info=error)
