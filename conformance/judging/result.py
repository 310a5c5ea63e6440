"""What came of a check: failures with their reduced cases, and what was judged of each cache.

What readers get wrong: held, broken and not judged are three. A law that was never asked has not
held, and a cache of which nothing was judged has failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.judging.finding import Finding, Tally
from kvcanon.spec.config import Profile


class Standing(StrEnum):
    """What is known of a law and a cache."""

    HELD = "held"
    BROKEN = "broken"
    KNOWN = "known"
    """Broken, as the file of known differences says."""
    NOT_JUDGED = "not judged"


@frozen
class Failure:
    """A finding, and the shortest case in which it was seen."""

    finding: Finding
    case: Case
    origin: str
    """Where it was found first, as "vector LOAD-1-a", "walker, seed 17" or "machine"."""
    times: int
    """How many findings had its fingerprint."""
    black_box: bool = False
    """Whether it shows with a judge that sees answers and events only."""
    against: str | None = None
    """The cache that it was to agree with."""
    laws: frozenset[str] = frozenset()
    """The ids of all laws that were broken in findings with its fingerprint."""


@frozen
class Stage:
    """One part of a check."""

    name: str
    """As "vectors", "walker" or "machine"."""
    cases: int
    steps: int
    seconds: float
    cut_short: str = ""
    """Why it ended before it was done; empty where it was done."""
    unoffered: int = 0
    """Cases that a cache sat out, as it is not made with their configurations."""


@frozen
class CacheResult:
    """What was found out about one cache."""

    name: str
    profile: Profile
    lacks: tuple[str, ...]
    """Operations that the cache has not, and needs of laws that it cannot show."""
    tally: Tally
    standings: Mapping[str, Standing]
    """Of every law of the book, by id."""
    failures: tuple[Failure, ...]


@frozen
class CheckResult:
    """A whole check."""

    caches: tuple[CacheResult, ...]
    effort: str
    seed: int
    stages: tuple[Stage, ...]
    against: str | None = None

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of all caches."""
        return tuple(failure for cache in self.caches for failure in cache.failures)
