"""Errors of the judge: a call that cannot be made, and a cache that breaks laws.

The command line prints a `UsageError` in one line and exits with 2. A `ViolationError` is a
finding: an `AssertionError` that fails a test, not an outcome to handle.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from attrs import frozen

from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.law import Level, Violation
from kvcanon.spec.operations import Refused
from kvcanon.spec.views import Step


class UsageError(Exception):
    """The call is wrong, or the cache that it names cannot be judged."""


class ChildSilent(UsageError):
    """A cache in a child process did not answer in time, and its child was killed."""


class CacheSilent(BaseException):
    """An action did not end in time. It is no `Exception`, so that a cache does not catch it."""


class CaseTooSlow(BaseException):
    """A large case took longer than there is time for, though no call of it did."""


def message_of(error: BaseException) -> str:
    """The message of an exception, whatever its class does when it is asked for one.

    What no file and no terminal can show is escaped: lone surrogates, and commands to terminals.
    """
    try:
        return "".join(map(_shown_letter, str(error)))
    except BaseException as worse:  # noqa: BLE001  # A cache's own exception may raise anything.
        return f"its message cannot be made, {type(worse).__name__}"


def _shown_letter(letter: str) -> str:
    plain = letter.isprintable() or letter.isspace()
    return letter if plain else letter.encode("unicode_escape").decode()


def describe_exception(error: BaseException) -> str:
    """An exception in one line: its class, its message, and the line that raised it."""
    words = f"{type(error).__name__}: {message_of(error)}".rstrip(": ")
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename.startswith("<"):
        return words
    return f"{words} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def explain_exception(error: BaseException) -> str:
    """An exception that a cache raised: its class and message, then the frames of its own code.

    The judge's frames above the call say nothing about the cache, and are left out.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(_JUDGE)]
    lines = [line.rstrip() for line in traceback.format_list(own or frames[-1:])]
    return "\n".join([f"raised {describe_exception(error)}", *lines])


_JUDGE = tuple(
    f"{Path(__file__).parent.parent / name}{os.sep}"
    for name in ("conformance", "spec", "lab/variants")
)
"""The folders of the judge's own code."""


def shown(value: object, most: int = 160) -> str:
    """A value as text, of at most `most` characters; also of a class whose `repr` raises."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # The class is the user's own.
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= most else f"{text[:most]}..."


class AnswerError(Exception):
    """A cache answered a call with a value of the wrong type: a finding, in one sentence."""


class ViolationError(SpecViolation):
    """An operation after which laws do not hold."""

    def __init__(
        self,
        words: str,
        violations: Sequence[Violation],
        operation: str = "",
        outcome: object = None,
        step: Step | None = None,
    ) -> None:
        super().__init__(words)
        self.after = f"{operation}, refused" if isinstance(outcome, Refused) else operation
        """The operation and its outcome, as "Insert" or "Insert, refused"."""
        self.outcome = outcome
        """What the cache answered; None if that is not known."""
        self.step = step
        """The operation between its states; None if the judge saw no states."""
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
