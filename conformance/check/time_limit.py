"""The time limit of an action: finds a cache that never answers, instead of hanging with it.

The limit does not measure speed. Python code is interrupted, here. Native code is not, nor what
catches every exception: a process of the judge ends such a process (`workers/`). A cache behind
`pipe:` has limits of its own, in `protocol/pipe.py`: an answer may take 10 seconds, the hello 20.

To load a cache and to make one has the same limit, whatever their code does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from kvcanon.conformance.errors import CacheSilent, UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import PIPE, load_adapter
from kvcanon.conformance.workers.notes import NOTE

Made = TypeVar("Made")

ACTION_SECONDS = 20.0
"""An action with all law checks takes about a thousandth of this on a small cache."""
VARIABLE = "KVCANON_ACTION_SECONDS"
"""The variable of the environment that sets another limit, for slow caches."""
AGAIN_SECONDS = 1.0
"""The time to the next interruption, if Python lost the first."""
SHORT_SECONDS = 2.0
"""The limit in plays of a case that is known to hang."""


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


def within(seconds: float, do: Callable[[], Made]) -> Made:
    """Call `do`, and raise CacheSilent if it takes longer; the import of a module renews the limit.

    Outside the main thread, inside native code, and if another timer is set, the process that
    watches this one alone keeps the limit, if there is one.
    """
    NOTE.end_copy()
    NOTE.limit(seconds)
    try:
        return _interrupted(seconds, do)
    finally:
        NOTE.limit(None)


def _interrupted(seconds: float, do: Callable[[], Made]) -> Made:
    """Call `do` under a timer."""
    free = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not free or signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
        return do()

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        if NOTE.late:
            raise CacheSilent(f"no answer within {seconds:g} s")

    earlier = signal.signal(signal.SIGALRM, interrupt)
    # The timer repeats: Python drops an exception that is raised in a callback, as in a finalizer.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        return do()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


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
    return within(LIMIT.seconds, lambda: _loaded(name))


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
        return within(LIMIT.seconds, make)
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
