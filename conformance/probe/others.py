"""Tells whether another client can have evicted what is missed while requests are sent again."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from attrs import define, field

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.sharing import PageRange, SentRequest
from kvcanon.conformance.probe.talk import ProbeRequest, PromptSpace

WITNESS_PAGES = 3
LOOKS = 5
PAUSE_SECONDS = 0.02
WITNESS_REQUESTS = 2


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
        for _ in range(LOOKS):
            if self._counted is None:
                return
            time.sleep(PAUSE_SECONDS)
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
        self._send()

    def interfered(self, sent: Sequence[SentRequest]) -> bool:
        """Whether another client can have evicted something. Raises: as `send`."""
        if self._counted is not None:
            own = self._own + sum(len(each.request.tokens) for each in sent)
            counted = self.player.api.prompt_tokens()
            if counted is not None and counted - self._counted > own:
                return True
        if self._witness is None:
            return False
        return not self._send().reply.on_device

    def _send(self) -> SentRequest:
        if self._witness is None:
            raise RuntimeError("there is no witness")
        self._own += len(self._witness.tokens)
        return self.player.send(self._witness, "witness", self._run)
