"""Loads adapters and makes caches within the time limit, whatever their code does."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TypeVar

from kvcanon.conformance.check.time_limit import LIMIT, CacheSilent, within
from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.pipe import PREFIX
from kvcanon.conformance.workers.notes import NOTE

Made = TypeVar("Made")
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
    if name.startswith(PREFIX) or not NOTE.shared:
        return _loaded(name)
    loaded: list[Adapter] = []
    NOTE.place(LOADING)
    within(LIMIT.seconds, lambda: loaded.append(_loaded(name)))
    return loaded[0]


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
    made: list[Made] = []
    NOTE.making()
    try:
        within(LIMIT.seconds, lambda: made.append(make()))
    except CacheSilent as silence:
        raise NotMade(CacheSilent.__name__, f"{silence}, while it was made") from silence
    except BaseException as error:
        if isinstance(error, Exception) or is_users_interrupt(error):
            raise
        name, words = type(error).__name__, describe_exception(error)
        raise NotMade(name, f"its factory raised {words}") from error
    return made[0]


def is_users_interrupt(error: BaseException) -> bool:
    """Whether the user interrupted. A worker ignores that, so that there it is the cache's own."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return isinstance(error, KeyboardInterrupt) and not ignored
