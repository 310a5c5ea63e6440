"""What a request can have left for a later one: bounds of cached tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from attrs import frozen

from kvcanon.conformance.probe.talk import EngineFacts, ProbeReply, ProbeRequest, Tokens

SLACK_SHARE = 0.1
"""The part of a pool that is left out of account: partly filled pages, and room for a reply."""


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
        """The most tokens that can be whole pages of so many."""
        return tokens // self.least * self.least

    def floor_least(self, tokens: int) -> int:
        """The fewest tokens that must be whole pages of so many; 0 where nothing is known."""
        return tokens // self.most * self.most if self.most else 0


@frozen
class SentRequest:
    """A request that was sent, and what came."""

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
        return len(self.kept) - (self.reply.cached or 0)


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def most_shared(request: ProbeRequest, sent: Sequence[SentRequest], page: PageRange) -> int:
    """The most tokens of a prompt that earlier requests of its space can have left.

    The last token of a prompt is always computed, since its logits choose the next one.
    """
    reusable = request.tokens[:-1]
    shared = [
        shared_length(reusable, each.kept) for each in sent if each.request.space == request.space
    ]
    return page.floor_most(max(shared, default=0))


def least_shared(
    request: ProbeRequest, sent: Sequence[SentRequest], facts: EngineFacts, page: PageRange
) -> tuple[int, int]:
    """The fewest cached tokens of a prompt, if nothing was evicted, and whose they are: its place.

    Counts prompts that ended since as many tokens were computed as surely fit. Of an engine with a
    window, or of which that is not known, only the same prompt again and its continuations count:
    elsewhere the window before the end of the shared part may have left.
    """
    if facts.policy not in {None, "lru"} or facts.ranks > 1:
        return 0, -1
    pool = min(facts.pool_tokens or 0, facts.window_pool_tokens or facts.pool_tokens or 0)
    room = pool * (1 - SLACK_SHARE) - len(request.tokens) - request.count
    # What runs meanwhile cannot be evicted, whenever it was computed.
    room -= sum(
        len(each.request.tokens) + each.request.count for each in sent if each.request.overlaps
    )
    reusable = request.tokens[:-1]
    least, source = 0, -1
    for back, each in enumerate(reversed(sent)):
        room -= each.computed
        before = each.request
        if room < 0 and back:
            break
        if before.space != request.space or each.reply.aborted or each.reply.retracted:
            continue
        if before.abort_after or before.overlaps:
            continue
        shared = shared_length(reusable, before.tokens)
        if facts.window == 0 or shared >= len(before.tokens) - 1:
            found = page.floor_least(shared)
            if found > least:
                least, source = found, len(sent) - 1 - back
    if facts.speculative and page.most:
        least = max(0, least - page.most)
    return least, source


def held_shared(
    at: int, sent: Sequence[SentRequest], facts: EngineFacts, page: PageRange
) -> tuple[int, str]:
    """The cached tokens of a prompt that a running request holds, and the name of that request.

    They were cached when that request began, which found them, and it goes on after the prompt's
    reply. Nothing is known of windows: those inside a prompt are not held.
    """
    request = sent[at].request
    most, by = 0, ""
    for began in range(at):
        holder = sent[began]
        if facts.window != 0 or began + holder.lasted < at or holder.reply.retracted:
            continue
        if holder.request.space != request.space:
            continue
        found, _ = least_shared(holder.request, sent[:began], facts, page)
        # Another client may have evicted it before: then the request itself did not find it.
        found = min(found, holder.reply.cached or 0)
        shared = shared_length(request.tokens[:-1], holder.request.tokens)
        held = page.floor_least(min(found, shared))
        if held > most:
            most, by = held, holder.request.name
    return most, by


def learned_page(sent: Sequence[SentRequest]) -> PageRange:
    """What the page size can be by prompts that were sent twice in a row.

    Every hit is a multiple of the page size, and the tokens after a hit are fewer than a page. If
    no size fits both, hits are too short: the range is then from 1 to the largest common divisor.
    """
    hits, rests = _hits_and_rests(sent)
    if not hits:
        return PageRange()
    most = gcd(*hits)
    least = next((size for size in range(max(rests) + 1, most + 1) if most % size == 0), 1)
    return PageRange(least, most)


def page_fits(sent: Sequence[SentRequest], page: PageRange) -> bool:
    """Whether prompts that were sent twice in a row found all their whole pages."""
    hits, rests = _hits_and_rests(sent)
    return page.most is not None and all(
        hit % page.least == 0 and rest < page.most for hit, rest in zip(hits, rests, strict=True)
    )


def _hits_and_rests(sent: Sequence[SentRequest]) -> tuple[list[int], list[int]]:
    """Cached tokens of prompts that were sent twice in a row, and the others but the last."""
    hits, rests = [], []
    for before, again in pairwise(sent):
        same = before.request.tokens == again.request.tokens
        if same and before.request.space == again.request.space and again.reply.cached:
            hits.append(again.reply.cached)
            rests.append(len(again.request.tokens) - 1 - again.reply.cached)
    return hits, rests
