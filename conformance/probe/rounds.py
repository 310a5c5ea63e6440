"""What a probe plays: rounds of prompts, each for something that a prefix cache can get wrong.

A round has namespaces of its own, so that its first prompt finds nothing. Later prompts may depend
on replies, since a chat goes on with what was said.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from attrs import frozen

from kvcanon.conformance.probe.lru_order import RETURNS
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
_UNKNOWN_PAGE = 16
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

    @property
    def unit(self) -> int:
        """Tokens by which lengths are measured: a page, or more where pages are tiny."""
        size = self.page.most or self.facts.page_size or _UNKNOWN_PAGE
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
    unfit: Callable[[EngineFacts], Unfit | None] = lambda _facts: None
    """Why it cannot be played to an engine; None if it can."""

    @property
    def fills(self) -> bool:
        """Whether it fills the pool, and so evicts what others have cached."""
        return self.pools > 0


def play_repeats(play: PromptSender) -> None:
    """Prompts of several lengths, each twice in a row: the page size, and the end of a hit."""
    unit, space = play.unit, PromptSpace("repeats")
    lengths = [3 * unit, 4 * unit + 1, 5 * unit - 1, 6 * unit + play.between(2, unit - 1), 7 * unit]
    if play.page.known is None:
        lengths += [play.between(3 * unit, 8 * unit) for _ in range(5)]
    for number, length in enumerate(lengths):
        tokens = play.tokens(length)
        # One token is asked for, so that no window passes before the prompt comes again.
        play.ask(f"prompt {number} of {length} tokens", tokens, space, 1)
        play.ask(f"prompt {number} again", tokens, space, 1)


def play_chats(play: PromptSender) -> None:
    """Two chats with one system prompt, in turn: each prompt extends an earlier reply."""
    space, system = PromptSpace("chats"), play.tokens(4 * play.unit + play.between(0, play.unit))
    said = [system + play.tokens(play.between(3, play.unit)) for _ in range(2)]
    for turn in range(3):
        for chat in range(2):
            sent = play.ask(f"chat {chat} turn {turn}", said[chat], space, REPLY_TOKENS + 3 * turn)
            said[chat] = sent.kept + play.tokens(play.between(2, play.unit))


def play_forks(play: PromptSender) -> None:
    """Prompts that leave one path at pages and within pages, longest first: each cuts a node."""
    unit, space = play.unit, PromptSpace("forks")
    trunk = play.tokens(9 * unit + play.between(0, unit - 1))
    play.ask("trunk", trunk, space)
    places = [7 * unit, 5 * unit + play.between(1, unit - 1), 4 * unit, 3 * unit - 1, 2 * unit + 1]
    branches = []
    for at in places:
        tokens = trunk[:at] + play.tokens(unit + play.between(1, 2 * unit))
        branches.append((f"branch at {at}", tokens))
        play.ask(*branches[-1], space)
    for at in (6 * unit, 3 * unit):
        play.ask(f"the first {at} of the trunk", trunk[:at], space)
    play.ask("trunk again", trunk, space)
    for name, tokens in branches[::-1]:
        play.ask(f"{name} again", tokens, space)
    longer = trunk + play.tokens(unit)
    play.ask("trunk, longer", longer, space)


def play_mixed(play: PromptSender) -> None:
    """Pages of two prompts behind other pages than before: tokens alone do not make a page."""
    size = play.page.most or play.facts.page_size or _UNKNOWN_PAGE
    step, space = -(-play.unit // size) * size, PromptSpace("mixed")
    one, other = (play.tokens(5 * step + play.between(1, step - 1)) for _ in range(2))
    play.ask("one", one, space)
    play.ask("other", other, space)
    first, second, rest = other[:step], other[step : 2 * step], other[2 * step :]
    play.ask("other behind one", one[: 2 * step] + rest, space)
    play.ask("other but for its first page", play.tokens(step) + second + rest, space)
    play.ask("other in another order", first + rest[:step] + second + rest[step:], space)
    play.ask("its first page four times", first * 4 + play.tokens(3), space)
    play.ask("other again", other, space)


def play_outgrow(play: PromptSender) -> None:
    """Prompts that outgrow a window and a chunk, then their halves and their continuations."""
    unit, space = play.unit, PromptSpace("outgrow")
    length = _long(play.facts, unit)
    first = play.tokens(length)
    sent = play.ask(f"{length} tokens", first, space)
    play.ask("the same again", first, space)
    half = first[: length // 2 + 1]
    play.ask("its first half", half + play.tokens(3), space)
    play.ask("its first half, again", half + play.tokens(3), space)
    play.ask("it goes on", sent.kept + play.tokens(unit), space)


def play_spaces(play: PromptSender) -> None:
    """One prompt in many namespaces, twice each: none finds what another has left."""
    unit = play.unit
    tokens = play.tokens(5 * unit + play.between(1, unit - 1))
    spaces = [PromptSpace("salt a"), PromptSpace("salt b"), PromptSpace()]
    if play.facts.extra_keys:
        spaces += [PromptSpace("salt a", "key"), PromptSpace("salt a", "other key")]
    spaces += [PromptSpace("salt a", lora=lora) for lora in play.facts.loras[:2]]
    for time in ("once", "again"):
        for space in spaces:
            play.ask(f"{space.words}, {time}", tokens, space)
    longer = tokens + play.tokens(unit)
    for space in spaces[:2]:
        play.ask(f"{space.words}, longer", longer, space)


def play_aborts(play: PromptSender) -> None:
    """Clients that leave while their reply is generated; then the same prompts to the end."""
    unit, space = play.unit, PromptSpace("aborts")
    shared = play.tokens(3 * unit)
    prompts = [shared + play.tokens(unit + play.between(1, 2 * unit)) for _ in range(3)]
    for number, tokens in enumerate(prompts):
        play.send(ProbeRequest(f"aborted {number}", tokens, _reply_to_abort(play), space, 2))
    for number, tokens in enumerate(prompts):
        play.ask(f"prompt {number}, not aborted", tokens, space)


def play_together(play: PromptSender) -> None:
    """Long replies over a shared prefix, while others leave, and press it out of the pool."""
    unit, space, pool = play.unit, PromptSpace("together"), play.facts.pool_tokens or 0
    shared = play.tokens(max(4 * unit, min(16 * unit, pool // 8)) + play.between(1, unit - 1))
    play.ask("the shared prefix", shared, space, 1)
    size = _pressing(play)
    # A prompt is held while it runs, and all that is older leaves before it could.
    fillers = -(-pool * 11 // (10 * size))
    count = _long_reply(play)
    longs = [shared + play.tokens(play.between(1, unit)) for _ in range(3)]
    at = len(play.sent)
    play.send(ProbeRequest("goes on", longs[0], count, space, overlaps=fillers + 3))
    # Others end before it, each in its way: what they let go of is still held, and gets no younger.
    some = max(REPLY_TOKENS, count // 8)
    play.send(ProbeRequest("goes on for a while", longs[1], some, space, overlaps=1))
    play.send(ProbeRequest("leaves", longs[2], count // 2, space, 2))
    for number in range(fillers):
        play.ask(f"filler {number + 1}", play.tokens(size), space, 1)
    play.ask("shares the prefix", shared + play.tokens(unit), space, 1)
    ended = play.sent[at]
    play.ask("continues what went on", ended.kept + play.tokens(unit), space)
    play.ask("shares the prefix, afterwards", shared + play.tokens(unit), space)


def play_pressure(play: PromptSender) -> None:
    """Fill the pool, and come back to what was there before: the oldest first."""
    unit, space, pool = play.unit, PromptSpace("pressure"), play.facts.pool_tokens or 0
    length = max(3 * unit, min(12 * unit, pool // 12)) + play.between(1, unit - 1)
    aborted = [play.tokens(length) for _ in range(2)]
    # The first is cached when a client of its continuation leaves, the second is not.
    play.ask("early, aborted later", aborted[0], space)
    goes_on = (aborted[0] + play.tokens(unit + 1), aborted[1])
    for number, tokens in enumerate(goes_on):
        play.send(ProbeRequest(f"aborted {number}", tokens, _reply_to_abort(play), space, 2))
    kept = [play.tokens(length) for _ in range(2)]
    for number, tokens in enumerate(kept):
        play.ask(f"early {number}", tokens, space)
    nested = play.tokens(length)
    short = nested[: length // 2]
    play.ask("nested, short", short, space)
    play.ask("nested, long", nested, space)
    fills = _fill(play, space, int(pool * 1.2) + 2 * length)
    for number, tokens in enumerate(aborted):
        play.ask(f"{RETURNS}: aborted {number}", tokens, space)
    for number, tokens in enumerate(kept):
        play.ask(f"{RETURNS}: early {number}", tokens, space)
    # A part of what was loaded at once: attention sums over pages in any order.
    play.ask("nested, long, again", nested, space)
    play.ask("nested, short, with another end", short + play.tokens(unit), space)
    for number in (1, len(fills) // 2, -1):
        tokens = fills[number]
        cut = len(tokens) - unit - 1
        play.ask("a filler by half", tokens[: len(tokens) // 2] + play.tokens(unit), space)
        play.ask("a filler from the middle on", tokens[:cut] + play.tokens(unit), space)
        play.ask("a filler whole", tokens, space)


def play_order(play: PromptSender) -> None:
    """Two prompts, the first of them again, and fillers for which one of the two must leave."""
    unit, space, pool = play.unit, PromptSpace("order"), play.facts.pool_tokens or 0
    length = max(6 * unit, min(32 * unit, pool // 8)) + 1
    first, second = play.tokens(length), play.tokens(length)
    used = 0
    for name, tokens in (("first", first), ("second", second), ("first again", first)):
        used += play.ask(name, tokens, space, 1).computed
    # Half of the prompt that was not used for longest must leave.
    _fill(play, space, pool - used + length // 2, count=1, exact=True)
    play.ask(f"{RETURNS}: second", second, space, 1)
    play.ask(f"{RETURNS}: first", first, space, 1)


def play_window_order(play: PromptSender) -> None:
    """Nested prompts, another, and the longest again: its match must not refresh inner windows."""
    unit, window = play.unit, play.facts.window or 0
    step = 2 * window + 4 * unit
    room = int((play.facts.pool_tokens or 0) * 0.9)
    for share in (0.6, 0.75, 0.9, 1.0):
        space = PromptSpace(f"window order {share}")
        longest = play.tokens(2 * step + unit)
        nested = [longest[: step + 1], longest]
        other = play.tokens(step + 1)
        used = 0
        for name, tokens in (("inner", nested[0]), ("outer", nested[1]), ("other", other)):
            used += play.ask(name, tokens, space, 1).computed
        used += play.ask("outer again", nested[1], space, 1).computed
        left = min(room - used, int((play.facts.window_pool_tokens or 0) * share))
        _fill(play, space, left - 2 * unit, max(unit, window), 1)
        play.ask(f"{RETURNS}: inner", nested[0], space, 1)
        play.ask(f"{RETURNS}: other", other, space, 1)


def _fill(
    play: PromptSender,
    space: PromptSpace,
    tokens: int,
    length: int = 0,
    count: int = REPLY_TOKENS,
    *,
    exact: bool = False,
) -> Sequence[Tokens]:
    """Prompts that share nothing, of so many tokens together; if exact, the last is cut to fit."""
    size = length or max(4 * play.unit, _long(play.facts, play.unit) // 2)
    sent, page = [], play.page.most or play.unit
    while tokens > 0:
        # Of a page in part nothing stays.
        prompt = play.tokens(-(-min(size, tokens) // page) * page if exact else size)
        sent.append(prompt)
        asked = play.ask(f"filler {len(sent)}", prompt, space, count)
        # A cache that finds what was never sent must not be filled for ever.
        tokens -= len(prompt) if exact else max(len(prompt) // 2, asked.computed)
    return sent


def _long(facts: EngineFacts, unit: int) -> int:
    """The length of a long prompt: a third of the smallest pool, and at most 2048 tokens."""
    limits = [2048, facts.context_tokens, facts.pool_tokens, facts.window_pool_tokens]
    shares = [limit // 3 for limit in limits[1:] if limit]
    return max(4 * unit, min([2048, *shares])) + 1


def _pressing(play: PromptSender) -> int:
    """The length of a prompt of which few fill the pool, beside those that go on."""
    facts = play.facts
    limits = [limit for limit in (facts.pool_tokens, facts.window_pool_tokens) if limit]
    context = (facts.context_tokens or 1 << 20) * 3 // 4
    return max(play.unit, min([4096, context, *(limit // 4 for limit in limits)]))


def _long_reply(play: PromptSender) -> int:
    """Tokens of a reply that goes on until the pool was filled."""
    facts = play.facts
    limits = [256, (facts.context_tokens or 1 << 20) // 3, (facts.pool_tokens or 0) // 4]
    return max(REPLY_TOKENS, min(limits))


def _reply_to_abort(play: PromptSender) -> int:
    """A reply so long that its client leaves first."""
    context = play.facts.context_tokens or 1 << 12
    return max(REPLY_TOKENS, min(96, context // 4, (play.facts.pool_tokens or 1 << 12) // 4))


def no_salts(facts: EngineFacts) -> Unfit | None:
    """Why the round of namespaces cannot be played."""
    return None if facts.salts else Unfit("the server takes no cache_salt")


def no_pool(facts: EngineFacts) -> Unfit | None:
    """Why a pool cannot be filled."""
    if facts.pool_tokens:
        return None
    return Unfit("the size of the pool is not known", "give --pool-tokens")


def no_order(facts: EngineFacts) -> Unfit | None:
    """Why the order of prompts cannot be judged; it was said before where the policy is another."""
    if facts.window != 0 or facts.policy != "lru" or facts.has_host is None:
        return Unfit()
    return no_pool(facts)


def no_window(facts: EngineFacts) -> Unfit | None:
    """Why the order of windows cannot be judged."""
    if facts.window == 0:
        return Unfit()
    if not facts.window:
        return Unfit("the size of the window is not known", "give --window, 0 if no layer has one")
    if not facts.pool_tokens or not facts.window_pool_tokens:
        return Unfit("the sizes of the pools are not known")
    if 6 * facts.window > facts.pool_tokens or 2 * facts.window_pool_tokens > 3 * facts.pool_tokens:
        return Unfit("the pools are too small, or windows fill no pool of their own")
    return None


ROUNDS = (
    ProbeRound("repeats", "the same prompt twice", play_repeats),
    ProbeRound("chats", "prompts that extend replies", play_chats),
    ProbeRound("forks", "prompts that leave others at pages and within pages", play_forks),
    ProbeRound("mixed", "pages of two prompts behind other pages", play_mixed),
    ProbeRound("outgrow", "prompts longer than a window or a chunk", play_outgrow),
    ProbeRound(
        "namespaces",
        "one prompt under several salts, keys and adapters",
        play_spaces,
        unfit=no_salts,
    ),
    ProbeRound("aborts", "clients that leave", play_aborts),
    ProbeRound(
        "together",
        "long replies, while others press what they share out of the pool",
        play_together,
        pools=1.3,
        at_once=3,
        unfit=no_pool,
    ),
    ProbeRound(
        "window order",
        "which windows leave first",
        play_window_order,
        pools=4,
        unfit=no_window,
    ),
    ProbeRound(
        "order",
        "which prompt leaves first",
        play_order,
        pools=1.2,
        unfit=no_order,
    ),
    ProbeRound(
        "pressure",
        "a pool that is filled, and prompts that come back",
        play_pressure,
        pools=1.7,
        unfit=no_pool,
    ),
)
"""The rounds, in the order in which they are played."""
