"""A trial: plays cases on one judged cache.

If the cache does not offer a configuration, the case is not played. Any other exception of its
factory is a finding.
"""

from __future__ import annotations

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.finding import Finding, Grounds, Tally
from kvcanon.conformance.check.making import NotMade, made_in_time
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.time_limit import CacheSilent
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import ALL_JUDGES, JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Unoffered, make_subject
from kvcanon.conformance.protocol.pipe import ChildSilent
from kvcanon.spec.law import Need


@frozen
class Trial:
    """A cache, and how it is judged."""

    adapter: Adapter
    judges: JudgeConfig = ALL_JUDGES
    against: Adapter | None = None
    """The cache to agree with."""

    def play(self, case: Case) -> tuple[Finding | None, Tally]:
        """Play a case. Returns the finding, of the cache or else of `against`, and the counts."""
        try:
            found, tallies = play(case, [self.adapter], self.judges, self.against)
        except UsageError as fault:
            return self._not_made(fault), Tally(cases=1)
        ours = [finding for finding in found if finding.cache == self.adapter.name]
        return next(iter(ours or found), None), tallies[self.adapter.name]

    def from_outside(self) -> Trial:
        """The same trial, judged by answers and events only."""
        return evolve(self, judges=evolve(self.judges, black_box=True))

    def laws_inside(self, case: Case, finding: Finding) -> frozenset[str]:
        """The laws that the case of a finding breaks by then, judged by the cache's states.

        Empty if the cache shows no states.
        """
        if not self.shows_states(case):
            return frozenset()
        if not self.judges.black_box and finding.broken:
            return frozenset(finding.broken)
        inside = evolve(self, judges=evolve(self.judges, black_box=False), against=None)
        seen, _ = inside.play(case)
        if seen is None or seen.operation > finding.operation:
            return frozenset()
        return frozenset(seen.broken)

    def shows_states(self, case: Case) -> bool:
        """Whether the cache shows its states in a case."""
        if Need.SNAPSHOT in self.adapter.hides or self.adapter.kind is CacheKind.REQUEST:
            return False
        try:
            made = made_in_time(lambda: make_subject(self.adapter, case.config))
        except (UsageError, Unoffered):
            return False
        return Need.SNAPSHOT in made.shows

    def _not_made(self, fault: UsageError) -> Finding:
        text = f"no cache of this configuration could be made: {fault}"
        cache, name = self.adapter.name, fault.name if isinstance(fault, NotMade) else "not made"
        return Finding(cache, Grounds.CRASH, name, (), text, text, action=0, operation=0)


SILENT = frozenset({ChildSilent.__name__, CacheSilent.__name__})
"""Exceptions for a cache that gave no answer in time."""


def is_silence(finding: Finding) -> bool:
    """Whether a cache gave no answer, so that each further case may take long."""
    return finding.grounds is Grounds.CRASH and finding.name in SILENT


def same_fault(one: Finding, other: Finding | None) -> bool:
    """Whether two findings count as the same fault."""
    if other is None or (one.cache, one.grounds) != (other.cache, other.grounds):
        return False
    return one.name == other.name or one.name in other.broken
