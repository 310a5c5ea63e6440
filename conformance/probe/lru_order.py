"""Judges which prompts are still cached after a pool was filled.

An engine that evicts the least recently used data keeps a prompt only while it keeps all that was
used later. So of two prompts that are asked for again, the one that was used last must not be gone
while the other is there; and a prompt must be gone once as many tokens as the pool holds were
computed after its last use. What stays longer is held by somebody: after an abort, by a lock.

Only the device is looked at: what was loaded back from the host says nothing about the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.talk import EngineFacts, PageRange, SentRequest, shared_length

_SURELY_FITS = 0.95
"""The part of a pool that whole pages fill without an eviction."""

RETURNS = "returns"
"""Names of requests that ask again for what was cached begin with this word."""


def judge_order(
    sent: Sequence[SentRequest], facts: EngineFacts, page: PageRange
) -> Iterator[ProbeFinding]:
    """Prompts that were sent again, one of which is cached and should not be."""
    size = page.known
    if facts.policy != "lru" or facts.ranks > 1 or size is None:
        return
    for at, each in enumerate(sent):
        whole = _whole_pages(each, size, facts)
        if not _is_told_return(each, facts) or not 0 < whole <= each.reply.on_device:
            continue
        used = _last_use(sent[:at], each, partial(_reaches, whole))
        if used is None:
            continue
        found = _overstayed(sent, at, used, facts) or _outlived(sent, at, used, facts, size)
        if found is not None:
            yield found


def _is_told_return(each: SentRequest, facts: EngineFacts) -> bool:
    """Whether it asks again for what was cached, and how much was on the device is known."""
    reply = each.reply
    told = reply.cached is not None and (reply.tiers is not None or facts.has_host is False)
    return told and each.request.name.startswith(RETURNS)


def _whole_pages(each: SentRequest, page_size: int, facts: EngineFacts) -> int:
    """The tokens of a prompt that are whole pages, and are found again.

    Its last token is always computed, and the last page where a draft model needs it.
    """
    pages = (len(each.request.tokens) + each.reply.added - 1) // page_size
    return max(0, pages - facts.speculative) * page_size


def _reaches(tokens: int, _: SentRequest, shared: int) -> bool:
    """Whether a request has at least so many leading tokens of a prompt."""
    return shared >= tokens


def _last_use(
    before: Sequence[SentRequest], each: SentRequest, uses: Callable[[SentRequest, int], bool]
) -> int | None:
    """The last request before that used a prompt; None if there is none.

    `uses` is given a request of its space, and how many leading tokens of the prompt that has.
    """
    for at in range(len(before) - 1, -1, -1):
        other = before[at]
        if other.request.space == each.request.space and uses(
            other, shared_length(each.request.tokens, other.kept)
        ):
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
    sent: Sequence[SentRequest], at: int, used: int, facts: EngineFacts, size: int
) -> ProbeFinding | None:
    """A prompt that is there, while one that was used later and is asked for next is gone."""
    if at + 1 >= len(sent) or not _is_told_return(sent[at + 1], facts):
        return None
    each, later = sent[at], sent[at + 1]
    later_use = _last_use(
        sent[:at], later, lambda other, _: other.request.tokens == later.request.tokens
    )
    windowed = facts.window != 0
    if windowed:
        own = next(n for n, other in enumerate(sent) if other.request.space == each.request.space)
        if not _window_pool_alone(sent[own : at + 1], facts):
            return None
        used = _last_window_use(sent[:at], each, facts, size)
    whole = _whole_pages(later, size, facts)
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
    """The last request that used the window at the end of a prompt; -1 if there is none.

    A request uses the window at the end of what it finds, and those of all that it computes. One
    that finds a longer prompt uses none in the middle of it.
    """
    end = _whole_pages(each, page_size, facts)
    reach = (facts.window or 0) + 2 * page_size
    found = _last_use(
        before,
        each,
        lambda other, shared: shared > end - reach and (other.reply.cached or 0) - reach <= end,
    )
    return -1 if found is None else found
