"""Sends requests, and keeps what came: within a number of requests and of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from attrs import define, evolve, field

from kvcanon.conformance.probe.rounds import renamed_spaces
from kvcanon.conformance.probe.running import RunningRequest
from kvcanon.conformance.probe.sharing import SentRequest
from kvcanon.conformance.probe.talk import EngineApi, EngineFacts, Leaves, ProbeReply, ProbeRequest

WAKE_SECONDS = 300.0
"""How long the first prompt may take. vLLM for CPUs compiles for 20 s to minutes before it."""

Log = Callable[[ProbeRequest, SentRequest], None]


class OutOfBudget(Exception):
    """No request or no second is left."""


class Beside(Protocol):
    """What is looked at beside the answers: the stream of events."""

    def settle(self, round_name: str) -> float:
        """Wait until nothing comes."""

    def promise(self, request: ProbeRequest) -> object:
        """What is promised for a request that is not sent yet."""

    def compare(
        self, promised: object, real: ProbeRequest, sent: SentRequest, facts: EngineFacts
    ) -> bool:
        """Compare the promise with what was served; False if events came too late for that."""


@define
class ProbePlayer:
    """Sends to one server, request after request."""

    api: EngineApi
    facts: EngineFacts
    run: str
    """A word that no other run has; it is put before salts."""
    deadline: float
    requests_left: int
    beside: Beside | None = None
    log: Log | None = None
    clock: Callable[[], float] = time.monotonic
    computed: int = 0
    """Tokens that the server computed so far."""
    busy_seconds: float = 0.0
    _runs: int = field(default=0)

    def fresh_run(self) -> str:
        """A word for salts that were never sent."""
        self._runs += 1
        return f"{self.run}.{self._runs}"

    def send(self, request: ProbeRequest, round_name: str, run: str) -> SentRequest:
        """Send one request in the namespaces of a run. Raises: OutOfBudget, ServerProblem."""
        if self.requests_left <= 0 or self.clock() >= self.deadline:
            raise OutOfBudget
        self.requests_left -= 1
        real = self._real(request, run)
        promised = None if self.beside is None else self.beside.promise(real)
        began, clock = time.time(), self.clock()
        reply = self.api.generate(real, self._leaves(real))
        self.busy_seconds += self.clock() - clock
        sent = SentRequest(request, reply, round_name, began)
        self.computed += max(0, sent.computed)
        in_time = self.beside is None or self.beside.compare(promised, real, sent, self.facts)
        if self.log is not None and in_time:
            self.log(real, sent)
        return sent

    def begin(self, request: ProbeRequest, round_name: str, run: str) -> RunningRequest:
        """Send a request, and return once its first token came. Raises: OutOfBudget, ServerProblem.

        Its client leaves after half of the time that is left, so that a slow reply does not take
        the time of all later rounds.
        """
        if self.requests_left <= 0 or self.clock() >= self.deadline:
            raise OutOfBudget
        self.requests_left -= 1
        if self.beside is not None:
            self.beside.settle(round_name)
        deadline = self.clock() + self.seconds_left / 2
        running = RunningRequest(
            self.api, request, self._real(request, run), lambda _count: self.clock() >= deadline
        )
        running.start()
        return running

    def end(self, running: RunningRequest, round_name: str, lasted: int) -> SentRequest:
        """Wait for the reply of a request that was begun. Raises: ServerProblem."""
        reply = running.wait()
        sent = SentRequest(running.request, reply, round_name, running.began, lasted)
        self.computed += max(0, sent.computed)
        if self.beside is not None:
            self.beside.settle(round_name)
        return sent

    def cold(self, request: ProbeRequest, count: int, *, may_flush: bool) -> ProbeReply | None:
        """The reply to a prompt of which nothing is cached; None if that cannot be arranged.

        Raises: OutOfBudget, ServerProblem.
        """
        if not self.facts.salts:
            if not may_flush:
                return None
            self.api.flush()
        salt = "cold" if self.facts.salts else ""
        space = evolve(request.space, salt=salt, extra_key="")
        alone = evolve(request, space=space, count=count, abort_after=0, overlaps=0)
        return self.send(alone, "without a cache", self.fresh_run()).reply

    def wake(self, request: ProbeRequest) -> None:
        """Send the first prompt of all, with more patience, and take no time off the rounds for it.

        An engine may compile what it needs for log-probabilities when they are first asked for.

        Raises: OutOfBudget, ServerProblem.
        """
        api, began = self.api, self.clock()
        self.api = api.patient(WAKE_SECONDS)
        try:
            self.send(request, "the first prompt", self.fresh_run())
        finally:
            self.api = api
            self.deadline += self.clock() - began
            self.busy_seconds, self.computed = 0.0, 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - self.clock()

    def seconds_for(self, tokens: int) -> float:
        """About how long the server takes to compute so many tokens."""
        return tokens * self.busy_seconds / self.computed if self.computed else 0.0

    def _leaves(self, request: ProbeRequest) -> Leaves | None:
        """When its client leaves; None if it waits for the whole reply."""
        after, deadline = request.abort_after, self.deadline
        if not after:
            return None
        return lambda count: count >= after or self.clock() >= deadline

    def _real(self, request: ProbeRequest, run: str) -> ProbeRequest:
        return renamed_spaces(request, run) if self.facts.salts else request
