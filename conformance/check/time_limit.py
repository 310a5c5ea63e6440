"""The time limit of an action: finds a cache that never answers, instead of hanging with it.

The limit does not measure speed. Python code is interrupted, here. Native code is not, nor what
catches every exception: a process of the judge ends such a process (`workers/`). A cache behind
`pipe:` has limits of its own, in `protocol/pipe.py`: an answer may take 10 seconds, the hello 20.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.notes import NOTE

ACTION_SECONDS = 20.0
"""An action with all law checks takes about a thousandth of this on a small cache."""
VARIABLE = "KVCANON_ACTION_SECONDS"
"""The variable of the environment that sets another limit, for slow caches."""
AGAIN_SECONDS = 1.0
"""The time to the next interruption, if Python lost the first."""


class CacheSilent(BaseException):
    """An action did not end in time. It is no `Exception`, so that a cache does not catch it."""


class TimeLimit:
    """The limit of an action in this process."""

    def __init__(self) -> None:
        self.shorter: float | None = None
        """A limit for cases that are known to hang, which are played to make them small."""

    @property
    def seconds(self) -> float:
        """The limit in seconds. Raises: UsageError: the environment sets a limit that is none."""
        return self.usual if self.shorter is None else min(self.shorter, self.usual)

    @property
    def usual(self) -> float:
        """The limit of the environment, or else ACTION_SECONDS. Raises: UsageError."""
        given = os.environ.get(VARIABLE)
        if given is None:
            return ACTION_SECONDS
        try:
            seconds = float(given)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            raise UsageError(f"{VARIABLE} is {given!r}; give seconds, as {ACTION_SECONDS:g}")
        return seconds

    @contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Set a shorter limit inside."""
        before, self.shorter = self.shorter, seconds
        try:
            yield
        finally:
            self.shorter = before


LIMIT = TimeLimit()


def within(seconds: float, do: Callable[[], object]) -> None:
    """Call `do`, and raise CacheSilent if it takes longer; the import of a module renews the limit.

    Outside the main thread, inside native code, and if another timer is set, the process that
    watches this one alone keeps the limit, if there is one.
    """
    NOTE.end_copy()
    NOTE.limit(seconds)
    try:
        _interrupted(seconds, do)
    finally:
        NOTE.limit(None)


def _interrupted(seconds: float, do: Callable[[], object]) -> None:
    """Call `do` under a timer."""
    free = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not free or signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
        do()
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        if NOTE.late:
            raise CacheSilent(f"no answer within {seconds:g} s")

    earlier = signal.signal(signal.SIGALRM, interrupt)
    # The timer repeats: Python drops an exception that is raised in a callback, as in a finalizer.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        do()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
