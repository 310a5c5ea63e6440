"""Judges what was sent and answered: a pure function, so that a replay is judged alike.

The engine's own log-probabilities tell a near-tie from a wrong cache. Two runs of one prompt sum
the same numbers in another order when another part of it is cached, so that log-probabilities
differ a little, and two tokens that are nearly as likely can change places. The margin is the most
that rounding changes one log-probability. A token may therefore differ only where, in both runs,
the two tokens are at most two margins apart; and where the tokens are equal, their
log-probabilities are at most a margin apart. What differs more was computed from other data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from math import gcd

from attrs import Factory, frozen

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.lru_order import judge_order
from kvcanon.conformance.probe.talk import (
    SAID,
    EngineFacts,
    PageRange,
    ProbeReply,
    PromptKey,
    SentRequest,
    TokenScore,
    shared_length,
)

SLACK_SHARE = 0.1
"""The part of a pool that is left out of account: partly filled pages, and room for a reply."""
USUAL_MARGIN = 0.5
"""Logits in bfloat16 between 16 and 32 are 0.125 apart: the margin is four such steps."""


@frozen
class JudgedAgainst:
    """What requests are judged by."""

    facts: EngineFacts
    page: PageRange
    margin: float
    fresh: bool = True
    """Whether namespaces were empty when a round began."""
    truths: Mapping[PromptKey, ProbeReply] = Factory(dict)
    """The replies without a cache."""

    def changed(self, sent: Sequence[SentRequest]) -> frozenset[str]:
        """The adapters, or the model itself (empty), whose replies are others since a change."""
        return frozenset(
            each.request.space.lora
            for each in sent
            if each.request.is_before_change
            and (truth := self.truths.get(each.request.key)) is not None
            and compare_replies(each.reply, truth, self.margin).closeness is Closeness.DIFFERENT
        )


def judge_sent(sent: Sequence[SentRequest], by: JudgedAgainst) -> list[ProbeFinding]:
    """Everything wrong with requests that were sent one after the other."""
    found: list[ProbeFinding] = []
    for at, each in enumerate(sent):
        found += _judge_one(at, each, sent, by)
    return [*found, *judge_order(sent, by.facts, by.page)]


def _judge_one(
    at: int, each: SentRequest, sent: Sequence[SentRequest], by: JudgedAgainst
) -> Iterator[ProbeFinding]:
    name = f"{each.round}: {each.request.name}"
    # The truth was asked for after a change.
    truth = None if each.request.is_before_change else by.truths.get(each.request.key)
    if truth is not None:
        compared = compare_replies(each.reply, truth, by.margin)
        if compared.closeness is Closeness.DIFFERENT:
            hit = "" if each.reply.cached is None else f", with {each.reply.cached} tokens cached"
            words = f"{name}{hit}: {compared.words}"
            until = min(at + each.request.overlaps, len(sent) - 1)
            yield ProbeFinding(ProbeFault.TOKENS, words, each.round, at, until)
    if miscount := _miscounted(each):
        yield ProbeFinding(ProbeFault.USAGE, f"{name}: {miscount}", each.round, at)
    cached = each.reply.cached
    if cached is None or each.reply.retracted:
        return
    if any(other.request.is_before_change for other in sent[: at + 1]):
        yield from _judge_changed(name, at, sent, by)
        return
    before = sent[:at]
    most = most_shared(each, before, by.page)
    if cached > most and by.fresh and (each.request.space.salt or not by.facts.salts):
        yield _too_many(name, at, each, before, most)
    least, source = least_shared(each, before, by.facts, by.page)
    if cached < least:
        words = (
            f"{name}: {cached} tokens are cached, where {least} were computed before and nothing "
            "can have been evicted since"
        )
        yield ProbeFinding(ProbeFault.TOO_FEW, words, each.round, at, since=source, bounds=(least,))
    held, by_whom = held_shared(at, sent, by.facts, by.page)
    if each.reply.on_device < held:
        words = (
            f"{name}: {each.reply.on_device} tokens are on the device, where "
            f"{by_whom!r}, whose reply is still generated, holds {held} of its prompt"
        )
        yield ProbeFinding(ProbeFault.IN_USE, words, each.round, at, bounds=(held,))


def _miscounted(each: SentRequest) -> str:
    """What the server's own counts of a request say that cannot be; empty for nothing."""
    request, reply = each.request, each.reply
    if reply.prompt_tokens not in {None, len(request.tokens) + reply.added}:
        return f"the server counts {reply.prompt_tokens} tokens of {len(request.tokens)} sent"
    # Some servers leave the token that ends a reply out of it.
    most = len(reply.tokens) + request.stops
    if reply.generated is None or reply.aborted or len(reply.tokens) <= reply.generated <= most:
        return ""
    return f"the server counts {reply.generated} tokens of a reply of {len(reply.tokens)}"


