"""Sends requests, and keeps the replies, within limits of requests and seconds.

Requests of a run go out one after the other; some go on while the next are sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

from attrs import define, evolve, field

from kvcanon.conformance.probe.talk import (
    EngineApi,
    EngineFacts,
    Leaves,
    ProbeReply,
    ProbeRequest,
    SentRequest,
)
from kvcanon.conformance.probe.transport import ServerProblem

if TYPE_CHECKING:  # It needs the extra `live`.
    from kvcanon.conformance.probe.beside import StreamBeside

WAKE_SECONDS = 300.0
"""How long the first prompt may take. vLLM for CPUs compiles for 20 s to minutes before it."""

SECONDS, REQUESTS, TOKENS = "seconds", "requests", "tokens"
"""What a probe has so much of and no more: the names of its options."""

_NO_REPLY = ProbeReply((), None, aborted=True)


class OutOfBudget(Exception):
    """No request, no second or no token is left; the text names which of them."""


@define(eq=False)
class RunningRequest:
    """A request whose reply another thread reads while others are sent."""

    api: EngineApi
    request: ProbeRequest
    real: ProbeRequest
    """The request as it is sent."""
    leaves: Leaves
    """Whether its client leaves; it leaves after `leave`, too."""
    began: float = field(factory=time.time)
    """Seconds since 1970."""
    at: int = 0
    """Its place in its sequence."""
    since: int = 0
    """Requests that were answered since."""
    lasted: int = 0
    """How many of them while its reply was still generated."""
    _generated: int = 0
    _reply: Future[ProbeReply] = field(factory=Future)
    _begun: Event = field(factory=Event)
    _left: bool = False

    def start(self) -> None:
        """Send it, and return once its first token came. Raises: ServerProblem."""
        Thread(target=self._read, daemon=True).start()
        self._begun.wait()
        if self._reply.done():
            self._reply.result()

    def count(self) -> None:
        """Count a request that was answered."""
        goes_on = not self._reply.done() and self._generated < self.request.count
        self.lasted += goes_on and self.lasted == self.since
        self.since += 1

    def wait(self) -> ProbeReply:
        """The reply, once it has ended. Raises: ServerProblem."""
        return self._reply.result()

    def leave(self) -> None:
        """Let the client leave at the next token, and wait until it has."""
        self._left = True
        self._reply.exception()

    def _read(self) -> None:
        try:
            self._reply.set_result(self.api.generate(self.real, self._leaves))
        except BaseException as error:  # noqa: BLE001  # It is raised where the reply is waited for.
            self._reply.set_exception(error)
        finally:
            self._begun.set()

    def _leaves(self, count: int) -> bool:
        self._generated = count
        if count:
            self._begun.set()
        return self._left or self.leaves(count)


@define
class ProbePlayer:
    """Sends to one server, request after request."""

    api: EngineApi
    facts: EngineFacts
    run: str
    """A word that no other run has; it is put before salts."""
    deadline: float
    requests_left: int
    tokens_left: float = math.inf
    """Tokens that the server may still be made to compute."""
    rate: float = math.inf
    """Requests that may begin in a second."""
    beside: StreamBeside | None = None
    """What is looked at beside the answers: the stream of events."""
    log: Callable[[ProbeRequest, SentRequest], None] | None = None
    may_flush: bool = False
    """Whether the cache may be emptied, where a server takes no salts."""
    computed: int = 0
    """Tokens that the server computed so far."""
    busy_seconds: float = 0.0
    _runs: int = field(default=0)
    _next_turn: float = field(default=0.0)
    """When the next request may begin."""

    def fresh_run(self) -> str:
        """A prefix for salts that no request has had yet."""
        self._runs += 1
        return f"{self.run}.{self._runs}"

    def send(self, request: ProbeRequest, round_name: str, run: str) -> SentRequest:
        """Send one request in the namespaces of a run. Raises: OutOfBudget, ServerProblem."""
        self._take_turn(request)
        real = self._real(request, run)
        promised = None
        # The tokens of a chat are not known, and so not what the stream promises for it.
        if self.beside is not None and not self.facts.chats:
            promised = self.beside.promise(real)
        began, clock = time.time(), time.monotonic()
        reply = self.api.generate(real, self._leaves(real))
        self.busy_seconds += time.monotonic() - clock
        sent = SentRequest(request, reply, round_name, began)
        self._count(sent)
        in_time = self.beside is None or self.beside.compare(promised, real, sent, self.facts)
        if self.log is not None and in_time:
            self.log(real, sent)
        return sent

    def begin(self, request: ProbeRequest, round_name: str, run: str) -> RunningRequest:
        """Send a request, and return once its first token came. Raises: OutOfBudget, ServerProblem.

        Its client leaves after half of the time that is left, so that a slow reply does not take
        the time of all later rounds.
        """
        self._take_turn(request)
        if self.beside is not None:
            self.beside.settle(round_name)
        deadline = time.monotonic() + self.seconds_left / 2
        running = RunningRequest(
            self.api, request, self._real(request, run), lambda _count: time.monotonic() >= deadline
        )
        running.start()
        return running

    def end(self, running: RunningRequest, round_name: str) -> SentRequest:
        """Wait for the reply of a request that was begun. Raises: ServerProblem."""
        reply = running.wait()
        sent = SentRequest(running.request, reply, round_name, running.began, running.lasted)
        self._count(sent)
        if self.beside is not None:
            self.beside.settle(round_name)
        return sent

    def begin_empty(self) -> bool:
        """Empty the cache if there are no salts; returns whether nothing of a fresh run is cached.

        Raises: ServerProblem.
        """
        if not self.facts.salts and self.may_flush:
            self.api.flush()
        return self.facts.salts or self.may_flush

    def cold(self, request: ProbeRequest, count: int) -> ProbeReply | None:
        """The reply to a prompt without a cache; None if neither a salt nor a flush can be used.

        Raises: OutOfBudget, ServerProblem.
        """
        if not self.begin_empty():
            return None
        salt = "cold" if self.facts.salts else ""
        space = evolve(request.space, salt=salt, extra_key="")
        usual = ProbeRequest(request.name, request.tokens, count, space)
        return self.send(usual, "without a cache", self.fresh_run()).reply

    def wake(self, request: ProbeRequest) -> None:
        """Send the first prompt of all, with more patience, and take no time off the rounds for it.

        An engine may compile what it needs for log-probabilities when they are first asked for.

        Raises: OutOfBudget, ServerProblem.
        """
        api, began = self.api, time.monotonic()
        self.api = api.patient(WAKE_SECONDS)
        try:
            self.send(request, "the first prompt", self.fresh_run())
        finally:
            self.api = api
            self.deadline += time.monotonic() - began
            self.busy_seconds, self.computed = 0.0, 0

    def ask_again(self, request: ProbeRequest) -> None:
        """Send a prompt that is not judged, whatever is left, to see whether the server answers.

        Raises: ServerProblem.
        """
        self.requests_left -= 1
        self.api.generate(self._real(request, self.fresh_run()))
        if self.beside is not None:
            self.beside.settle(request.name)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def seconds_for(self, tokens: int) -> float:
        """About how long the server takes to compute this many tokens."""
        return tokens * self.busy_seconds / self.computed if self.computed else 0.0

    def _take_turn(self, request: ProbeRequest) -> None:
        """Wait until a request may begin, and take it off what is left. Raises: OutOfBudget."""
        most = _most_tokens(request)
        if self.tokens_left < most:
            raise OutOfBudget(TOKENS)
        if self.requests_left <= 0:
            raise OutOfBudget(REQUESTS)
        wait = self._next_turn - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, max(0.0, self.seconds_left)))
        if self.seconds_left <= 0:
            raise OutOfBudget(SECONDS)
        self._next_turn = max(self._next_turn, time.monotonic()) + 1 / self.rate
        self.requests_left -= 1
        self.tokens_left -= most

    def _count(self, sent: SentRequest) -> None:
        """Count what a request made the server compute, which is less where a part was cached."""
        computed = max(0, sent.computed)
        self.computed += computed
        self.tokens_left += _most_tokens(sent.request) - computed

    def _leaves(self, request: ProbeRequest) -> Leaves | None:
        """When its client leaves; None if it waits for the whole reply."""
        after, deadline = request.abort_after, self.deadline
        if not after:
            return None
        return lambda count: count >= after or time.monotonic() >= deadline

    def _real(self, request: ProbeRequest, run: str) -> ProbeRequest:
        """The request with its salt made that of a run, so that its namespace is empty before."""
        space = request.space
        if not (self.facts.salts and space.salt):
            return request
        return evolve(request, space=evolve(space, salt=f"{run} {space.salt}"))


def _most_tokens(request: ProbeRequest) -> int:
    """What a request takes where nothing of it is cached."""
    return len(request.tokens) + request.count


@define
class RequestSequence:
    """Requests of one run, in the order in which they began. Leaving the block ends them all."""

    player: ProbePlayer
    run: str
    sent: list[SentRequest] = field(factory=list)
    _open: list[RunningRequest] = field(factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        for each in self._open:
            each.leave()
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
        for each in list(self._open):
            each.count()
            if each.since >= each.request.overlaps:
                self._end(each)
        if running is not None:
            running.at = len(self.sent) - 1
            self._open.append(running)
        return made

    def finish(self) -> None:
        """Wait for all that go on. Raises: ServerProblem."""
        while self._open:
            self._end(self._open[0])

    def _end(self, running: RunningRequest) -> None:
        self.sent[running.at] = self.player.end(running, self.sent[running.at].round)
        self._open.remove(running)


def logged_request(real: ProbeRequest, sent: SentRequest) -> dict[str, Any] | None:
    """A request as a line of a log has it, which `kvcanon.live.served` reads and describes.

    `real` is the request as it was sent. None if it is not known what was cached for it. Events
    leave `extra_key` out, so it is left out here.
    """
    if sent.reply.cached is None or sent.reply.aborted or real.space.extra_key:
        return None
    tiers = sent.reply.tiers
    named = {
        "cached_tokens_details": None if tiers is None else dict(tiers),
        "cache_salt": real.space.salt or None,
        "lora": real.space.lora or None,
    }
    made = {"time": sent.began, "tokens": list(real.tokens), "cached_tokens": sent.reply.cached}
    return made | {name: value for name, value in named.items() if value is not None}
