"""The mutation score: how many mutants of a sample are detected, and which are missed."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kvcanon.lab.mutants.detection import SEEN, MutantVerdict, Sight
from kvcanon.lab.mutants.equivalents import Core, Reviewed, ReviewKind

LEAST_PERCENT = {Core.REFERENCE: 97.0, Core.NATIVE: 95.0}


@frozen
class Measure:
    """The verdicts on a sample of mutants, and the score."""

    core: Core
    seed: int
    effort: str
    places: int
    """The number of all possible changes."""
    verdicts: tuple[MutantVerdict, ...]
    reviewed: Mapping[str, Reviewed]
    dropped: tuple[str, ...] = ()
    """The ids of drawn places that do not compile."""

    @property
    def counted(self) -> tuple[MutantVerdict, ...]:
        """The mutants that are not reviewed."""
        return tuple(each for each in self.verdicts if each.place.place_id not in self.reviewed)

    def of_kind(self, kind: ReviewKind) -> list[MutantVerdict]:
        """The reviewed mutants of one kind."""
        reviewed = [each for each in self.verdicts if each.place.place_id in self.reviewed]
        return [each for each in reviewed if self.reviewed[each.place.place_id].kind is kind]

    def by(self, *sights: Sight) -> list[MutantVerdict]:
        """The counted mutants with these verdicts."""
        return [each for each in self.counted if each.sight in sights]

    @property
    def stale(self) -> list[MutantVerdict]:
        """The reviewed mutants that were detected although their entry says that they cannot be."""
        equal = [each for each in self.of_kind(ReviewKind.EQUAL) if each.sight is not Sight.NOBODY]
        return equal + [each for each in self.of_kind(ReviewKind.LAWFUL) if each.sight in SEEN]

    @property
    def missed(self) -> tuple[Sight, ...]:
        """The verdicts that count as missed.

        The native core is always compared with the plain cache when it is judged, so a difference
        counts as much as a broken law.
        """
        if self.core is Core.NATIVE:
            return (Sight.NOBODY,)
        return (Sight.AGREEMENT, Sight.NOBODY)

    @property
    def found(self) -> list[MutantVerdict]:
        """The detected mutants."""
        return self.by(*(sight for sight in Sight if sight not in self.missed))

    @property
    def showing(self) -> list[MutantVerdict]:
        """The mutants to detect: for the plain cache those that differ from it, else all."""
        if self.core is Core.NATIVE:
            return list(self.counted)
        return self.by(*(sight for sight in Sight if sight is not Sight.NOBODY))

    @property
    def percent(self) -> float:
        """The percentage of the mutants to detect that are detected."""
        return 100 * len(self.found) / len(self.showing) if self.showing else 100.0

    @property
    def least_percent(self) -> float:
        """The lowest percentage that passes."""
        return LEAST_PERCENT[self.core]

    @property
    def reached(self) -> bool:
        """Whether the percentage passes, and no entry of the reviewed list is stale."""
        return self.percent >= self.least_percent and not self.stale
