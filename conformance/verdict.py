"""What a judge raises: laws that do not hold, in words.

What readers get wrong: it is an `AssertionError`, never an outcome to handle. Who catches it counts
findings, or stops.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.law import Violation


class LawsBroken(SpecViolation):
    """Laws that do not hold after an operation."""

    def __init__(self, words: str, violations: Sequence[Violation]) -> None:
        super().__init__(words)
        self.violations = tuple(violations)
