"""A trial: one cache, the judges that it is before, and cases that are played on it.

What readers get wrong: a cache that cannot be made has not passed, unless it said that it does not
offer the configuration. Whatever else its factory raises is a finding of the case.
"""

from __future__ import annotations

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.pipe import ChildSilent
from kvcanon.conformance.search.finding import Finding, Grounds, Tally
from kvcanon.conformance.search.play import ALL_JUDGES, JudgeConfig, play
from kvcanon.conformance.search.time_limit import CacheSilent


@frozen
class Trial:
    """How cases are played."""

    adapter: Adapter
    judges: JudgeConfig = ALL_JUDGES
    against: Adapter | None = None
    """The cache that it must agree with."""

    def play(self, case: Case) -> tuple[Finding | None, Tally]:
        """Play a case: what was found, of the cache or else of the other, and what came up."""
        try:
            found, tallies = play(case, [self.adapter], self.judges, self.against)
        except UsageError as fault:
            return self._not_made(fault), Tally(cases=1)
        ours = [finding for finding in found if finding.cache == self.adapter.name]
        return next(iter(ours or found), None), tallies[self.adapter.name]

    def from_outside(self) -> Trial:
        """The same by answers and events only."""
        return evolve(self, judges=evolve(self.judges, black_box=True))

    def _not_made(self, fault: UsageError) -> Finding:
        text = f"no cache of this configuration could be made: {fault}"
        name = self.adapter.name
        return Finding(name, Grounds.CRASH, "not made", (), text, text, action=0, operation=0)


SILENT = frozenset({ChildSilent.__name__, CacheSilent.__name__})
"""What is raised where a cache did not answer in time."""


def is_silence(finding: Finding) -> bool:
    """Whether a cache did not answer, so that each further look at it takes long."""
    return finding.grounds is Grounds.CRASH and finding.name in SILENT


def same_fault(one: Finding, other: Finding | None) -> bool:
    """Whether another finding is most likely of the same fault."""
    if other is None or (one.cache, one.grounds) != (other.cache, other.grounds):
        return False
    return one.name == other.name or one.name in other.broken
