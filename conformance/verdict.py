"""What a judge raises: laws that do not hold, in words.

What readers get wrong: it is an `AssertionError`, never an outcome to handle. Who catches it counts
findings, or stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.law import Level, Violation


class LawsBroken(SpecViolation):
    """Laws that do not hold after an operation."""

    def __init__(self, words: str, violations: Sequence[Violation]) -> None:
        super().__init__(words)
        self.violations = tuple(sorted(violations, key=lambda each: each.law.level is Level.SHOULD))
        """Those of laws that must be kept come first."""

    @property
    def only_should(self) -> bool:
        """Whether no law is broken but such as should be kept, and need not."""
        return all(each.law.level is Level.SHOULD for each in self.violations)


OnShould: TypeAlias = Callable[[LawsBroken], None]
"""Is told of an operation that broke nothing but laws that should be kept."""
