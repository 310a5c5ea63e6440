"""One thread at a time: a guard of a test compares each call with those before it."""

from __future__ import annotations

from threading import RLock

from kvcanon.conformance.errors import UsageError


class OneThread:
    """Lets in the calls of one thread, and refuses those that come meanwhile from others.

    Used by `with`. A call from inside of another is of the same thread, and is let in.
    """

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        """Let a call in. Raises: UsageError: another thread's call is judged now."""
        if not self._lock.acquire(blocking=False):
            raise UsageError(
                "two threads called a guarded cache at one time, and `guard` judges one call after "
                "the other; put a lock around the calls, or use `production_guard`"
            )

    def __exit__(self, *_: object) -> None:
        """End a call."""
        self._lock.release()
