"""Changes: a lock, and a way to wait until something has changed, that Ctrl-C cannot break.

Python raises KeyboardInterrupt in the main thread between any two of its steps. In
`threading.Condition` these steps are Python's own: an interrupt may leave its lock locked for ever,
or unlock what another thread has locked. Here, every step that must not be cut in two is one call
of C code: also to take a bell and ring it, or a thread would wait for a bell that nobody has.
"""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock


class Changes(_thread.RLock):  # type: ignore[misc]  # CPython lets it have subclasses.
    """A lock for changes of several things at once, which also wakes waiting threads.

    `with changes:` is the lock; the class inherits it from C code. Waiting needs no lock: what is
    waited for must be one read of a value that another thread sets.
    """

    def __init__(self) -> None:
        self._bells: deque[Lock] = deque()

    def notify_all(self) -> None:
        """Wake all waiting threads, so that each checks again what it waits for."""
        with suppress(IndexError):  # None is left.
            deque(map(_thread.LockType.release, iter(self._bells.popleft, None)), maxlen=0)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Return once `is_so()`. The caller must not hold the lock."""
        # An interrupt may have come between a change and its ring.
        self.notify_all()
        while not is_so():
            bell = Lock()
            bell.acquire()
            self._bells.append(bell)
            # What changed before the bell was there rang no bell.
            if is_so():
                return
            bell.acquire()
