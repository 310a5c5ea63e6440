"""The guard in production: judges a sample of an engine's calls, and never fails one.

The other guards are for tests: their violations and their errors reach the caller. This one gives
each caller what the cache answered, whatever the judge does. It has a lock, a bound of time, and
counts what it did.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from inspect import iscoroutinefunction
from math import log
from random import Random
from threading import RLock
from time import perf_counter
from typing import Any, TypeAlias, cast

from attrs import define, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.by_states.guard import GuardedCache, guard_states
from kvcanon.conformance.judge.guards import Laws, OnViolation, chosen_laws
from kvcanon.conformance.protocol.adapter import Adapter, WatchedCopies, subject_of
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.law import Need, Violation
from kvcanon.spec.operations import METHODS
from kvcanon.spec.views import Step

Clock: TypeAlias = Callable[[], float]

MOST_TAKEN = 100_000
"""Events that are kept between two judged calls; after more, the judge begins anew."""
MOST_RECEIPTS = 1 << 16
"""Ids of receipts that are kept, to know one that is given twice."""
_LOG = logging.getLogger(__name__)


@frozen
class GuardCounts:
    """What a guard in production has done since it was made."""

    calls: int
    judged: int
    postponed: int
    """Calls that were drawn to be judged, and were not: the time for it was spent."""
    errors: int
    """Errors of the judge, of which no caller heard."""
    violations: Mapping[str, int]
    """How often each law was broken, by its id."""
    seconds: float
    """Time of callers that judging took."""
    longest_seconds: float
    """The most that it took of one call."""


@define(eq=False)
class _Heard:
    """A cache that the judge calls, and what the last operation on it did."""

    cache: Any
    called: bool = False
    answer: object = None
    raised: BaseException | None = None
    seconds: float = 0.0
    clock: Clock = perf_counter

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        found = getattr(self.cache, name)
        if name not in _OPERATIONS or not callable(found):
            return found

        def call(*args: object, **kwargs: object) -> object:
            self.called, begin = True, self.clock()
            try:
                self.answer = found(*args, **kwargs)
            except BaseException as error:
                self.raised = error
                raise
            finally:
                self.seconds = self.clock() - begin
            return self.answer

        return call

    def forget(self) -> None:
        """Forget the last operation."""
        self.called, self.answer, self.raised, self.seconds = False, None, None, 0.0


_OPERATIONS = frozenset(METHODS.values())


def production_guard(
    cache: TreeCache,
    rate: float = 0.01,
    *,
    budget: float | None = 0.03,
    seed: int = 0,
    laws: Laws | None = None,
    on_violation: OnViolation | None = None,
    copies: WatchedCopies | None = None,
    hides: Collection[Need] = (),
    adapter: Adapter | None = None,
) -> ProductionGuard:
    """Wrap a cache with snapshots, so that a share of its calls is judged while it serves.

    No violation and no error of the judge reaches a caller. Calls from several threads wait for
    each other. Make every call through the wrapper.

    Args:
        cache: A cache by prefixes with `snapshot`. Its methods must not be coroutines.
        rate: The share of calls that is judged, if the budget allows it.
        budget: The share of time that judging may take. After a judged call none is judged until
            so much time is over that its own is no larger a share. With None there is no bound.
        seed: Decides which calls are judged.
        laws: The laws to check, or their ids; all that can be checked if None.
        on_violation: Called with each violation and its step; logged if None.
        copies: Says how copies end, and enables the laws that need it.
        hides: What the snapshots do not show truthfully; no law that needs it is checked.
        adapter: What the cache declares: what it hides.

    Raises: UsageError: a share that is none, an unknown law, or a cache without snapshots.
    """
    for name, share in (("rate", rate), ("budget", budget)):
        if share is not None and not 0 < share <= 1:
            raise UsageError(f"{name} is {share:g}; it is a share of more than 0, and at most 1")
    coroutines = [each for each in _OPERATIONS if iscoroutinefunction(getattr(cache, each, None))]
    if coroutines:
        raise UsageError(
            f"{min(coroutines)} is a coroutine; guard the cache that it calls, whose calls return"
        )
    subject = subject_of(cache, copies)
    if Need.SNAPSHOT not in subject.shows:
        raise UsageError(
            "the cache has no `snapshot`, without which each call must be judged; `guard` does "
            "that, and is for tests"
        )
    hidden = {*hides, *(adapter.hides if adapter is not None else ())}
    kept = [law for law in chosen_laws(laws) if law.needs <= subject.shows - hidden]

    def make(heard: Cache, note: OnViolation) -> GuardedCache:
        return guard_states(heard, 1.0, 0, kept, note, copies=copies)

    return ProductionGuard(subject.cache, make, rate, budget, seed=seed, on_violation=on_violation)


class ProductionGuard:
    """A cache of which a sample of calls is judged. `Cache` documents its methods."""

    def __init__(
        self,
        cache: Cache,
        make: Callable[[Cache, OnViolation], GuardedCache],
        rate: float,
        budget: float | None,
        *,
        seed: int = 0,
        on_violation: OnViolation | None = None,
        clock: Clock = perf_counter,
    ) -> None:
        """`make` makes the judge of a cache, at the first judged call and when it begins anew."""
        self._cache, self._make, self._rate, self._budget = cache, make, rate, budget
        self._random, self._clock = Random(seed), clock
        self._on_violation = on_violation
        self._lock = RLock()
        self._inside = False
        """Whether a call is being made, from which the cache's engine may call it again."""
        self._heard = _Heard(cache, clock=clock)
        self._judge: GuardedCache | None = None
        """None until the next judged call, if it begins anew."""
        self._taken = 0
        """Events that were taken since the last judged call."""
        self._not_before = float("-inf")
        self._skips = self._drawn()
        self._calls = self._judged = self._postponed = self._errors = 0
        self._violations: Counter[str] = Counter()
        self._seconds = self._longest = 0.0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        found = getattr(self._cache, name)
        if not callable(found):
            return found
        call = self._operation(name, found) if name in _OPERATIONS else self._locked(found)
        # It is found at once the next time.
        setattr(self, name, call)
        return call

    @property
    def counts(self) -> GuardCounts:
        """What the guard has done."""
        with self._lock:
            return GuardCounts(
                self._calls,
                self._judged,
                self._postponed,
                self._errors,
                dict(self._violations),
                self._seconds,
                self._longest,
            )

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often each law was exercised since the judge last restarted."""
        judge = self._judge
        return {} if judge is None else judge.laws_exercised

    # Calls.

    def _locked(self, found: Callable[..., object]) -> Callable[..., object]:
        """A call that is no operation, and waits for those that are."""

        def call(*args: object, **kwargs: object) -> object:
            with self._lock:
                return found(*args, **kwargs)

        return call

    def _operation(self, name: str, found: Callable[..., object]) -> Callable[..., object]:
        """An operation, which may be drawn to be judged."""
        takes_events = name == "take_events"

        def call(*args: object, **kwargs: object) -> object:
            with self._lock:
                if self._inside:
                    return found(*args, **kwargs)
                self._inside = True
                try:
                    self._calls += 1
                    if self._skips > 0 or self._is_too_soon():
                        self._skips -= 1
                        answer = found(*args, **kwargs)
                        if takes_events:
                            self._took(answer)
                        return answer
                    self._skips = self._drawn()
                    return self._judged_call(name, found, args, kwargs)
                finally:
                    self._inside = False

        return call

    def _drawn(self) -> int:
        """How many calls are not judged before the next that is."""
        if self._rate == 1:
            return 0
        return int(log(1.0 - self._random.random()) / log(1.0 - self._rate))

    def _is_too_soon(self) -> bool:
        """Whether the time for judging is spent; the call that was drawn is then left out."""
        if self._clock() >= self._not_before:
            return False
        self._postponed += 1
        if self._postponed == 1:
            _LOG.warning(
                "judging takes more than %.1f %% of the time: fewer calls are judged than the rate "
                "of %g says",
                100 * (self._budget or 1),
                self._rate,
            )
        self._skips = self._drawn() + 1
        return True

    def _judged_call(
        self,
        name: str,
        found: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Make a call and judge it; what the cache did is what the caller gets."""
        heard, begin = self._heard, self._clock()
        heard.forget()
        try:
            answer: object = getattr(self._ready(), name)(*args, **kwargs)
        except Exception as error:
            if error is heard.raised:
                raise
            self._failed(error)
            if heard.raised is not None:
                raise heard.raised from None
            return heard.answer if heard.called else found(*args, **kwargs)
        except BaseException:
            self._judge = None  # It was interrupted between two of its steps.
            raise
        else:
            self._judged += 1
            return answer
        finally:
            now = self._clock()
            took = max(0.0, now - begin - heard.seconds)
            self._seconds += took
            self._longest = max(self._longest, took)
            if self._budget is not None:
                self._not_before = now + took / self._budget
            self._taken = 0

    # The judge.

    def _ready(self) -> GuardedCache:
        """The judge, which knows that calls were left out."""
        if self._judge is None or self._taken > MOST_TAKEN:
            self._judge = self._make(cast("Cache", self._heard), self._note)
        self._judge.left_out(MOST_RECEIPTS)
        return self._judge

    def _took(self, events: object) -> None:
        """Note for the judge which events a client took."""
        if not isinstance(events, tuple):
            return
        self._taken += len(events)
        if self._judge is not None and self._taken <= MOST_TAKEN:
            self._judge.took(events)
        elif self._judge is not None:
            self._judge = None

    def _note(self, violation: Violation, step: Step | None) -> None:
        self._violations[violation.law.law_id] += 1
        if self._on_violation is None:
            _LOG.error("%s", violation)
        else:
            self._on_violation(violation, step)

    def _failed(self, error: Exception) -> None:
        """Count an error of the judge, which begins anew."""
        self._errors += 1
        self._judge = None
        if self._errors & (self._errors - 1) == 0:  # The first, second, fourth, eighth one.
            _LOG.warning(
                "the guard failed, and the call did not (%d)", self._errors, exc_info=error
            )
