"""Judges which prompts are still cached after a pool was filled.

An engine that evicts the least recently used data keeps a prompt only while it keeps all that was
used later. So of two prompts that are asked for again, the one that was used last must not be gone
while the other is there; and a prompt must be gone once as many tokens as the pool holds were
computed after its last use. What stays longer is held by somebody: after an abort, by a lock.

Only the device is looked at: what was loaded back from the host says nothing about the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.sharing import PageRange, SentRequest, shared_length
from kvcanon.conformance.probe.talk import EngineFacts

_SURELY_FITS = 0.95
"""The part of a pool that whole pages fill without an eviction."""

RETURNS = "returns"
"""Names of requests that ask again for what was cached begin with this word."""


def judge_order(
    sent: Sequence[SentRequest], facts: EngineFacts, page: PageRange
) -> Iterator[ProbeFinding]:
    """Prompts that came back, of which one is there and should not be."""
    if facts.policy != "lru" or facts.ranks > 1 or page.known is None:
        return
    for at, each in enumerate(sent):
        if not is_return(each) or not tells_tiers(each, facts):
            continue
        if not is_whole(each, page):
            continue
        used = last_cover(sent[:at], each, page.known)
        if used is None:
            continue
        found = _overstayed(sent, at, used, facts) or _outlived(sent, at, used, facts, page)
        if found is not None:
            yield found


def is_return(each: SentRequest) -> bool:
    """Whether a request asks again for what was cached."""
    return each.request.name.startswith(RETURNS)


def tells_tiers(each: SentRequest, facts: EngineFacts) -> bool:
    """Whether it is known how many of the cached tokens were on the device."""
    return each.reply.cached is not None and (
        each.reply.tiers is not None or facts.has_host is False
    )


def is_whole(each: SentRequest, page: PageRange) -> bool:
    """Whether all pages of a prompt were on the device."""
    whole = page.floor_least(len(each.request.tokens) - 1)
    return whole > 0 and each.reply.on_device >= whole


def last_cover(before: Sequence[SentRequest], each: SentRequest, page_size: int) -> int | None:
    """The last request before that used all pages of a prompt; None if there is none."""
    whole = (len(each.request.tokens) - 1) // page_size * page_size
    for at in range(len(before) - 1, -1, -1):
        other = before[at]
        if other.request.space != each.request.space:
            continue
        if shared_length(each.request.tokens, other.kept) >= whole:
            return at
    return None


def _overstayed(
    sent: Sequence[SentRequest], at: int, used: int, facts: EngineFacts
) -> ProbeFinding | None:
    """A prompt that is there after as many tokens as the pool holds were computed."""
    computed = sum(each.computed for each in sent[used + 1 : at])
    if not facts.pool_tokens or computed <= facts.pool_tokens:
        return None
    each, last = sent[at], sent[used]
    held = last.request.abort_after > 0
    since = "aborted" if held else "last used"
    words = (
        f"{each.round}: {each.request.name}: {each.reply.on_device} tokens are still there, "
        f"{computed} computed tokens after the prompt was {since}, where the pool has "
        f"{facts.pool_tokens}"
    )
    fault = ProbeFault.HELD if held else ProbeFault.ORDER
    bounds = (each.reply.on_device - 1,)
    return ProbeFinding(fault, words, each.round, at, bounds=bounds)


def _outlived(
    sent: Sequence[SentRequest], at: int, used: int, facts: EngineFacts, page: PageRange
) -> ProbeFinding | None:
    """A prompt that is there, while one that was used later and is asked for next is gone."""
    size = page.known or 1
    if at + 1 >= len(sent) or not is_return(sent[at + 1]) or not tells_tiers(sent[at + 1], facts):
        return None
    each, later = sent[at], sent[at + 1]
    later_use = _last_own_use(sent[:at], later)
    windowed = facts.window != 0
    if windowed:
        own = next(n for n, other in enumerate(sent) if other.request.space == each.request.space)
        if not _window_pool_alone(sent[own : at + 1], facts):
            return None
        used = _last_window_use(sent[:at], each, facts, size)
    whole = (len(later.request.tokens) - 1) // size * size
    # The request in between took slots for its last page and its reply.
    took = each.computed + 2 * size
    if later_use is None or later_use <= used or later.reply.on_device >= whole - took:
        return None
    words = (
        f"{each.round}: {each.request.name!r} finds {each.reply.on_device} tokens on the device, "
        f"and {later.request.name!r}, which was used after it, {later.reply.on_device} of {whole}"
    )
    fault = ProbeFault.WINDOW_ORDER if windowed else ProbeFault.ORDER
    bounds = (each.reply.on_device, whole - took)
    return ProbeFinding(fault, words, each.round, at + 1, bounds=bounds)


def _last_own_use(before: Sequence[SentRequest], each: SentRequest) -> int | None:
    """The last request for the same prompt."""
    for at in range(len(before) - 1, -1, -1):
        other = before[at].request
        if other.tokens == each.request.tokens and other.space == each.request.space:
            return at
    return None


def _window_pool_alone(sent: Sequence[SentRequest], facts: EngineFacts) -> bool:
    """Whether no tokens of these requests can have been evicted, but for their windows.

    What was there before them was used before them, and so it leaves first.
    """
    if not facts.window or not facts.pool_tokens or not facts.window_pool_tokens:
        return False
    return sum(each.computed for each in sent) <= facts.pool_tokens * _SURELY_FITS


def _last_window_use(
    before: Sequence[SentRequest], each: SentRequest, facts: EngineFacts, page_size: int
) -> int:
    """The last request that used the window at the end of a prompt.

    A request uses the window at the end of what it finds, and those of all that it computes. One
    that finds a longer prompt uses none in the middle of it.
    """
    end = (len(each.request.tokens) - 1) // page_size * page_size
    reach = (facts.window or 0) + 2 * page_size
    for at in range(len(before) - 1, -1, -1):
        other = before[at]
        if other.request.space != each.request.space:
            continue
        covers = shared_length(each.request.tokens, other.kept)
        if covers > end - reach and (other.reply.cached or 0) - reach <= end:
            return at
    return -1
