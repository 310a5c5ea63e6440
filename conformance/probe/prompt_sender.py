"""What a round is, and what it draws prompts from and sends them with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from attrs import frozen

from kvcanon.conformance.probe.talk import (
    EngineFacts,
    PageRange,
    ProbeRequest,
    PromptSpace,
    SentRequest,
    Tokens,
)

REPLY_TOKENS = 6
"""Tokens that are generated for a prompt: enough for a wrong cache to show."""
FIRST_TOKEN = 5
"""Smaller ones are special in many vocabularies."""
UNKNOWN_PAGE = 16
"""The page size that lengths are drawn for while nothing is known."""
_LEAST_UNIT = 8


@frozen
class PromptSender:
    """What a round needs: where it draws from, what is known, and how it sends."""

    rng: random.Random
    facts: EngineFacts
    page: PageRange
    vocabulary: int
    send: Callable[[ProbeRequest], SentRequest]
    sent: Sequence[SentRequest] = ()
    """What was sent so far, with the replies that have ended."""
    change: Callable[[], None] = lambda: None
    """Replaces weights or adapters of the server."""

    @property
    def unit(self) -> int:
        """Tokens by which lengths are measured: a page, or more where pages are tiny."""
        size = self.page.most or self.facts.page_size or UNKNOWN_PAGE
        fits = (self.facts.context_tokens or 1 << 20) // 16
        return max(2, min(max(size, _LEAST_UNIT), fits))

    def tokens(self, count: int) -> Tokens:
        """Random tokens."""
        return tuple(self.rng.randrange(FIRST_TOKEN, self.vocabulary) for _ in range(count))

    def between(self, least: int, most: int) -> int:
        """A random number."""
        return self.rng.randint(least, most)

    def ask(
        self, name: str, tokens: Tokens, space: PromptSpace, count: int = REPLY_TOKENS
    ) -> SentRequest:
        """Send a prompt, and wait for the reply."""
        return self.send(ProbeRequest(name, tokens, count, space))


@frozen
class Unfit:
    """Why a round cannot be played to an engine."""

    words: str = ""
    """Empty where the round does not apply, or where it was said before."""
    mend: str = ""
    """What the user can do; empty for nothing."""


@frozen
class ProbeRound:
    """A round: its name, what it is for, and how it is played."""

    name: str
    purpose: str
    play: Callable[[PromptSender], None]
    pools: float = 0
    """About how many tokens it computes, in pools; 0 for few."""
    at_once: int = 1
    """The most requests that it has running at one time."""
    changes: bool = False
    """Whether it replaces weights or adapters, and so needs to know how."""
    unfit: Callable[[EngineFacts], Unfit | None] = lambda _facts: None
    """Why it cannot be played to an engine; None if it can."""

    @property
    def fills(self) -> bool:
        """Whether it fills the pool, and so evicts what others have cached."""
        return self.pools > 0
