"""The time limit of an action: finds a cache that never answers, instead of hanging with it.

The limit does not measure speed. A cache in a child process has limits of its own, in
`protocol/pipe.py`: an answer may take 10 seconds, the hello 20.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

ACTION_SECONDS = 20.0
"""An action with all law checks takes about a thousandth of this on a small cache."""
AGAIN_SECONDS = 1.0
"""The time to the next interruption, if Python lost the first."""


class CacheSilent(BaseException):
    """An action did not end in time. It is no `Exception`, so that a cache does not catch it."""


def within(seconds: float, do: Callable[[], object]) -> None:
    """Call `do`, and raise CacheSilent if it takes longer.

    There is no limit outside the main thread, inside native code, and if another timer is set.
    """
    free = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not free or signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
        do()
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise CacheSilent(f"no answer within {seconds:g} s")

    earlier = signal.signal(signal.SIGALRM, interrupt)
    # The timer repeats: Python drops an exception that is raised in a callback, as in a finalizer.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        do()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
