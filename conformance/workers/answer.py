"""What a process answers: the result of a job or what it raised, in bytes for another process."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from kvcanon.conformance.errors import describe_exception

OURS = frozenset({"builtins", "kvcanon"})
"""Packages whose exceptions are passed on as they are."""


def answer_of(do: Callable[[], object]) -> bytes:
    """Do it, and pickle a pair: whether it returned, and its result or what it raised.

    An exception of a class of the cache becomes a RuntimeError with its words: reading it
    would import the module of the class, and so run code of the cache in the other process.
    """
    try:
        return pickle.dumps((True, do()))
    except BaseException as error:  # noqa: BLE001  # A cache may raise anything.
        if type(error).__module__.partition(".")[0] in OURS and isinstance(error, Exception):
            try:
                pickled = pickle.dumps((False, error))
                pickle.loads(pickled)  # noqa: S301  # It may need more arguments than it kept.
            except Exception:  # noqa: BLE001  # Whatever it raises, it cannot be sent.
                return _in_words(error)
            return pickled
        return _in_words(error)


def _in_words(error: BaseException) -> bytes:
    return pickle.dumps((False, RuntimeError(describe_exception(error))))
