"""Requests to an engine and its answers, in any dialect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import Factory, evolve, field, frozen

Tokens = tuple[int, ...]
PromptKey = tuple[Tokens, str]
"""A prompt and its LoRA adapter."""
Leaves = Callable[[int], bool]
"""Is given how many tokens came so far, and says whether the client leaves now."""

MOST_NUMBER = 1 << 53
"""No count, size or token id of an engine is larger."""
MOST_NAME_LETTERS = 1000
MOST_PAGE_TOKENS = 1 << 16
LARGEST_LOGPROB = 9999.0
LEAST_CONTEXT_TOKENS = 64
"""Shorter contexts have no room for the prompts of the first round."""

DEVICE, HOST, STORAGE = "device", "host", "storage"

SAID = 1 << 40
"""Token ids from here on stand for texts that a chat server replied; no vocabulary has them."""


@frozen
class PromptSpace:
    """Where a prompt is cached. Prompts of two spaces never share.

    Salts are labels: each run and each replay puts a fresh word before them, so that a space is
    empty when its first prompt comes.
    """

    salt: str = ""
    extra_key: str = ""
    lora: str = ""

    @property
    def words(self) -> str:
        """The space as it is printed."""
        named = {"salt": self.salt, "extra_key": self.extra_key, "LoRA": self.lora}
        return ", ".join(f"{name} {value!r}" for name, value in named.items() if value) or "no salt"


@frozen
class ProbeRequest:
    """A prompt, and how many tokens to generate."""

    name: str
    tokens: Tokens
    count: int
    space: PromptSpace = PromptSpace()
    abort_after: int = 0
    """Generated tokens after which the client leaves; 0 for never."""
    overlaps: int = 0
    """Requests that are sent while its reply is still generated; then the client waits for it."""
    stop_token: int | None = None
    """A token with which the reply ends; None for none."""
    stop_text: str = ""
    """A text with which the reply ends; empty for none."""
    is_before_change: bool = False
    """Whether weights or adapters are replaced after it, so that its data is of other weights."""

    @property
    def stops(self) -> bool:
        """Whether its reply may end before it has `count` tokens."""
        return self.stop_token is not None or bool(self.stop_text)

    @property
    def key(self) -> PromptKey:
        """What the right reply depends on."""
        return self.tokens, self.space.lora


@frozen
class TokenScore:
    """A generated token, and the log-probabilities of the likeliest tokens at its place."""

    token: int
    logprob: float
    likeliest: Mapping[int, float] = Factory(dict)

    def of(self, token: int) -> float | None:
        """The log-probability of a token at this place, if the engine gave it."""
        return self.logprob if token == self.token else self.likeliest.get(token)

    def most_of(self, token: int) -> float:
        """The log-probability of a token; if not listed, that of the least likely listed token."""
        said = self.of(token)
        return min([self.logprob, *self.likeliest.values()]) if said is None else said


@frozen
class ProbeReply:
    """What an engine answered to one request."""

    tokens: Tokens
    cached: int | None
    """Cached tokens of the prompt; None if the engine does not say."""
    tiers: Mapping[str, int] | None = None
    """Cached tokens by tier: device, host and storage; None if the engine does not say."""
    scores: tuple[TokenScore, ...] = ()
    aborted: bool = False
    retracted: bool = False
    text: str = ""
    """The reply as text; empty where the server gives none."""
    prompt_tokens: int | None = None
    """Tokens of the prompt, as the server counts them; None if it does not say."""
    generated: int | None = None
    """Tokens of the reply, as the server counts them; None if it does not say."""
    added: int = 0
    """Tokens that the template of a chat adds to the prompt."""

    @property
    def on_device(self) -> int:
        """Cached tokens that were on the device; all if the server does not count by tier."""
        return (self.cached or 0) if self.tiers is None else self.tiers.get(DEVICE, 0)


@frozen
class SentRequest:
    """A request that was sent, and its reply."""

    request: ProbeRequest
    reply: ProbeReply
    round: str = ""
    began: float = 0.0
    """Seconds since 1970."""
    lasted: int = 0
    """How many of the next requests were answered while its reply was still generated."""

    @property
    def kept(self) -> Tokens:
        """The tokens whose data the request can have left."""
        return self.request.tokens + self.reply.tokens

    @property
    def computed(self) -> int:
        """Tokens that took new slots."""
        return len(self.kept) + self.reply.added - (self.reply.cached or 0)


def number_in(value: object) -> int:
    """A count or a token id in an answer. Raises: ValueError: it is neither."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_NUMBER:
        raise ValueError(f"a {type(value).__name__} where a number of tokens should be")
    return value