def _judge_changed(
    name: str, at: int, sent: Sequence[SentRequest], by: JudgedAgainst
) -> Iterator[ProbeFinding]:
    """Judge what is cached around a change of weights: nothing stays of what was replaced."""
    each, changed = sent[at], by.changed(sent)
    lora = each.request.space.lora
    before = [
        other
        for other in sent[:at]
        if not (other.request.is_before_change and other.request.space.lora in changed)
        or each.request.is_before_change
    ]
    most, cached = most_shared(each, before, by.page), each.reply.cached or 0
    if cached <= most:
        return
    of = f"adapter {lora!r}" if lora else "model"
    words = (
        f"{name}: {cached} tokens are cached, where {most or 'none'} can be since the {of} was "
        "replaced: without a cache its replies are others than before"
    )
    fault = ProbeFault.TOO_MANY if each.request.is_before_change else ProbeFault.STALE
    yield ProbeFinding(fault, words, each.round, at, bounds=(most,))


def _too_many(
    name: str, at: int, each: SentRequest, before: Sequence[SentRequest], most: int
) -> ProbeFinding:
    """More cached tokens than earlier requests of the space can have left, and whose they are."""
    cached = each.reply.cached or 0
    for other in reversed(before):
        if other.request.space == each.request.space:
            continue
        if shared_length(each.request.tokens, other.kept) + each.reply.added >= cached:
            words = (
                f"{name}: {cached} tokens are cached in the namespace {each.request.space.words}, "
                f"where {most or 'none'} can be; they were computed for {other.request.name!r} in "
                f"the namespace {other.request.space.words}"
            )
            return ProbeFinding(ProbeFault.SHARED, words, each.round, at, bounds=(most,))
    words = (
        f"{name}: {cached} of {len(each.request.tokens)} tokens are cached, where earlier requests "
        f"of the namespace can have left {most or 'none'}"
    )
    return ProbeFinding(ProbeFault.TOO_MANY, words, each.round, at, bounds=(most,))


class Closeness(Enum):
    """How two replies to one prompt compare."""

    EQUAL = "equal"
    NEAR_TIE = "near-tie"
    UNKNOWN = "not told apart"
    """They differ, and the log-probabilities that the server gave do not say by how much."""
    DIFFERENT = "different"


@frozen
class ReplyComparison:
    """How two replies compare, and where they differ first."""

    closeness: Closeness
    words: str = ""


def compare_replies(warm: ProbeReply, cold: ProbeReply, margin: float) -> ReplyComparison:
    """Compare a reply with that without a cache, up to the end of the shorter one."""
    for at, (ours, theirs) in enumerate(zip(warm.tokens, cold.tokens, strict=False)):
        scores = (
            (warm.scores[at], cold.scores[at])
            if at < min(len(warm.scores), len(cold.scores))
            else None
        )
        if ours != theirs:
            return _other_token(at, ours, theirs, scores, margin)
        if scores is None:
            continue
        shift = abs(scores[0].logprob - scores[1].logprob)
        if shift > margin:
            words = (
                f"token {at} is {ours} both times, with log-probability "
                f"{scores[0].logprob:.2f} and {scores[1].logprob:.2f} without a cache"
            )
            return ReplyComparison(Closeness.DIFFERENT, words)
    return ReplyComparison(Closeness.EQUAL)


