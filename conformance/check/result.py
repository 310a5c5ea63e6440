"""The result of a check: failures with their reduced cases, and the standing of every law.

A law is held only if it was exercised, in a situation where a faulty cache could break it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import field, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.finding import Finding, Tally
from kvcanon.conformance.protocol.adapter import CacheKind, Offer
from kvcanon.spec.config import Profile


class Standing(StrEnum):
    """Whether a cache holds a law."""

    HELD = "held"
    """The law was exercised, and never broken."""
    BROKEN = "broken"
    NOT_KEPT = "not kept"
    """A SHOULD law is broken; in a strict check that is `BROKEN`."""
    KNOWN = "known"
    """The law is broken, as the file of known differences says."""
    NOT_EXERCISED = "not exercised"


@frozen
class Failure:
    """A finding, and the shortest case that shows it."""

    finding: Finding
    case: Case
    origin: str
    """Where it was found first, such as "vector LOAD-1-a" or "walker, seed 17"."""
    times: int
    """How many findings have its fingerprint."""
    black_box: bool = False
    """Whether answers and events alone show it."""
    against: str | None = None
    """The cache to agree with."""
    inside: frozenset[str] = frozenset()
    """The ids of the laws that its case breaks at that operation or before if it is judged by the
    cache's states; empty if the cache shows none."""
    reduced: bool = True
    """Whether its case was reduced until nothing more could be left out."""
    why_folded: str = ""
    """Why another failure most likely has the same cause; empty if no other does."""
    folded: tuple[Failure, ...] = ()
    """Longer failures that most likely have the same cause."""

    @property
    def laws(self) -> frozenset[str]:
        """The ids of the laws that its case breaks."""
        return frozenset(self.finding.broken)

    @property
    def every(self) -> tuple[Failure, ...]:
        """The failure, and those that are folded into it."""
        return self, *self.folded


@frozen
class StageResult:
    """One part of a check."""

    name: str
    """"vectors", "walker", "machine" or "ranks"."""
    cases: int
    steps: int
    seconds: float
    cut_short: str = ""
    """Why the stage ended early; empty if it did not."""
    unoffered: int = 0
    """Cases that were not played, because a cache does not offer their configurations."""


@frozen
class CacheResult:
    """The result of a check for one cache."""

    name: str
    profile: Profile
    lacks: tuple[str, ...]
    """Operations that the cache lacks, and needs of laws that it does not show."""
    tallies: Mapping[str, Tally]
    """The counts of each stage, by its name."""
    standings: Mapping[str, Standing]
    """The standing of every law, by its id."""
    failures: tuple[Failure, ...]
    """The failures that fail the check, the shortest first, each with those of the same cause."""
    unkept: tuple[Failure, ...] = ()
    """The failures of SHOULD laws alone."""
    missing: tuple[str, ...] = ()
    """The essentials that were not exercised, in words."""
    offer: Offer = field(default=Offer())
    """The configurations that the cache offers."""
    kind: CacheKind = CacheKind.TREE

    @property
    def tally(self) -> Tally:
        """The counts of all stages together."""
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
