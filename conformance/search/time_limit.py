"""Patience: how long an action of a case may take.

What readers get wrong: this is no measure of speed. It ends what would never end, such as a walk in
a ring of nodes, so that a campaign finds it instead of hanging in it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

ACTION_SECONDS = 20.0
"""A few operations on a small cache, with every law asked after each, take a thousandth of this."""
AGAIN_SECONDS = 1.0
"""Until the next interruption, where the first one was not heard."""


class CacheSilent(BaseException):
    """An action did not end in time. No `Exception`, so that a cache does not catch it."""


def within(seconds: float, do: Callable[[], object]) -> None:
    """Do something, and raise CacheSilent where it takes longer.

    Only the main thread can be interrupted, only between two steps of Python, and only where
    nobody else has set the clock; elsewhere it takes as long as it takes.
    """
    free = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not free or signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
        do()
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise CacheSilent(f"no answer within {seconds:g} s")

    earlier = signal.signal(signal.SIGALRM, interrupt)
    # It rings again: an exception is lost where Python calls somebody back, as at a collection.
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        do()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
