"""The mutation score: how many mutants of a sample are detected, and which are not."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kvcanon.conformance.mutants.detection import SEEN, MutantVerdict, Sight
from kvcanon.conformance.mutants.equivalents import Core, Reviewed, ReviewKind

LEAST_PERCENT = {Core.REFERENCE: 97.0, Core.NATIVE: 95.0}


@frozen
class Measure:
    """What came of the mutants of a sample."""

    core: Core
    seed: int
    effort: str
    places: int
    """As many changes could be made in all."""
    verdicts: tuple[MutantVerdict, ...]
    reviewed: Mapping[str, Reviewed]
    dropped: tuple[str, ...] = ()
    """The ids of places that were drawn, and do not compile."""

    @property
    def counted(self) -> tuple[MutantVerdict, ...]:
        """Those that a law has to see, if anything of them shows."""
        return tuple(each for each in self.verdicts if each.place.place_id not in self.reviewed)

    def of_kind(self, kind: ReviewKind) -> list[MutantVerdict]:
        """Those that were reviewed, of one kind."""
        reviewed = [each for each in self.verdicts if each.place.place_id in self.reviewed]
        return [each for each in reviewed if self.reviewed[each.place.place_id].kind is kind]

    def by(self, *sights: Sight) -> list[MutantVerdict]:
        """Those that count and were seen so."""
        return [each for each in self.counted if each.sight in sights]

    @property
    def stale(self) -> list[MutantVerdict]:
        """Those that were reviewed, and show where they must not."""
        equal = [each for each in self.of_kind(ReviewKind.EQUAL) if each.sight is not Sight.NOBODY]
        return equal + [each for each in self.of_kind(ReviewKind.LAWFUL) if each.sight in SEEN]

    @property
    def missed(self) -> tuple[Sight, ...]:
        """Who sees those that count as missed, and have to be looked at.

        The native core is compared with the plain cache whenever it is judged, so that a difference
        is as good as a law.
        """
        if self.core is Core.NATIVE:
            return (Sight.NOBODY,)
        return (Sight.AGREEMENT, Sight.NOBODY)

    @property
    def found(self) -> list[MutantVerdict]:
        """Those that are seen."""
        return self.by(*(sight for sight in Sight if sight not in self.missed))

    @property
    def showing(self) -> list[MutantVerdict]:
        """Those that have to be seen: of the plain cache all that show, of the native core all."""
        if self.core is Core.NATIVE:
            return list(self.counted)
        return self.by(*(sight for sight in Sight if sight is not Sight.NOBODY))

    @property
    def percent(self) -> float:
        """Of a hundred that have to be seen, how many are."""
        return 100 * len(self.found) / len(self.showing) if self.showing else 100.0

    @property
    def least_percent(self) -> float:
        """What the share has to be."""
        return LEAST_PERCENT[self.core]

    @property
    def reached(self) -> bool:
        """Whether it is, and the list of reviewed mutants is right."""
        return self.percent >= self.least_percent and not self.stale
