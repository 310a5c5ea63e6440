"""Verdicts on mutants: what detected each, and how."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.lab.mutants.looks import Sighting
from kvcanon.lab.mutants.place import MutantPlace
from kvcanon.spec.law import LAWS, LawClass


class Sight(StrEnum):
    """What detected a mutant."""

    LAW = "law"
    CRASH = "crash"
    """It raised an exception that is not a refusal, or could not be imported."""
    DEAD = "dead"
    """Its process died, or it did not answer in time."""
    AGREEMENT = "agreement"
    """Only a comparison with the plain cache detected it."""
    NOBODY = "nobody"


SEEN = (Sight.LAW, Sight.CRASH, Sight.DEAD)
"""The ways of detection that need no comparison."""


@frozen
class MutantVerdict:
    """The verdict on one mutant."""

    place: MutantPlace
    sight: Sight
    seen: tuple[str, ...] = ()
    """The ids of the broken laws, or else the kind of the finding."""
    how: str = ""
    """The vector or the walker's case that detected it."""
    text: str = ""
    seconds: float = 0.0

    @property
    def law_class(self) -> LawClass | None:
        """The strictest class of the broken laws; None where no law detected it."""
        if self.sight is not Sight.LAW:
            return None
        broken = {LAWS[law_id].law_class for law_id in self.seen}
        return next(each for each in LawClass if each in broken)


def verdict_of(place: MutantPlace, seen: Sighting | None) -> MutantVerdict:
    """Make the verdict of a sighting."""
    if seen is None:
        return MutantVerdict(place, Sight.NOBODY)
    finding = seen.finding
    names = finding.broken or (finding.name,)
    return MutantVerdict(place, _sight(finding), names, seen.how, finding.text)


def _sight(finding: Finding) -> Sight:
    if finding.is_silence:
        return Sight.DEAD
    by_grounds = {Grounds.LAW: Sight.LAW, Grounds.CRASH: Sight.CRASH}
    return by_grounds.get(finding.grounds, Sight.AGREEMENT)
