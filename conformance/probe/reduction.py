"""Finds the few requests that show a finding, by sending fewer and fewer of them again."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.others import WITNESS_REQUESTS, OtherClients
from kvcanon.conformance.probe.player import OutOfBudget, ProbePlayer
from kvcanon.conformance.probe.request_judge import JudgedAgainst, judge_sent
from kvcanon.conformance.probe.sharing import SentRequest
from kvcanon.conformance.probe.talk import ProbeRequest
from kvcanon.conformance.probe.together import RequestSequence, without
from kvcanon.spec.shortest import shortest

MOST_REPLAYED = 400
"""Requests that are sent again for one finding."""
CONFIRMATIONS = 3
"""Times that a finding must come again which another client, or luck, can cause."""

BY_OTHERS = frozenset({ProbeFault.TOO_FEW, ProbeFault.ORDER, ProbeFault.WINDOW_ORDER})
"""Kinds that another client of the server can cause now and then."""
NEEDS_REPLAY = BY_OTHERS | {ProbeFault.IN_USE}
"""Kinds that must come again when their requests are sent again."""
LEAKS = frozenset({ProbeFault.HELD})
"""Kinds that take something from the server each time they are shown: they are not sent again."""


def replay_limit(requests: int) -> int:
    """The most requests that are sent again for a finding that so many show."""
    return MOST_REPLAYED + (CONFIRMATIONS + 1) * (requests + WITNESS_REQUESTS)


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
    may_flush: bool = False
    """Whether the cache may be emptied, where a server takes no salts."""

    def reduce(self, sent: Sequence[SentRequest], finding: ProbeFinding) -> ShownFinding:
        """The fewest requests found that show a finding. Raises: ServerProblem."""
        first = sent[: finding.last + 1]
        shown = [each.request for each in first]
        left = [replay_limit(len(shown))]
        kept = left[0] - MOST_REPLAYED
        whole = ShownFinding(finding, tuple(first), repeated=False)
        player, began = self.player, self.player.clock()
        by_luck = any(request.overlaps for request in shown)
        tries = CONFIRMATIONS if by_luck else 1
        again = next(filter(None, (self._shows(shown, finding, left) for _ in range(tries))), None)
        if again is None:
            return whole
        took = player.clock() - began
        smaller = [again]

        def shows(fewer: Sequence[ProbeRequest]) -> bool:
            if left[0] <= kept or player.seconds_left <= 0:
                return False
            found = self._shows(fewer, finding, left)
            if found is not None:
                smaller.append(found)
            return found is not None

        shortest(shown, shows, keeps_last=True, without=without)
        player.deadline = player.clock() + 2 * (CONFIRMATIONS + 1) * took + 1
        steady = self._steady(smaller, left, by_luck=by_luck)
        return steady or (whole if finding.fault in BY_OTHERS else smaller[0])

    def _steady(
        self, smaller: list[ShownFinding], left: list[int], *, by_luck: bool
    ) -> ShownFinding | None:
        """The smallest that shows the finding again: some depend on what is cached besides.

        What another client can cause must come again each time, while none is seen. So must what
        was found while a request went on during others: with fewer of them it can be luck.
        """
        doubted = smaller[0].finding.fault in BY_OTHERS
        for each in reversed(smaller):
            requests = [sent.request for sent in each.requests]
            times = range(CONFIRMATIONS if doubted or by_luck else 1)
            if all(self._shows(requests, each.finding, left, alone=doubted) for _ in times):
                return each
        return None

    def _shows(
        self,
        shown: Sequence[ProbeRequest],
        finding: ProbeFinding,
        left: list[int],
        *,
        alone: bool = False,
    ) -> ShownFinding | None:
        """The finding as fewer requests show it; None if they do not, or no time is left.

        If `alone`, it does not count where another client used the server, or can have.
        """
        left[0] -= len(shown)
        if left[0] < 0 or self.player.seconds_left <= 0:
            return None
        run = self.player.fresh_run()
        if not self.player.facts.salts:
            if not self.may_flush:
                return None
            self.player.api.flush()
        others = OtherClients(self.player, finding, self.by.page) if alone else None
        try:
            with RequestSequence(self.player, run) as sequence:
                for at, request in enumerate(shown):
                    if others is not None:
                        others.before(at, request)
                    sequence.send(request, finding.round)
                sequence.finish()
            if others is not None and others.interfered(sequence.sent):
                return None
        except OutOfBudget:
            return None
        sent, last = sequence.sent, len(sequence.sent) - 1
        for each in judge_sent(sent, self.by):
            if each.fault is finding.fault and each.last == last:
                return ShownFinding(each, tuple(sent), repeated=True)
        return None
