"""Errors of the judge: a call that cannot be made, and a cache that breaks laws.

The command line prints a `UsageError` in one line and exits with 2. A `ViolationError` is a
finding: an `AssertionError` that fails a test, not an outcome to handle.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from attrs import frozen

from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.law import Level, Violation


class UsageError(Exception):
    """The call is wrong, or the cache that it names cannot be judged."""


def message_of(error: BaseException) -> str:
    """The message of an exception, whatever its class does when it is asked for one."""
    try:
        return str(error)
    except BaseException as worse:  # noqa: BLE001  # A cache's own exception may raise anything.
        return f"its message cannot be made, {type(worse).__name__}"


def describe_exception(error: BaseException) -> str:
    """An exception in one line: its class, its message, and the line that raised it."""
    words = f"{type(error).__name__}: {message_of(error)}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename.startswith("<"):
        return words
    return f"{words} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception, or the exception in one line if it lets nobody print it."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001  # A cache's own exception may raise anything.
        return describe_exception(error)


class ViolationError(SpecViolation):
    """An operation after which laws do not hold."""

    def __init__(self, words: str, violations: Sequence[Violation], after: str = "") -> None:
        super().__init__(words)
        self.after = after
        """The operation and its outcome, as "Insert" or "Insert, refused"."""
        self.violations = tuple(sorted(violations, key=lambda each: each.law.level is Level.SHOULD))
        """Violations of MUST laws come first."""

    @property
    def only_should(self) -> bool:
        """Whether all broken laws are SHOULD laws."""
        return self.is_excused(())

    def is_excused(self, known: Collection[str]) -> bool:
        """Whether all broken laws are SHOULD laws, or known to be broken."""
        return all(
            each.law.level is Level.SHOULD or each.law.law_id in known for each in self.violations
        )


OnShould: TypeAlias = Callable[[ViolationError], None]
"""Called with a violation of SHOULD laws alone."""


@frozen
class OnExcused:
    """As `OnShould`; it is called with violations of known laws, too."""

    note: OnShould
    known: frozenset[str]
    """The ids of laws that are known to be broken."""

    def __call__(self, error: ViolationError) -> None:
        """Note a violation that does not end the case."""
        self.note(error)


def raise_violations(
    error: ViolationError, on_should: OnShould | None, cause: BaseException | None = None
) -> None:
    """Raise an error, unless it is of SHOULD or known laws alone and `on_should` takes it."""
    known = on_should.known if isinstance(on_should, OnExcused) else ()
    if on_should is not None and error.is_excused(known):
        on_should(error)
    elif cause is not None:
        raise error from cause
    else:
        raise error
