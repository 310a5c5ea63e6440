"""Rounds that fill the pool: what leaves it, and what must stay."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.conformance.probe.light_rounds import long_prompt_length, reply_to_abort
from kvcanon.conformance.probe.lru_order import RETURNS
from kvcanon.conformance.probe.prompt_sender import REPLY_TOKENS, PromptSender
from kvcanon.conformance.probe.talk import EngineFacts, ProbeRequest, PromptSpace, Tokens

CROWD_SHARE = 0.45
"""The part of a pool that each of three requests takes: there is room for two of them."""


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


def play_crowded(play: PromptSender) -> None:
    """Three requests that have no room together: one waits, or is taken back and computed again."""
    unit, space = play.unit, PromptSpace("crowded")
    for reply, name in ((_long_reply(play), "grows"), (REPLY_TOKENS, "waits")):
        shared = play.tokens(2 * unit)
        play.ask(f"{name}, what all share", shared, space, 1)
        length = crowd_tokens(play.facts) - reply - len(shared)
        prompts = [shared + play.tokens(length + play.between(0, unit - 1)) for _ in range(3)]
        for number, tokens in enumerate(prompts[:2]):
            asked = ProbeRequest(f"{name}, {number}", tokens, reply, space, overlaps=2 - number)
            play.send(asked)
        play.ask(f"{name}, 2", prompts[2], space, reply)
        for number, tokens in enumerate(prompts):
            play.ask(f"{name}, {number}, again", tokens, space, 2)


def crowd_tokens(facts: EngineFacts) -> int:
    """Tokens of a prompt with its reply, of which the pool has no room for three."""
    return int((facts.pool_tokens or 0) * CROWD_SHARE)


def play_pressure(play: PromptSender) -> None:
    """Fill the pool, and come back to what was there before: the oldest first."""
    unit, space, pool = play.unit, PromptSpace("pressure"), play.facts.pool_tokens or 0
    length = max(3 * unit, min(12 * unit, pool // 12)) + play.between(1, unit - 1)
    aborted = [play.tokens(length) for _ in range(2)]
    # The first is cached when a client of its continuation leaves, the second is not.
    play.ask("early, aborted later", aborted[0], space)
    goes_on = (aborted[0] + play.tokens(unit + 1), aborted[1])
    for number, tokens in enumerate(goes_on):
        play.send(ProbeRequest(f"aborted {number}", tokens, reply_to_abort(play), space, 2))
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
    size = length or max(4 * play.unit, long_prompt_length(play.facts, play.unit) // 2)
    sent, page = [], play.page.most or play.unit
    while tokens > 0:
        # Of a page in part nothing stays.
        prompt = play.tokens(-(-min(size, tokens) // page) * page if exact else size)
        sent.append(prompt)
        asked = play.ask(f"filler {len(sent)}", prompt, space, count)
        # A cache that finds what was never sent must not be filled for ever.
        # The beginning of a template is cached.
        whole = len(prompt) + asked.reply.added
        took = whole - (asked.reply.cached or 0) if exact else asked.computed
        tokens -= max(whole // 2, took)
    return sent


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
