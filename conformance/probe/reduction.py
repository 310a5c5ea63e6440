"""Finds the few requests that show a finding, by sending fewer and fewer of them again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence

from attrs import define, evolve, field, frozen

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.player import SECONDS, OutOfBudget, ProbePlayer, RequestSequence
from kvcanon.conformance.probe.request_judge import JudgedAgainst, judge_sent
from kvcanon.conformance.probe.talk import PageRange, ProbeRequest, PromptSpace, SentRequest
from kvcanon.spec.shortest import shortest

MOST_REPLAYED = 400
"""Requests that are sent again for one finding."""
CONFIRMATIONS = 3
"""Times that a finding must come again which another client, or luck, can cause."""
WITNESS_PAGES = 3
WITNESS_REQUESTS = 2
COUNT_LOOKS = 5
COUNT_PAUSE_SECONDS = 0.02

BY_OTHERS = frozenset({ProbeFault.TOO_FEW, ProbeFault.ORDER, ProbeFault.WINDOW_ORDER})
"""Kinds that another client of the server can cause now and then."""
NEEDS_REPLAY = BY_OTHERS | {ProbeFault.IN_USE}
"""Kinds that must come again when their requests are sent again."""
LEAKS = frozenset({ProbeFault.HELD})
"""Kinds that take something from the server each time they are shown: they are not sent again."""


@frozen
class ShownFinding:
    """A finding, and the requests that show it, the last of them last."""

    finding: ProbeFinding
    requests: tuple[SentRequest, ...]
    repeated: bool
    """Whether it was found again when these requests were sent again."""


@define
class OtherClients:
    """Looks for other clients during one replay.

    A server that counts prompt tokens shows them by its count. And where too little is cached of a
    prompt, a witness is sent just before it: whoever evicts the least recently used data evicts the
    witness first, so that while a part of the witness is there, nobody has evicted the prompt.
    """

    player: ProbePlayer
    finding: ProbeFinding
    page: PageRange
    _counted: float | None = field(init=False)
    _own: int = 0
    _witness: ProbeRequest | None = None
    _run: str = ""

    def __attrs_post_init__(self) -> None:
        # The tokens of the last request may be counted a moment after its reply.
        self._counted = self.player.api.prompt_tokens()
        for _ in range(COUNT_LOOKS):
            if self._counted is None:
                return
            time.sleep(COUNT_PAUSE_SECONDS)
            before, self._counted = self._counted, self.player.api.prompt_tokens()
            if self._counted == before:
                return

    def before(self, at: int, request: ProbeRequest) -> None:
        """Send the witness before the request whose data is missed. Raises: as `send`."""
        if self.finding.fault is not ProbeFault.TOO_FEW or at != self.finding.since:
            return
        size = self.page.most or 1
        drawn = random.Random(f"witness {self.finding.since}")
        tokens = tuple(
            # Tokens that the model has.
            drawn.choice(request.tokens)
            for _ in range(WITNESS_PAGES * size + 1)
        )
        space = PromptSpace("witness" if self.player.facts.salts else "")
        self._witness = ProbeRequest("witness", tokens, 1, space)
        self._run = self.player.fresh_run()
        self._send(self._witness)

    def interfered(self, sent: Sequence[SentRequest]) -> bool:
        """Whether another client can have evicted something. Raises: as `send`."""
        if self._counted is not None:
            own = self._own + sum(len(each.request.tokens) for each in sent)
            counted = self.player.api.prompt_tokens()
            if counted is not None and counted - self._counted > own:
                return True
        return self._witness is not None and not self._send(self._witness).reply.on_device

    def _send(self, witness: ProbeRequest) -> SentRequest:
        self._own += len(witness.tokens)
        return self.player.send(witness, "witness", self._run)


@define
class Reducer:
    """Sends requests of a round again, in namespaces that are fresh each time."""

    player: ProbePlayer
    by: JudgedAgainst
    _left: int = 0
    """Requests that may still be sent again for the finding."""
    _ran_out: str = ""
    """What was not left for the finding to be shown again; empty for nothing."""
    _refuted: bool = False
    """Whether it did not come again."""

    @property
    def starved(self) -> str:
        """What ran out before it was known whether the finding comes again; else empty."""
        return "" if self._refuted else self._ran_out

    def reduce(self, sent: Sequence[SentRequest], finding: ProbeFinding) -> ShownFinding:
        """The fewest requests found that show a finding. Raises: ServerProblem."""
        first = sent[: finding.last + 1]
        shown = [each.request for each in first]
        kept = (CONFIRMATIONS + 1) * (len(shown) + WITNESS_REQUESTS)
        self._left = self.player.requests_left = MOST_REPLAYED + kept
        whole = ShownFinding(finding, tuple(first), repeated=False)
        player, began = self.player, time.monotonic()
        by_luck = any(request.overlaps for request in shown)
        tries = CONFIRMATIONS if by_luck else 1
        again = next(filter(None, (self._shows(shown, finding) for _ in range(tries))), None)
        if again is None:
            return whole
        took = time.monotonic() - began
        smaller = [again]

        def shows(fewer: Sequence[ProbeRequest]) -> bool:
            if self._left <= kept or player.seconds_left <= 0:
                return False
            found = self._shows(fewer, finding)
            if found is not None:
                smaller.append(found)
            return found is not None

        shortest(shown, shows, keeps_last=True, without=without)
        player.deadline = time.monotonic() + 2 * (CONFIRMATIONS + 1) * took + 1
        steady = self._steady(smaller, by_luck=by_luck)
        return steady or (whole if finding.fault in BY_OTHERS else smaller[0])

    def _steady(self, smaller: list[ShownFinding], *, by_luck: bool) -> ShownFinding | None:
        """The smallest that shows the finding again: some depend on what is cached besides.

        What another client can cause must come again each time, while none is seen. So must what
        was found while a request went on during others: with fewer of them it can be luck.
        """
        doubted = smaller[0].finding.fault in BY_OTHERS
        self._ran_out, self._refuted = "", False
        for each in reversed(smaller):
            requests = [sent.request for sent in each.requests]
            times = range(CONFIRMATIONS if doubted or by_luck else 1)
            if all(self._shows(requests, each.finding, alone=doubted) for _ in times):
                return each
        return None

    def _shows(
        self, shown: Sequence[ProbeRequest], finding: ProbeFinding, *, alone: bool = False
    ) -> ShownFinding | None:
        """The finding as fewer requests show it; None if they do not, or no time is left.

        If `alone`, it does not count where another client used the server, or can have.
        """
        self._left -= len(shown)
        if self.player.seconds_left <= 0:
            self._ran_out = SECONDS
        in_time = self._left >= 0 and self.player.seconds_left > 0
        if not (in_time and self.player.begin_empty()):
            return None
        run = self.player.fresh_run()
        others = OtherClients(self.player, finding, self.by.page) if alone else None
        try:
            with RequestSequence(self.player, run) as sequence:
                for at, request in enumerate(shown):
                    if others is not None:
                        others.before(at, request)
                    sequence.send(request, finding.round)
                sequence.finish()
            if others is not None and others.interfered(sequence.sent):
                self._refuted = True
                return None
        except OutOfBudget as error:
            self._ran_out = str(error)
            return None
        sent, last = sequence.sent, len(sequence.sent) - 1
        for each in judge_sent(sent, self.by):
            if each.fault is finding.fault and each.last == last:
                return ShownFinding(each, tuple(sent), repeated=True)
        if any(each.reply.aborted and not each.request.abort_after for each in sent):
            # A client left for want of time; some servers say only at the end what they found.
            self._ran_out = SECONDS
        else:
            self._refuted = True
        return None


def without(requests: Sequence[ProbeRequest], left_out: Iterable[int]) -> list[ProbeRequest]:
    """The other requests; long ones still overlap those of the next that are left."""
    dropped = set(left_out)
    kept = [at for at in range(len(requests)) if at not in dropped]
    return [
        evolve(requests[at], overlaps=sum(at < each <= at + requests[at].overlaps for each in kept))
        for at in kept
    ]
