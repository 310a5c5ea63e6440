"""Bounds of cached tokens, the page size that answers give away, near-ties, and orders."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from attrs import evolve

from kvcanon.conformance.probe.filling_rounds import play_order
from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.lru_order import judge_order
from kvcanon.conformance.probe.prompt_sender import PromptSender
from kvcanon.conformance.probe.request_judge import (
    Closeness,
    compare_replies,
    learned_page,
    least_shared,
    most_shared,
    page_fits,
)
from kvcanon.conformance.probe.talk import (
    SAID,
    EngineFacts,
    PageRange,
    ProbeReply,
    ProbeRequest,
    PromptSpace,
    SentRequest,
    Tokens,
)
from kvcanon.conformance.probe.transport import metric_labels, metric_value
from probing import FACTS, PAGE, SPACE, scored

KEEPING = evolve(FACTS, keeps_replies=True)


def prompt(first: int, length: int = 41) -> Tokens:
    """A prompt that shares with those of the same first token."""
    return tuple(range(first * 1000, first * 1000 + length))


def sent(
    tokens: Tokens, cached: int = 0, name: str = "", space: PromptSpace = SPACE, leave: int = 0
) -> SentRequest:
    """A request and its reply of two tokens."""
    request = ProbeRequest(name, tokens, 2, space, leave)
    return SentRequest(request, ProbeReply((7, 8), cached), "order")


def asked(tokens: Tokens, space: PromptSpace = SPACE, added: int = 0) -> SentRequest:
    """A request of which it is not known yet what was cached."""
    reply = ProbeReply((), None, added=added)
    return SentRequest(ProbeRequest("", tokens, 2, space), reply)


def test_most_is_whole_pages_of_the_same_namespace_without_the_last_token() -> None:
    """A prompt can find what an earlier one of its namespace has left, replies as well."""
    before = [sent(prompt(1))]
    assert most_shared(asked(prompt(1)), before, PAGE) == 40
    assert most_shared(asked(prompt(1, 40)), before, PAGE) == 36
    assert most_shared(asked((*prompt(1), 7, 8, 9, 9)), before, PAGE) == 40
    assert most_shared(asked((*prompt(1, 43), 9)), before, PAGE) == 40
    assert most_shared(asked((*prompt(1), 7, 8, 9, 9)), before, PageRange(1, 4)) == 43
    assert most_shared(asked(prompt(1), PromptSpace("t")), before, PAGE) == 0


@pytest.mark.parametrize(
    ("facts", "tokens", "least"),
    [
        (FACTS, prompt(1), 40),
        (FACTS, (*prompt(1, 22), 5), 20),
        (evolve(FACTS, window=16), prompt(1), 40),
        (evolve(FACTS, window=16), (*prompt(1, 22), 5), 0),
        (evolve(FACTS, window=None), (*prompt(1), 7, 8), 40),
        (evolve(FACTS, policy="lfu"), prompt(1), 0),
        (evolve(FACTS, ranks=2), prompt(1), 0),
        (evolve(FACTS, speculative=True), prompt(1), 36),
        (evolve(FACTS, speculative=True), (*prompt(1, 22), 5), 16),
        (evolve(FACTS, keeps_replies=True), (*prompt(1), 7, 8, 9, 9, 9), 40),
        (KEEPING, (*prompt(1, 43), 7, 8, 9), 40),
        (evolve(KEEPING, window=16), (*prompt(1, 41), 7, 8, 9, 9), 40),
        (evolve(FACTS, pool_tokens=None), prompt(1), 40),
    ],
)
def test_least_is_what_nothing_can_have_evicted(
    facts: EngineFacts, tokens: Tokens, least: int
) -> None:
    """Each premise that is not met lowers it."""
    assert least_shared(asked(tokens), [sent(prompt(1))], facts, PAGE)[0] == least


def test_reply_that_is_gone_on_from_is_reused() -> None:
    """All of it but its last token, from which nothing was computed."""
    before = [sent(prompt(1, 42))]
    goes_on = asked((*prompt(1, 42), 7, 8, 9, 9))
    assert least_shared(goes_on, before, KEEPING, PageRange(1, 1))[0] == 43
    assert least_shared(goes_on, before, FACTS, PageRange(1, 1))[0] == 42
    assert least_shared(goes_on, before, evolve(KEEPING, window=16), PageRange(1, 1))[0] == 42


def test_template_of_a_chat_widens_the_bounds() -> None:
    """What it adds may all stand before the words, or all behind them."""
    chat, before = evolve(FACTS, chats=True), [sent(prompt(1), 0, "", SPACE)]
    same, longer = asked(prompt(1), added=10), asked((*prompt(1), 7, 9), added=10)
    assert most_shared(same, before, PAGE) == 48
    assert least_shared(same, before, chat, PAGE)[0] == 48
    assert most_shared(longer, before, PAGE) == 52
    assert least_shared(longer, before, chat, PAGE)[0] == 40
    assert most_shared(asked(prompt(2), added=10), [], PAGE) == 0
    assert most_shared(asked(prompt(2), added=10), before, PAGE) == 8
    goes_on = asked((*prompt(1), SAID, SAID + 1, 9), added=10)
    replied = [evolve(before[0], reply=ProbeReply((SAID, SAID + 1), 0))]
    assert least_shared(goes_on, replied, chat, PAGE)[0] == 40


def test_least_ends_where_others_may_have_evicted() -> None:
    """Once as many tokens as fit were computed since, nothing must be there."""
    before = [sent(prompt(1))]
    for first in range(2, 12):
        before.append(sent(prompt(first)))
        must, _ = least_shared(asked(prompt(1)), before, FACTS, PAGE)
        assert must == (40 if first <= 7 else 0), first
    unknown = evolve(FACTS, pool_tokens=None)
    assert least_shared(asked(prompt(1)), before[:2], unknown, PAGE) == (0, -1)
    assert least_shared(asked(prompt(2)), before[:2], unknown, PAGE) == (40, 1)


@pytest.mark.parametrize(
    ("size", "lengths", "least", "most"),
    [(16, (49, 63, 70, 81), 16, 16), (1, (30, 31, 37), 1, 1), (16, (65, 33), 1, 32)],
)
def test_page_size_is_between_rests_and_hits(
    size: int, lengths: Sequence[int], least: int, most: int
) -> None:
    """Few prompts leave a range, which bounds from both sides."""
    pairs = [
        each
        for number, length in enumerate(lengths)
        for each in (
            sent(prompt(number, length)),
            sent(prompt(number, length), (length - 1) // size * size),
        )
    ]
    found = learned_page(pairs)
    assert (found.least, found.most) == (least, most)
    assert page_fits(pairs, PageRange(size, size))


@pytest.mark.parametrize(
    ("warm", "closeness"),
    [
        ([(5, -0.50, 6, -0.60), (1, -1.0, 2, -3.0)], Closeness.EQUAL),
        ([(5, -0.65, 6, -0.80)], Closeness.DIFFERENT),
        ([(6, -0.55, 5, -0.58), (9, -1.0, 2, -3.0)], Closeness.NEAR_TIE),
        ([(6, -0.20, 5, -0.58)], Closeness.DIFFERENT),
        ([(7, -0.51, 5, -0.58)], Closeness.DIFFERENT),
        ([(7, -0.55, 5, -0.58)], Closeness.UNKNOWN),
        ([(6, -0.55, 9, -0.58)], Closeness.UNKNOWN),
        ([(6, -0.55, 9, -0.61)], Closeness.DIFFERENT),
    ],
)
def test_near_tie_has_both_tokens_close_in_both_runs(
    warm: list[tuple[int, float, int, float]], closeness: Closeness
) -> None:
    """What comes after a near-tie is not compared: the prompts differ from there on.

    A token that is not among those that the other run says is at most as likely as the last of
    them. Where that is no farther than rounding goes, nothing is known.
    """
    cold = scored((5, -0.50, 6, -0.62), (1, -1.0, 2, -3.0))
    assert compare_replies(scored(*warm), cold, 0.1).closeness is closeness


def test_difference_without_scores_is_unknown() -> None:
    """And equal tokens are equal."""
    one, other = ProbeReply((1, 2), 0), ProbeReply((1, 3), 0)
    assert compare_replies(one, other, 0.1).closeness is Closeness.UNKNOWN
    assert compare_replies(one, one, 0.1).closeness is Closeness.EQUAL


def orders(*requests: SentRequest, facts: EngineFacts = FACTS) -> list[ProbeFault]:
    """What is wrong with the order of evictions."""
    return [each.fault for each in judge_order(requests, facts, PAGE)]


def test_prompt_that_was_used_later_must_not_leave_first() -> None:
    """Unless the other was used since; slots that the first return took are allowed for."""
    fill = [sent(prompt(9, 101))]
    first, again, second = sent(prompt(1)), sent(prompt(1), 40), sent(prompt(2))
    there, gone = sent(prompt(1), 40, "returns: 1"), sent(prompt(2), 0, "returns: 2")
    assert orders(first, second, *fill, there, gone) == [ProbeFault.ORDER]
    assert orders(first, second, again, *fill, there, gone) == []
    assert orders(first, second, *fill, there, sent(prompt(2), 32, "returns: 2")) == []
    assert orders(first, second, *fill, there, gone, facts=evolve(FACTS, has_host=None)) == []
    assert orders(first, second, *fill, there, gone, facts=evolve(FACTS, policy="fifo")) == []


def test_prompt_that_stays_after_a_whole_pool_is_held() -> None:
    """By a lock if its client left; otherwise it is the order that is wrong."""
    fill = [sent(prompt(number, 101)) for number in range(3, 7)]
    back = sent(prompt(1), 40, "returns: 1")
    assert orders(sent(prompt(1), leave=2), *fill, back) == [ProbeFault.HELD]
    assert orders(sent(prompt(1)), *fill, back) == [ProbeFault.ORDER]
    assert orders(sent(prompt(1)), *fill[:3], back) == []
    assert orders(sent(prompt(1)), *fill, sent(prompt(1), 36, "returns: 1")) == []


def test_windows_inside_a_longer_prompt_leave_first() -> None:
    """A match of the longer prompt does not use them."""
    facts = evolve(FACTS, window=8, window_pool_tokens=200)
    inner, outer = prompt(1, 41), prompt(1, 101)
    other, fill = prompt(2, 41), sent(prompt(9, 101))
    begins = [sent(inner), sent(outer, 40), sent(other), sent(outer, 100), fill]
    there, gone = sent(inner, 40, "returns: inner"), sent(other, 0, "returns: other")
    assert orders(*begins, there, gone, facts=facts) == [ProbeFault.WINDOW_ORDER]
    full_before = [sent(prompt(first, 101), space=PromptSpace("before")) for first in range(20, 24)]
    assert orders(*full_before, *begins, there, gone, facts=facts) == [ProbeFault.WINDOW_ORDER]
    matched = sent((*inner, 3, 4, 5), 40)
    assert orders(*begins[:4], matched, fill, there, gone, facts=facts) == []
    too_full = [*begins, sent(prompt(8, 131))]
    assert orders(*too_full, there, gone, facts=facts) == []


def test_pool_is_filled_so_that_one_of_two_prompts_stays() -> None:
    """Of both prompts of the round fillers leave one whole, whatever the sizes."""
    for size, pages in ((4, 96), (16, 64), (32, 48), (4, 128), (16, 4000)):
        facts = EngineFacts("x", page_size=size, pool_tokens=size * pages, context_tokens=640)
        made: list[ProbeRequest] = []

        def send(request: ProbeRequest, made: list[ProbeRequest] = made) -> SentRequest:
            made.append(request)
            again = len(made) == 3
            return SentRequest(request, ProbeReply((7,), len(request.tokens) - 1 if again else 0))

        play_order(PromptSender(random.Random(1), facts, PageRange(size, size), 256, send))
        first, fillers = len(made[0].tokens) // size, made[3:-2]
        taken = sum(len(each.tokens) // size for each in fillers)
        assert 0 < 2 * first + taken - pages < first, (size, pages)


def test_metrics_are_read_by_name() -> None:
    """Names that only begin alike are others; labels may have quotes; sums go over labels."""
    text = '# HELP vllm:x y\nvllm:x{engine="0",a="b\\"c"} 1.5\nvllm:x{engine="1"} 2\nvllm:xy 9\n'
    assert metric_value(text, "vllm:x") == 3.5
    assert metric_value(text, "vllm:z") is None
    assert metric_labels(text, "vllm:x") == {"engine": "0", "a": 'b\\"c'}
