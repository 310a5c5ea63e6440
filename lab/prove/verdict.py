"""Verdicts: what a solver says of a claim.

"Not confirmed" says nothing. Within its budget the solver has found no input that breaks the claim,
and has not looked at all of them.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class ProofVerdict(StrEnum):
    """What a solver says."""

    CONFIRMED = "confirmed"
    """Over all inputs within the bounds."""
    NOT_CONFIRMED = "not confirmed"
    """No input was found that breaks it, in the time that there was."""
    REFUTED = "refuted"
    """An input breaks it."""
    UNREACHABLE = "unable to meet precondition"
    """No input within the bounds was found at all: nothing is claimed."""


class Solver(StrEnum):
    """The solver that gives a verdict."""

    CROSSHAIR = "crosshair"
    """Runs the code on symbols, path by path."""
    Z3 = "z3"
    """Gets what the code returns for terms: all trees of one size in one formula."""


@frozen
class Proof:
    """One `post:` line, and its verdict."""

    claim: str
    post: str
    solver: Solver
    bounds: tuple[str, ...]
    """The `pre:` lines; for terms of z3, their size stands in place of the first."""
    verdict: ProofVerdict
    seconds: float
    """Of one core."""
    found: str = ""
    """The input that breaks it, or why there is no verdict."""
    paths: int = 0
    """How many paths through the code were taken; 0 for terms, which have none."""
