"""Requests that run at once: how they are sent and counted, and what may be said of them."""

from __future__ import annotations

import time

import pytest
from attrs import evolve, field, mutable

from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.player import OutOfBudget, RequestSequence
from kvcanon.conformance.probe.reduction import without
from kvcanon.conformance.probe.request_judge import JudgedAgainst, judge_sent, least_shared
from kvcanon.conformance.probe.talk import (
    EngineFacts,
    Leaves,
    ProbeReply,
    ProbeRequest,
    PromptSpace,
    SentRequest,
    Tokens,
)
from kvcanon.conformance.probe.transport import ServerProblem
from probing import FACTS, PAGE, SPACE, QuietApi, player_of, scored

LONG = 1000
"""Tokens of a reply that ends only when its client leaves."""


@mutable
class SlowApi(QuietApi):
    """Answers one token after the other; a reply that is streamed takes a millisecond for each."""

    fails_at: int = 0
    """The request that gets no answer."""
    asked: list[str] = field(factory=list)

    def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
        """A reply of equal tokens."""
        self.asked.append(request.name)
        if len(self.asked) == self.fails_at:
            raise ServerProblem("gone")
        if leaves is None:
            return ProbeReply((1,) * request.count, 0)
        for came in range(1, request.count + 1):
            if leaves(came):
                return ProbeReply((1,) * came, 0, aborted=True)
            time.sleep(0.001)
        return ProbeReply((1,) * request.count, 0)


def asks(name: str, tokens: Tokens = (5, 6), count: int = 1, overlaps: int = 0) -> ProbeRequest:
    """A request."""
    return ProbeRequest(name, tokens, count, SPACE, overlaps=overlaps)


def test_reply_is_waited_for_after_so_many_requests() -> None:
    """The place of a request is where it began; its reply is there once it is waited for."""
    with RequestSequence(player_of(SlowApi()), "run") as sequence:
        sequence.send(asks("long", count=150, overlaps=2), "round")
        sequence.send(asks("a"), "round")
        assert sequence.sent[0].reply.tokens == ()
        sequence.send(asks("b"), "round")
        assert len(sequence.sent[0].reply.tokens) == 150
        assert [each.request.name for each in sequence.sent] == ["long", "a", "b"]
    assert sequence.sent[0].lasted == 2
    assert not sequence.sent[0].reply.aborted


def test_reply_that_ends_too_soon_lasted_less() -> None:
    """Requests that were answered after its end do not count."""
    with RequestSequence(player_of(SlowApi()), "run") as sequence:
        sequence.send(asks("short", count=2, overlaps=3), "round")
        time.sleep(0.1)
        for name in "abc":
            sequence.send(asks(name), "round")
    assert sequence.sent[0].lasted == 0


def test_end_of_the_server_ends_what_runs() -> None:
    """No thread stays behind, and the request without an answer is the last."""
    api = SlowApi(fails_at=3)
    began = time.monotonic()
    sequence = RequestSequence(player_of(api), "run")

    def send_all() -> None:
        with sequence:
            sequence.send(asks("long", count=LONG, overlaps=5), "round")
            sequence.send(asks("a"), "round")
            sequence.send(asks("b"), "round")

    with pytest.raises(ServerProblem):
        send_all()
    assert time.monotonic() - began < 0.9 * LONG / 1000
    assert [each.request.name for each in sequence.sent] == ["long", "a", "b"]


def test_client_leaves_a_slow_reply() -> None:
    """It takes no longer than half of the time that is left; with none left, nothing is sent."""
    slow = player_of(SlowApi(), 0.2)
    with RequestSequence(slow, "run") as sequence:
        sequence.send(asks("long", count=LONG, overlaps=5), "round")
        sequence.finish()
        assert 0 < slow.seconds_left < 0.15
        slow.deadline = 0
        with pytest.raises(OutOfBudget):
            sequence.send(asks("another", overlaps=1), "round")
    assert 0 < len(sequence.sent[0].reply.tokens) < LONG


