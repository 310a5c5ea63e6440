"""Sends requests one after the other, some of which go on while the next are sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from attrs import define, evolve, field

from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.running import RunningRequest
from kvcanon.conformance.probe.sharing import SentRequest
from kvcanon.conformance.probe.talk import ProbeReply, ProbeRequest
from kvcanon.conformance.probe.transport import ServerProblem


@define
class _GoingOn:
    """A request that goes on: its place, and what was sent since."""

    at: int
    running: RunningRequest
    since: int = 0
    lasted: int = 0


@define
class RequestSequence:
    """Requests of one run, in the order in which they began. Leaving the block ends them all."""

    player: ProbePlayer
    run: str
    sent: list[SentRequest] = field(factory=list)
    _open: list[_GoingOn] = field(factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._open:
            each.running.leave()
        self._open.clear()

    def send(self, request: ProbeRequest, round_name: str) -> SentRequest:
        """Send a request; the reply of one that goes on is empty until it has ended.

        Raises: OutOfBudget, ServerProblem.
        """
        unanswered = SentRequest(request, _NO_REPLY, round_name)
        try:
            if request.overlaps:
                running = self.player.begin(request, round_name, self.run)
                made = evolve(unanswered, began=running.began)
            else:
                running, made = None, self.player.send(request, round_name, self.run)
        except ServerProblem:
            self.sent.append(unanswered)
            raise
        self.sent.append(made)
        self._passed()
        if running is not None:
            self._open.append(_GoingOn(len(self.sent) - 1, running))
        return made

    def finish(self) -> None:
        """Wait for all that go on. Raises: ServerProblem."""
        while self._open:
            self._end(self._open[0])

    def _passed(self) -> None:
        """Count a request that was answered, and wait for those that were to go on until here."""
        for each in list(self._open):
            each.since += 1
            if each.running.goes_on and each.lasted == each.since - 1:
                each.lasted = each.since
            if each.since >= each.running.request.overlaps:
                self._end(each)

    def _end(self, each: _GoingOn) -> None:
        round_name = self.sent[each.at].round
        self.sent[each.at] = self.player.end(each.running, round_name, each.lasted)
        self._open.remove(each)


_NO_REPLY = ProbeReply((), None, aborted=True)


def without(requests: Sequence[ProbeRequest], left_out: Iterable[int]) -> list[ProbeRequest]:
    """The other requests; those that go on do so during as many of the next as are still there."""
    dropped = set(left_out)
    kept = []
    for at, request in enumerate(requests):
        if at in dropped:
            continue
        if request.overlaps:
            during = range(at + 1, min(len(requests), at + 1 + request.overlaps))
            still = sum(1 for each in during if each not in dropped)
            request = evolve(request, overlaps=still)  # noqa: PLW2901
        kept.append(request)
    return kept
