"""Plays a script to a server, and writes down what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import evolve, frozen

from kvcanon.lab.servers.event_listener import LONG_QUIET_MS, QUIET_MS, EventListener, listening
from kvcanon.lab.servers.folded_events import MEDIA
from kvcanon.lab.servers.http_client import (
    ask,
    flush,
    generate,
    generate_and_abort,
    generate_together,
)
from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, ScriptRound, SendOrder
from kvcanon.lab.servers.server_process import last_words, running
from kvcanon.lab.servers.server_setup import NO_CACHE, ServerSetup
from kvcanon.lab.servers.transcript import EngineReply, RoundTranscript, Transcript

TRIES = 20
"""Flushes of an empty cache until an event of one comes; each waits for a quiet time."""
CLIENTS = 8


@frozen
class RoundPlayer:
    """Plays rounds to the server at a port."""

    port: int
    events: EventListener

    def await_events(self) -> None:
        """Flush the empty cache until an event of that comes.

        A publisher sends nothing to a subscriber that it does not know yet, so that the events of
        the first request could be lost.
        """
        for _ in range(TRIES):
            flush(self.port)
            if self.events.settle_cleared().next_batch is not None:
                return

    def play(self, each: ScriptRound) -> RoundTranscript:
        """Play a round. Raises: OSError."""
        if each.flush:
            flush(self.port)
            self.events.settle_cleared()
        if any(request.namespace for request in each.requests):
            self.events.folded.mixed = True
        send: dict[SendOrder, Callable[[Sequence[ScriptedRequest]], list[EngineReply]]] = {
            SendOrder.ONE_BY_ONE: self._one_by_one,
            SendOrder.TOGETHER: lambda requests: generate_together(self.port, requests),
            SendOrder.RACING: self._racing,
        }
        replies = tuple(send[each.order](each.requests))
        self._end_steps()
        folded = self.events.settle(quiet_ms=LONG_QUIET_MS)
        pages = {each.value: tuple(sorted(folded.pages.on(each))) for each in MEDIA}
        return RoundTranscript(each.name, replies, pages, folded.removed)

    def _end_steps(self) -> None:
        """Have the scheduler end the step of the last reply, after which it sends its events.

        It answers this itself, between two steps: the second time, that step is over. One that
        ended at an idle check is found here.
        """
        for _ in range(2):
            ask(self.port, "GET", "/server_info")

    def _one_by_one(self, requests: Sequence[ScriptedRequest]) -> list[EngineReply]:
        return [self._watched(each) for each in requests]

    def _watched(self, request: ScriptedRequest) -> EngineReply:
        """Send a request between two looks at the events."""
        plain = not request.namespace and not request.salt
        # The last token is always computed, so its page is never found as a whole.
        overlap = self.events.folded.overlap(request.tokens[:-1]) if plain else ()
        reply = self._send(request)
        self._end_steps()
        # All but the last token, which was not computed. Of a retracted request pages may be gone.
        kept = plain and request.abort_after == 0 and not reply.retractions
        cached = request.tokens + reply.tokens[:-1] if kept else ()
        quiet_ms = QUIET_MS if kept else LONG_QUIET_MS
        resident = self.events.settle(cached, quiet_ms).resident()
        return evolve(reply, resident=resident, overlap=overlap)

    def _racing(self, requests: Sequence[ScriptedRequest]) -> list[EngineReply]:
        with ThreadPoolExecutor(CLIENTS) as clients:
            return list(clients.map(self._send, requests))

    def _send(self, request: ScriptedRequest) -> EngineReply:
        send = generate_and_abort if request.abort_after else generate
        return send(self.port, request)


def play(script: EngineScript, setup: ServerSetup, model: Path, folder: Path) -> Transcript:
    """Start a server, play a script to it, and stop it. Raises: UsageError, if it does not start.

    A server that ends while it is played to gives a transcript up to there, with its last words.
    """
    rounds: list[RoundTranscript] = []
    with (
        running(setup, model, folder) as server,
        listening(server.ports.events, script.page_size) as events,
    ):
        player = RoundPlayer(server.ports.http, events)
        death = ""
        try:
            if setup.core != NO_CACHE:
                player.await_events()
            rounds.extend(map(player.play, script.rounds))
        except OSError as error:
            death = server.death or f"{error}; {last_words(server.log)}"
        core = "" if setup.core == NO_CACHE else server.core
        faults = tuple(events.folded.faults)
    return Transcript(setup.name, core, tuple(rounds), faults, death)
