"""Verdicts on mutants: who detected one, and by what."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from kvcanon.conformance.mutants.looks import Sighting
from kvcanon.conformance.mutants.place import MutantPlace
from kvcanon.conformance.search.finding import Finding, Grounds
from kvcanon.conformance.search.trial import is_silence


class Sight(StrEnum):
    """Who saw a mutant."""

    LAW = "law"
    CRASH = "crash"
    """It raised what is no refusal, or could not be made."""
    DEAD = "dead"
    """Its process died, or it did not answer in time."""
    AGREEMENT = "agreement"
    """Only a comparison with the plain cache."""
    NOBODY = "nobody"


SEEN = (Sight.LAW, Sight.CRASH, Sight.DEAD)
"""What it takes no comparison for."""


@frozen
class MutantVerdict:
    """What came of a mutant."""

    place: MutantPlace
    sight: Sight
    seen: tuple[str, ...] = ()
    """The ids of the laws that spoke; or else what it was that showed."""
    how: str = ""
    """In what it showed: a vector, or a case of the walker."""
    text: str = ""
    seconds: float = 0.0


def verdict_of(place: MutantPlace, seen: Sighting | None) -> MutantVerdict:
    """The verdict that follows from what showed."""
    if seen is None:
        return MutantVerdict(place, Sight.NOBODY)
    finding = seen.finding
    names = finding.broken or (finding.name,)
    return MutantVerdict(place, _sight(finding), names, seen.how, finding.text)


def _sight(finding: Finding) -> Sight:
    if is_silence(finding):
        return Sight.DEAD
    by_grounds = {Grounds.LAW: Sight.LAW, Grounds.CRASH: Sight.CRASH}
    return by_grounds.get(finding.grounds, Sight.AGREEMENT)