def _other_token(
    at: int,
    ours: int,
    theirs: int,
    scores: tuple[TokenScore, TokenScore] | None,
    margin: float,
) -> ReplyComparison:
    words = f"token {at} is {ours}, and {theirs} without a cache"
    if scores is None:
        return ReplyComparison(Closeness.UNKNOWN, words)
    warm, cold = scores
    gaps = (warm.logprob - warm.most_of(theirs), cold.logprob - cold.most_of(ours))
    if warm.of(theirs) is None or cold.of(ours) is None:
        shifts = (warm.logprob - cold.most_of(ours), cold.logprob - warm.most_of(theirs))
        missing = "one of the two is not even among the likeliest in the other run"
        if max(gaps) <= 2 * margin and max(shifts) <= margin:
            missing += ", where many are nearly as likely"
            return ReplyComparison(Closeness.UNKNOWN, f"{words}: {missing}")
        return ReplyComparison(Closeness.DIFFERENT, f"{words}: {missing}")
    said = (
        f"{words}; they are {gaps[0]:.2f} and {gaps[1]:.2f} apart in log-probability, of which "
        f"rounding explains {2 * margin:.2f}"
    )
    near = max(gaps) <= 2 * margin
    return ReplyComparison(Closeness.NEAR_TIE if near else Closeness.DIFFERENT, said)


def most_shared(each: SentRequest, sent: Sequence[SentRequest], page: PageRange) -> int:
    """The most tokens of a prompt that earlier requests of its space can have left.

    The last token of a prompt is always computed, since its logits choose the next one. What a
    template adds may stand anywhere, so all of it may be shared.
    """
    added, tokens = each.reply.added, each.request.tokens
    shared = [
        shared_length(tokens, other.kept) + added
        for other in sent
        if other.request.space == each.request.space
    ]
    return page.floor_most(min(max(shared, default=0), len(tokens) + added - 1))


def least_shared(
    asked: SentRequest, sent: Sequence[SentRequest], facts: EngineFacts, page: PageRange
) -> tuple[int, int]:
    """The fewest cached tokens of a prompt, if nothing was evicted, and whose they are: its place.

    Counts prompts that ended since as many tokens were computed as surely fit. Of an engine with a
    window, or of which that is not known, only the same prompt again and its continuations count:
    elsewhere the window before the end of the shared part may have left.
    """
    request = asked.request
    if facts.policy not in {None, "lru"} or facts.ranks > 1:
        return 0, -1
    pool = min(facts.pool_tokens or 0, facts.window_pool_tokens or facts.pool_tokens or 0)
    room = pool * (1 - SLACK_SHARE) - len(request.tokens) - request.count
    # What runs meanwhile cannot be evicted, whenever it was computed.
    room -= sum(
        len(each.request.tokens) + each.request.count for each in sent if each.request.overlaps
    )
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
        shared = _reused(asked, each, facts)
        if facts.window == 0 or shared >= len(before.tokens) - 1:
            found = page.floor_least(shared)
            if found > least:
                least, source = found, len(sent) - 1 - back
    return _less_drafted(least, facts, page), source


def _reused(asked: SentRequest, before: SentRequest, facts: EngineFacts) -> int:
    """The leading tokens of a prompt that an earlier request surely left, were pages tokens."""
    tokens, earlier = asked.request.tokens, before.request.tokens
    if tokens == earlier:
        return len(tokens) + asked.reply.added - 1
    if facts.chats:
        # How a template writes down an earlier reply is its own affair.
        tokens = tokens[: next((at for at, one in enumerate(tokens) if one >= SAID), len(tokens))]
    elif facts.keeps_replies and facts.window == 0:
        # The last token of a reply was chosen, and nothing was computed from it.
        earlier = before.kept[:-1]
    return shared_length(tokens[:-1], earlier)


def _less_drafted(tokens: int, facts: EngineFacts, page: PageRange) -> int:
    """What is left of a hit where a draft model computes its last page again."""
    return max(0, tokens - page.most) if facts.speculative and page.most else tokens


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
        found, _ = least_shared(holder, sent[:began], facts, page)
        # Another client may have evicted it before: then the request itself did not find it.
        found = min(found, holder.reply.cached or 0)
        shared = shared_length(request.tokens[:-1], holder.request.tokens)
        held = _less_drafted(page.floor_least(min(found, shared)), facts, page)
        if held > most:
            most, by = held, holder.request.name
    return most, by


def learned_page(sent: Sequence[SentRequest]) -> PageRange:
    """Return the page sizes that fit the hits of prompts that were sent twice in a row.

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
            whole = len(again.request.tokens) + again.reply.added
            rests.append(whole - 1 - again.reply.cached)
    return hits, rests
