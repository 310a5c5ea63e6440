"""Generated requests: people of several tenants chat with a model, all at the same time.

A conversation begins with one of the system prompts, which are the same texts for every tenant.
Each turn sends the whole conversation and adds a user message; the answer joins the conversation,
so that the next prompt extends this one. Conversations are interleaved, and many end early.

Tenants send equal tokens on purpose. They share no page, since each is a namespace of its own: a
cache that mixes namespaces up hits more than it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

from attrs import frozen

from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.types import Namespace


@frozen
class Chat:
    """The parameters of the chats. Lengths are in tokens; a pair is the least and the most."""

    conversations: int = 200
    seed: int = 0
    tenants: int = 3
    system_prompts: int = 2
    system_tokens: int = 96
    message_tokens: tuple[int, int] = (4, 60)
    """A user's message."""
    answer_tokens: tuple[int, int] = (4, 90)
    """The model's answer."""
    turns_at_most: int = 8
    abandon: float = 0.15
    """Chance that a conversation ends early after a turn."""
    at_once: int = 8
    """Conversations that are active at the same time."""

    def requests(self) -> tuple[Request, ...]:
        """Return the requests in the order of arrival: the same for equal parameters."""
        return tuple(self._requests())

    def _requests(self) -> Iterator[Request]:
        random = Random(self.seed)
        texts = [_text(random, self.system_tokens) for _ in range(self.system_prompts)]
        waiting = self.conversations
        open_now: list[_Conversation] = []
        arrival_ms = 0
        while waiting or open_now:
            if waiting and len(open_now) < self.at_once:
                waiting -= 1
                tenant = Namespace(extra_key=f"tenant-{_below(random, self.tenants)}")
                open_now.append(_Conversation(tenant, texts[_below(random, len(texts))]))
                continue
            at = _below(random, len(open_now))
            conversation = open_now[at]
            arrival_ms += _below(random, 100)
            conversation.say(_text(random, _between(random, self.message_tokens)))
            yield conversation.request(arrival_ms)
            conversation.say(_text(random, _between(random, self.answer_tokens)))
            if conversation.turns == self.turns_at_most or random.random() < self.abandon:
                del open_now[at]


class _Conversation:
    """The tokens so far. The list only grows, so that all its requests share it."""

    def __init__(self, tenant: Namespace, system_prompt: list[int]) -> None:
        self.turns = 0
        self._tenant = tenant
        self._tokens = list(system_prompt)

    def say(self, text: list[int]) -> None:
        self._tokens.extend(text)

    def request(self, arrival_ms: int) -> Request:
        self.turns += 1
        length = len(self._tokens)
        return Request(length, partial(_first, self._tokens, length), self._tenant, arrival_ms)


def _first(tokens: list[int], length: int) -> tuple[int, ...]:
    return tuple(tokens[:length])


# Of a seeded `Random`, only `random()` gives the same numbers under every version of Python.


def _below(random: Random, limit: int) -> int:
    return int(random.random() * limit)


def _between(random: Random, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return least + _below(random, most - least + 1)


_VOCABULARY = tuple(range(1 << 17))


def _text(random: Random, length: int) -> list[int]:
    return [_VOCABULARY[_below(random, len(_VOCABULARY))] for _ in range(length)]
