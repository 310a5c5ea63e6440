"""Generated chat: the same on every machine, with all that a cache has to handle in it."""

from collections import defaultdict
from hashlib import sha256
from itertools import pairwise

import pytest

from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.types import Namespace

CHAT = Chat(conversations=60, seed=3)


def parent(tokens: tuple[int, ...], earlier: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the longest earlier prompt that this one extends."""
    extended = [each for each in earlier if each == tokens[: len(each)]]
    return max(extended, key=len, default=None)


def turns(requests: tuple[Request, ...]) -> dict[tuple[Namespace, tuple[int, ...]], int]:
    """Return how many turns each conversation had, by its namespace and its last prompt."""
    counts: dict[tuple[Namespace, tuple[int, ...]], int] = {}
    open_now: dict[Namespace, list[tuple[int, ...]]] = defaultdict(list)
    for request in requests:
        tokens, namespace = request.make_tokens(), request.namespace
        before = parent(tokens, open_now[namespace])
        if before is not None:
            open_now[namespace].remove(before)
        open_now[namespace].append(tokens)
        earlier = 0 if before is None else counts.pop((namespace, before))
        counts[namespace, tokens] = earlier + 1
    return counts


def test_equal_chats_are_equal_requests() -> None:
    """One seed names one workload."""
    first, second = CHAT.requests(), Chat(conversations=60, seed=3).requests()
    assert first == second
    assert [each.make_tokens() for each in first] == [each.make_tokens() for each in second]
    assert [each.make_tokens() for each in first] != [
        each.make_tokens() for each in Chat(conversations=60, seed=4).requests()
    ]


def test_requests_are_the_same_on_every_machine() -> None:
    """A seed draws the same chats under every version of Python, on every machine."""
    digest = sha256()
    for request in CHAT.requests():
        tenant, tokens = request.namespace.extra_key, request.make_tokens()
        digest.update(f"{request.arrival_ms} {tenant} {tokens}".encode())
    assert digest.hexdigest()[:16] == "fef0065fbe561a58"


def test_prompt_stays_the_same_when_its_conversation_goes_on() -> None:
    """A request's tokens are fixed once it is drawn, whatever turns follow."""
    for request in CHAT.requests():
        assert len(request.make_tokens()) == request.length_tokens


def test_turns_extend_their_conversation() -> None:
    """Each turn begins with all turns before it, and no conversation exceeds its turns."""
    counts = turns(CHAT.requests())
    assert len(counts) == CHAT.conversations
    assert max(counts.values()) == CHAT.turns_at_most


def test_conversations_are_abandoned() -> None:
    """Some conversations end before their last turn, so that the cache keeps unused data."""
    counts = turns(CHAT.requests())
    assert 0 < sum(count < CHAT.turns_at_most for count in counts.values()) < len(counts)


def test_chat_without_abandoning_has_all_turns() -> None:
    """With no chance to end early, every conversation has all its turns."""
    counts = turns(Chat(conversations=10, abandon=0.0).requests())
    assert set(counts.values()) == {Chat().turns_at_most}


def test_tenants_share_system_prompts_and_nothing_else() -> None:
    """Two tenants send equal tokens, so that mixed-up namespaces would show."""
    openings: dict[tuple[int, ...], set[Namespace]] = defaultdict(set)
    for request in CHAT.requests():
        openings[request.make_tokens()[: CHAT.system_tokens]].add(request.namespace)
    assert len(openings) == CHAT.system_prompts
    tenants = {Namespace(extra_key=f"tenant-{n}") for n in range(CHAT.tenants)}
    assert all(namespaces == tenants for namespaces in openings.values())


def test_conversations_are_interleaved() -> None:
    """Turns of other conversations come between the turns of one."""
    requests = [each for each in CHAT.requests() if each.namespace.extra_key == "tenant-0"]
    extends = [
        later.make_tokens()[: earlier.length_tokens] == earlier.make_tokens()
        for earlier, later in pairwise(requests)
    ]
    assert 0 < sum(extends) < len(extends) // 2


def test_requests_arrive_in_order() -> None:
    """Arrival times never decrease."""
    arrivals = [each.arrival_ms for each in CHAT.requests()]
    assert arrivals == sorted(arrivals)


@pytest.mark.parametrize("at_once", [1, 8])
def test_number_of_conversations_does_not_depend_on_how_many_go_on(at_once: int) -> None:
    """Every conversation is drawn, however many go on at a time."""
    assert len(turns(Chat(conversations=20, at_once=at_once).requests())) == 20
