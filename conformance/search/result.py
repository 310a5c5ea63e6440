"""What came of a check: failures with their reduced cases, and what is known of every law.

What readers get wrong: a law has held only where it was exercised. One that was asked all the time,
and to which nothing ever came that a faulty cache could have done wrong, is not exercised.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.spec.config import Profile


class Standing(StrEnum):
    """What is known of a law and a cache."""

    HELD = "held"
    """It was exercised, and never found broken."""
    BROKEN = "broken"
    NOT_KEPT = "not kept"
    """It should be kept, need not, and is broken; where the check is strict that is `BROKEN`."""
    KNOWN = "known"
    """Broken, as the file of known differences says."""
    NOT_EXERCISED = "not exercised"


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
class StageResult:
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
    tallies: Mapping[str, Tally]
    """What came up in each stage, by its name."""
    standings: Mapping[str, Standing]
    """Of every law of the book, by id."""
    failures: tuple[Failure, ...]
    """What it fails the check for."""
    unkept: tuple[Failure, ...] = ()
    """What it should keep, and does not."""
    missing: tuple[str, ...] = ()
    """What has to come up for a cache to hold, and did not; a sentence each, without its stop."""

    @property
    def tally(self) -> Tally:
        """What came up in all stages."""
        total = Tally()
        for tally in self.tallies.values():
            total.add(tally)
        return total


@frozen
class CheckResult:
    """A whole check."""

    caches: tuple[CacheResult, ...]
    effort: str
    seed: int
    stages: tuple[StageResult, ...]
    against: str | None = None
    strict: bool = False
    """Whether laws that should be kept must be."""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of all caches."""
        return tuple(failure for cache in self.caches for failure in cache.failures)