def test_fewer_requests_shorten_what_runs_beside_them() -> None:
    """A long reply goes on during as many of the next as are still there."""
    requests = [asks("x"), asks("long", overlaps=3), *(asks(name) for name in "abcd")]
    assert [each.overlaps for each in without(requests, [])] == [0, 3, 0, 0, 0, 0]
    kept = without(requests, [0, 2, 5])
    assert [(each.name, each.overlaps) for each in kept] == [("long", 2), ("b", 0), ("c", 0)]
    assert without(requests, [2, 3, 4])[1].overlaps == 0


def sent(
    tokens: Tokens, cached: int | None = 0, *, overlaps: int = 0, lasted: int = 0, name: str = ""
) -> SentRequest:
    """A request and its reply."""
    request = ProbeRequest(name, tokens, 2, SPACE, overlaps=overlaps)
    return SentRequest(request, ProbeReply((7, 8), cached), "together", lasted=lasted)


SHARED = tuple(range(1000, 1041))
OTHER = tuple(range(9000, 9101))
NOTHING_CACHED = ProbeReply((7, 8), 0)


def found(*requests: SentRequest, facts: EngineFacts = FACTS) -> list[ProbeFault]:
    """What is wrong with requests."""
    return [each.fault for each in judge_sent(requests, JudgedAgainst(facts, PAGE, 0.1))]


def test_prefix_of_a_running_request_must_stay() -> None:
    """It found the prefix itself, and goes on after the reply that misses it."""
    runs = sent((*SHARED, 1), 40, overlaps=5, lasted=5, name="runs")
    fill = [sent(tuple(range(first, first + 101))) for first in (2000, 3000, 4000, 5000)]
    missed = sent((*SHARED, 2), 0)
    assert found(sent(SHARED), runs, *fill, missed) == [ProbeFault.IN_USE]
    assert found(sent(SHARED), runs, *fill, sent((*SHARED, 2), 40)) == []
    for other in (
        evolve(runs, lasted=4),
        evolve(runs, reply=evolve(runs.reply, retracted=True)),
        evolve(runs, reply=evolve(runs.reply, cached=None)),
        evolve(runs, request=evolve(runs.request, space=PromptSpace("t")), reply=NOTHING_CACHED),
    ):
        assert found(sent(SHARED), other, *fill, missed) == []
    not_found = evolve(runs, reply=NOTHING_CACHED)
    assert ProbeFault.IN_USE not in found(sent(SHARED), not_found, *fill, missed)
    windowed = evolve(FACTS, window=8)
    assert found(sent(SHARED), runs, *fill, missed, facts=windowed) == []


def test_what_runs_takes_room_from_what_must_stay() -> None:
    """A pool that running requests hold in part evicts earlier."""
    asked = sent(SHARED)
    fill = [sent(tuple(range(first, first + 61))) for first in (2000, 3000, 4000)]
    assert least_shared(asked, [sent(SHARED), *fill], FACTS, PAGE) == (40, 0)
    runs = sent(OTHER, overlaps=1)
    assert least_shared(asked, [runs, sent(SHARED), *fill], FACTS, PAGE) == (0, -1)


def test_wrong_tokens_of_a_running_request_take_all_that_ran_beside_it() -> None:
    """What pressed it comes after it, and is sent again with it."""
    runs = sent((*SHARED, 1), 40, overlaps=2, lasted=2)
    requests = [sent(SHARED), runs, sent(OTHER), sent(OTHER[1:]), sent(OTHER[2:])]
    truths = {(runs.request.tokens, ""): ProbeReply((7, 9), 0)}
    assert judge_sent(requests, JudgedAgainst(FACTS, PAGE, 0.1, truths=truths)) == []
    first, second, other = ((token, -0.5, 99, -9.0) for token in (7, 8, 9))
    said = evolve(runs, reply=scored(first, second, cached=40))
    truths = {(runs.request.tokens, ""): scored(first, other, cached=40)}
    (finding,) = judge_sent(
        [requests[0], said, *requests[2:]], JudgedAgainst(FACTS, PAGE, 0.1, truths=truths)
    )
    assert (finding.fault, finding.at, finding.last) == (ProbeFault.TOKENS, 1, 3)
