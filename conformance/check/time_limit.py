"""The time limit of an action: finds a cache that never answers, instead of hanging with it.

The limit does not measure speed, nor the machine: it counts the cache's own time
(`workers/allowance.py`). Python code is interrupted, here. Native code is not, nor what catches
every exception: a process of the judge ends such a process (`workers/`). A cache behind `pipe:` has
limits of its own, in `protocol/pipe.py`.

To make a cache has the same limit, whatever its code does. To load one has a longer one.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType
from typing import TypeVar

from kvcanon.conformance.errors import CacheSilent, UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import PIPE, load_adapter
from kvcanon.conformance.workers.allowance import Allowance, OwnWait, Passed, usual_seconds
from kvcanon.conformance.workers.notes import NOTE

Made = TypeVar("Made")

IMPORT_TIMES = 5
"""How many times the limit of an action the import of one module may compute."""
AGAIN_SECONDS, AGAIN_SHARE = 1.0, 0.1
"""The time from one look at the clock to the next: the smaller of it and a share of the limit."""
SHORT_SECONDS, SHORT_WAITING_SECONDS = 2.0, 5.0
"""The limits in plays of a case that is known to hang."""


class TimeLimit:
    """The limit of an action in this process."""

    def __init__(self) -> None:
        self.shorter: tuple[float, float] | None = None
        """Limits for cases that are known to hang, which are played to make them small: of
        processor time, and of waiting."""

    @property
    def action(self) -> Allowance:
        """The limits of an action. Raises: UsageError: the environment sets none."""
        most, most_waiting = self.shorter or (inf, inf)
        return Allowance(usual_seconds(), most=most, most_waiting=most_waiting)

    @contextmanager
    def at_most(self, processor: float, waiting: float) -> Iterator[None]:
        """Set shorter limits in the block."""
        before, self.shorter = self.shorter, (processor, waiting)
        try:
            yield
        finally:
            self.shorter = before


LIMIT = TimeLimit()


def within(allowed: Allowance, do: Callable[[], Made]) -> Made:
    """Call `do`, and raise CacheSilent if it passes a limit; an import renews the limits.

    Outside the main thread, inside native code, and if another timer is set, the process that
    watches this one alone keeps the limits, if there is one. It alone knows whether this process
    waits of its own accord; without it this process asks the system.
    """
    NOTE.end_copy()
    NOTE.limit(allowed)
    try:
        return _interrupted(allowed, do)
    finally:
        NOTE.limit(None)


class _Looks:
    """Looks at the clock when a timer ends, and interrupts what is over its limit."""

    def __init__(self, allowed: Allowance) -> None:
        self._allowed = allowed
        self._wait: OwnWait | None = None
        self.over = False
        """Whether nothing is to be interrupted any more."""

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        """Handle the signal of the timer. Raises: CacheSilent."""
        if self.over:
            return
        if NOTE.over:
            raise CacheSilent(self._allowed.text(Passed.PROCESSOR))
        if NOTE.shared:
            return
        self._wait = self._wait or OwnWait()
        if self._wait.seconds >= self._allowed.waiting:
            raise CacheSilent(self._allowed.text(Passed.WAITING))


def _interrupted(allowed: Allowance, do: Callable[[], Made]) -> Made:
    """Call `do` under a timer."""
    free = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not free:
        return do()
    # By the clock, signals would come where nothing is wrong; native code may not expect them.
    timer, signaled = signal.ITIMER_PROF, signal.SIGPROF
    if not NOTE.shared:
        timer, signaled = signal.ITIMER_REAL, signal.SIGALRM
    if signal.getitimer(timer) != (0.0, 0.0):
        return do()
    looks = _Looks(allowed)
    first = min(allowed.processor, allowed.waiting)
    earlier = signal.signal(signaled, looks)
    # The timer repeats: nothing may be over yet, and Python drops an exception that is raised in a
    # callback, as in a finalizer or after a collection of garbage.
    signal.setitimer(timer, first, min(AGAIN_SECONDS, first * AGAIN_SHARE))
    try:
        try:
            return do()
        finally:
            # One that comes just before this is raised, and all is restored below.
            looks.over = True
    finally:
        signal.setitimer(timer, 0)
        signal.signal(signaled, earlier)


# Caches within the limit.

LOADING = b"loading"
"""The place of a process that imports a cache."""


class NotMade(UsageError):
    """A factory gave no answer, or raised what is no `Exception`."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name
        """The class of what was raised."""

    def __reduce__(self) -> tuple[type[NotMade], tuple[str, str]]:
        return NotMade, (self.name, str(self))


def adapter_in_time(name: str) -> Adapter:
    """Load an adapter. Raises: UsageError, also if its module ends or blocks its process.

    Only a process that is watched has a limit; a child behind `pipe:` has a limit of its own.
    """
    if name.startswith(PIPE) or not NOTE.shared:
        return _loaded(name)
    NOTE.place(LOADING)
    return within(Allowance(usual_seconds(), IMPORT_TIMES), lambda: _loaded(name))


def _loaded(name: str) -> Adapter:
    try:
        return load_adapter(name)
    except BaseException as error:
        if isinstance(error, Exception) or is_users_interrupt(error):
            raise
        words = str(error) if isinstance(error, CacheSilent) else describe_exception(error)
        raise UsageError(f"{name} cannot be imported: {words}") from error


def made_in_time(make: Callable[[], Made]) -> Made:
    """Make a cache. Raises: as `make`, and NotMade, so that nothing but an `Exception` leaves."""
    NOTE.making()
    try:
        return within(LIMIT.action, make)
    except CacheSilent as silence:
        raise NotMade(CacheSilent.__name__, f"{silence}, while it was made") from silence
    except BaseException as error:
        if isinstance(error, Exception) or is_users_interrupt(error):
            raise
        name, words = type(error).__name__, describe_exception(error)
        raise NotMade(name, f"its factory raised {words}") from error


def is_users_interrupt(error: BaseException) -> bool:
    """Whether the user interrupted. A worker ignores that, so that there it is the cache's own."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return isinstance(error, KeyboardInterrupt) and not ignored
