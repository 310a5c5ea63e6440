"""Finds the few requests that show a finding, by sending fewer and fewer of them again."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.judge import JudgedAgainst, judge_sent
from kvcanon.conformance.probe.player import OutOfBudget, ProbePlayer
from kvcanon.conformance.probe.sharing import SentRequest

MOST_REPLAYED = 400
"""Requests that are sent again for one finding."""

NEEDS_REPLAY = frozenset({ProbeFault.TOO_FEW, ProbeFault.ORDER, ProbeFault.WINDOW_ORDER})
"""Kinds that another client of the server can cause once, and hardly twice."""
LEAKS = frozenset({ProbeFault.HELD})
"""Kinds that take something from the server each time they are shown: they are not sent again."""


@frozen
class ShownFinding:
    """A finding, and the requests that show it, the last of them last."""

    finding: ProbeFinding
    requests: tuple[SentRequest, ...]
    repeated: bool
    """Whether it was found again when these requests were sent again."""


@frozen
class Reducer:
    """Sends requests of a round again, in namespaces that are fresh each time."""

    player: ProbePlayer
    by: JudgedAgainst
    until: float
    """When it stops, by the player's clock."""
    may_flush: bool = False
    """Whether the cache may be emptied, where a server takes no salts."""

    def reduce(self, sent: Sequence[SentRequest], finding: ProbeFinding) -> ShownFinding:
        """The fewest requests found that show a finding. Raises: ServerProblem."""
        shown = list(sent[: finding.at + 1])
        left = [MOST_REPLAYED]
        again = self._shows(shown, finding, left)
        if again is None:
            return ShownFinding(finding, tuple(shown), repeated=False)
        size, smaller = max(1, len(shown) // 2), [again]
        while size:
            at = 0
            while at < len(shown) - 1:
                fewer = shown[:at] + shown[min(at + size, len(shown) - 1) :]
                found = self._shows(fewer, finding, left)
                if found is None:
                    at += size
                else:
                    shown = list(found.requests)
                    smaller.append(found)
            size //= 2
        return self._steady(smaller, left)

    def _steady(self, smaller: list[ShownFinding], left: list[int]) -> ShownFinding:
        """The smallest that shows the finding once more: some depend on what is cached besides."""
        for each in reversed(smaller):
            if self._shows(each.requests, each.finding, left) is not None:
                return each
        return smaller[0]

    def _shows(
        self, shown: Sequence[SentRequest], finding: ProbeFinding, left: list[int]
    ) -> ShownFinding | None:
        """The finding as fewer requests show it; None if they do not, or no time is left."""
        left[0] -= len(shown)
        if left[0] < 0 or self.player.clock() >= self.until:
            return None
        run = self.player.fresh_run()
        if not self.player.facts.salts:
            if not self.may_flush:
                return None
            self.player.api.flush()
        try:
            sent = [self.player.send(each.request, each.round, run) for each in shown]
        except OutOfBudget:
            return None
        last = len(sent) - 1
        for each in judge_sent(sent, self.by):
            if each.fault is finding.fault and each.at == last:
                return ShownFinding(each, tuple(sent), repeated=True)
        return None
