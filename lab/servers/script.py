"""The script of an end-to-end run: rounds of requests, and the tokens of each correct reply.

Every server of a model plays the same script, so that replies can be compared request by request.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

Tokens = tuple[int, ...]


class SendOrder(StrEnum):
    """How the requests of a round are sent."""

    ONE_BY_ONE = "one by one"
    """Each after the reply to the one before."""
    TOGETHER = "together"
    """All in one message, so that the scheduler gets them in one step: repeatable."""
    RACING = "racing"
    """By eight clients at a time. Their order depends on the machine, and so do cached tokens."""


@frozen
class ScriptedRequest:
    """A request, and its greedy continuation."""

    name: str
    tokens: Tokens
    """The prompt."""
    expected: Tokens
    """What transformers generates for the prompt; as many tokens are asked for."""
    namespace: str = ""
    """Sent as `extra_key`; empty for none."""
    salt: str = ""
    """Sent as `cache_salt`; empty for none."""
    abort_after: int = 0
    """Generated tokens after which the client aborts the request; 0 for never."""


@frozen
class ScriptRound:
    """Requests that are sent in one order."""

    name: str
    order: SendOrder
    requests: tuple[ScriptedRequest, ...]
    flush: bool = False
    """Whether the cache is emptied before the round."""

    @property
    def repeatable(self) -> bool:
        """Whether cached tokens and events depend on the requests alone."""
        return self.order is not SendOrder.RACING

    @property
    def in_turn(self) -> bool:
        """Whether a request can find only what those before it have left."""
        return self.order is SendOrder.ONE_BY_ONE


@frozen
class EngineScript:
    """What every server of a model plays."""

    model: str
    seed: int
    page_size: int
    rounds: tuple[ScriptRound, ...]

    @property
    def requests(self) -> tuple[ScriptedRequest, ...]:
        """The requests of all rounds, in order."""
        return tuple(request for each in self.rounds for request in each.requests)