def name_in(value: object) -> str:
    """The name of a model or of an adapter in an answer. Raises: ValueError: it is none."""
    if not isinstance(value, str) or not value or len(value) > MOST_NAME_LETTERS:
        raise ValueError(f"a {type(value).__name__} where a name should be, or no usual one")
    return value


def text_in(value: object) -> str:
    """The text of a reply in an answer; empty for none. Raises: ValueError, if it is no text."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} where the text of a reply should be")
    return value or ""


def logprob_in(value: object) -> float:
    """A log-probability in an answer. Raises: ValueError: it is no such value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"a {type(value).__name__} where a log-probability should be")
    # The least likely tokens of some engines have minus infinity, of which no difference is known.
    return max(-LARGEST_LOGPROB, min(LARGEST_LOGPROB, float(value)))


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@frozen
class PageRange:
    """What the page size can be; both ends are equal where the engine says it."""

    least: int = 1
    most: int | None = None
    """None while nothing is known."""

    @property
    def known(self) -> int | None:
        """The page size, where it is certain."""
        return self.least if self.least == self.most else None

    def floor_most(self, tokens: int) -> int:
        """The most of these tokens that whole pages can hold."""
        return tokens // self.least * self.least

    def floor_least(self, tokens: int) -> int:
        """The fewest of these tokens that whole pages must hold; 0 if the page size is unknown."""
        return tokens // self.most * self.most if self.most else 0


@frozen
class EngineFacts:
    """What an engine says of itself; None where it does not."""

    api: str
    version: str = ""
    model: str = ""
    loras: tuple[str, ...] = ()
    page_size: int | None = None
    context_tokens: int | None = None
    pool_tokens: int | None = None
    window_pool_tokens: int | None = None
    window: int | None = None
    """Tokens of the sliding window; 0 if every layer attends to all tokens, so that a prefix can be
    used wherever a page ends."""
    has_host: bool | None = None
    policy: str | None = None
    """The order of eviction, as `lru`."""
    ranks: int = 1
    """Data-parallel ranks, each with a cache of its own."""
    speculative: bool = False
    """Whether it decodes speculatively: a draft model needs the last page of a hit again."""
    keeps_replies: bool = False
    """Whether the next prompt can reuse the reply that it goes on from."""
    chats: bool = False
    """Whether prompts are messages of a chat: their tokens are words, and a template adds more."""
    vocabulary: int | None = None
    """Token ids of prompts are below it; None where any id is one of the model."""
    cache_off: bool = False
    salts: bool = True
    extra_keys: bool = False
    not_said: tuple[str, ...] = field(default=())
    """What this server does not say, and how it can be made to."""

    def but(self, **by_user: int | None) -> EngineFacts:
        """The facts with those that the user gives in place of them; None gives nothing."""
        given: dict[str, Any] = {name: each for name, each in by_user.items() if each is not None}
        return evolve(self, **given)


class EngineApi(Protocol):
    """The dialect of one server. Every method may raise `ServerProblem`."""

    def facts(self) -> EngineFacts:
        """Ask what the server says of itself."""

    def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
        """Send a request, and wait for its reply; streamed if `leaves` can end it before."""

    def prompt(self, tokens: Tokens) -> Sequence[object]:
        """A prompt as it is sent: token ids, or messages of a chat."""

    def patient(self, seconds: float) -> EngineApi:
        """The same server, with at least this many seconds for an answer."""

    def flush(self) -> None:
        """Empty the cache. Raises: ServerProblem, if it is refused."""

    def prompt_tokens(self) -> float | None:
        """Prompt tokens of all requests that it served so far; None if it does not say."""

    def held_share(self) -> float | None:
        """The share of the pool that is held while no request runs; None if it does not say."""
