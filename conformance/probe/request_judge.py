"""Judges what was sent and answered: a pure function, so that a replay is judged alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import Factory, frozen

from kvcanon.conformance.probe.closeness import Closeness, compare_replies
from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.lru_order import judge_order
from kvcanon.conformance.probe.sharing import (
    PageRange,
    SentRequest,
    held_shared,
    least_shared,
    most_shared,
    shared_length,
)
from kvcanon.conformance.probe.talk import EngineFacts, ProbeReply, ProbeRequest, Tokens

PromptKey = tuple[Tokens, str]
"""A prompt and its LoRA adapter: what the right reply depends on."""


def prompt_key(request: ProbeRequest) -> PromptKey:
    """What the right reply to a request depends on."""
    return request.tokens, request.space.lora


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
    truth = by.truths.get(prompt_key(each.request))
    if truth is not None:
        compared = compare_replies(each.reply, truth, by.margin)
        if compared.closeness is Closeness.DIFFERENT:
            hit = "" if each.reply.cached is None else f", with {each.reply.cached} tokens cached"
            words = f"{name}{hit}: {compared.words}"
            until = min(at + each.request.overlaps, len(sent) - 1)
            yield ProbeFinding(ProbeFault.TOKENS, words, each.round, at, until)
    cached = each.reply.cached
    if cached is None or each.reply.retracted:
        return
    before = sent[:at]
    most = most_shared(each.request, before, by.page)
    if cached > most and by.fresh and (each.request.space.salt or not by.facts.salts):
        yield _too_many(name, at, each, before, most)
    least, source = least_shared(each.request, before, by.facts, by.page)
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


def _too_many(
    name: str, at: int, each: SentRequest, before: Sequence[SentRequest], most: int
) -> ProbeFinding:
    """More cached tokens than earlier requests of the space can have left, and whose they are."""
    cached = each.reply.cached or 0
    for other in reversed(before):
        if other.request.space == each.request.space:
            continue
        if shared_length(each.request.tokens, other.kept) >= cached:
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
