"""Which calls are in a cache now, so that a call that is judged is the only one there.

A call that comes while another is judged waits for it, but only for `MOST_WAIT_SECONDS`: the judged
call may be waiting for that very thread, as a flush does for the thread that copies. Then the call
goes on, and the judged one is *disturbed*: what was found in it is not reported. All other calls
run beside each other, as they do without a guard.
"""

from __future__ import annotations

import os
from threading import Condition, get_ident

MOST_WAIT_SECONDS = 1.0
"""How long a call waits for one that is judged."""


class CallGate:
    """The calls that are in one cache. Each method needs `lock`."""

    def __init__(self) -> None:
        self._open_anew()

    def _open_anew(self) -> None:
        self._pid = os.getpid()
        # A signal handler or a finalizer may call the cache while the lock is held: it is an RLock.
        self._changed = Condition()
        self._depths: dict[int, int] = {}
        """How many calls each thread is in, one inside the other."""
        self._judging: int | None = None
        """The thread whose call is judged."""
        self._is_disturbed = False
        self.takers = 0
        """Calls that take events."""

    @property
    def lock(self) -> Condition:
        """What is held while calls are counted; a forked process has one of its own.

        There the threads of its parent are gone, and would never leave.
        """
        if self._pid != os.getpid():
            self._open_anew()
        return self._changed

    @property
    def is_judging(self) -> bool:
        """Whether a call is judged."""
        return self._judging is not None

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in a call, from which the cache calls its user."""
        return get_ident() in self._depths

    @property
    def is_empty(self) -> bool:
        """Whether no call is in the cache."""
        return not self._depths

    def enter(self) -> None:
        """Enter a call, after the one that is judged, or else disturb it."""
        me = get_ident()
        if self._judging not in (None, me):
            self._changed.wait_for(self._may_enter, MOST_WAIT_SECONDS)
        if self._judging is not None:
            self._is_disturbed = True
            self._changed.notify_all()
        self._depths[me] = self._depths.get(me, 0) + 1

    def _may_enter(self) -> bool:
        return self._judging is None or self._is_disturbed

    def begin_judging(self) -> None:
        """Note that the call of this thread is judged; it is the only one in the cache."""
        self._judging, self._is_disturbed = get_ident(), False

    def end_judging(self) -> bool:
        """End that, and return whether another call came in between."""
        was_alone = self._judging == get_ident() and not self._is_disturbed
        self._judging = None
        self._changed.notify_all()
        return not was_alone

    def leave(self) -> None:
        """Leave a call."""
        me = get_ident()
        depth = self._depths.pop(me, 0) - 1
        if depth > 0:
            self._depths[me] = depth
