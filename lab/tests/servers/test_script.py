"""The script: the same for the same seed, in its bounds, and back from JSON."""

import json
import random

import pytest
from attrs import asdict, evolve

from kvcanon.conformance.protocol.wire import from_json
from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, SendOrder, Tokens
from kvcanon.lab.servers.script_rounds import CLIENTS, SMALL, WHOLE, ScriptDrawer, draw_script
from kvcanon.lab.servers.server_setup import CHUNK, DEVICE_TOKENS, PAGE_SIZE
from kvcanon.lab.servers.tiny_model import CONTEXT, VOCABULARY
from kvcanon.lab.servers.verdict import comparable_rounds, most_cached


def follow(tokens: Tokens, count: int) -> Tokens:
    """Continue a prompt by a function of all its tokens."""
    return tuple(3 + (sum(tokens) * 7 + at) % (VOCABULARY - 3) for at in range(count))


@pytest.fixture(params=[SMALL, WHOLE], ids=["small", "whole"], scope="module")
def script(request: pytest.FixtureRequest) -> EngineScript:
    """A script of either size."""
    return draw_script("full", 5, follow, PAGE_SIZE, request.param)


def test_same_seed_draws_same_script(script: EngineScript) -> None:
    """A seed is a script, and another seed another one."""
    size = SMALL if len(script.requests) < 100 else WHOLE
    assert draw_script("full", 5, follow, PAGE_SIZE, size) == script
    assert draw_script("full", 6, follow, PAGE_SIZE, size) != script
    assert draw_script("sliding", 5, follow, PAGE_SIZE, size).rounds != script.rounds


def test_script_comes_back_from_json(script: EngineScript) -> None:
    """What is written for the servers' environment is read as it was."""
    assert from_json(EngineScript, json.loads(json.dumps(asdict(script)))) == script


def test_names_are_unique(script: EngineScript) -> None:
    """A name is of one request, and begins no other: SGLang aborts by the beginning of an id."""
    names = [each.name for each in script.requests]
    aborted = [each.name for each in script.requests if each.abort_after]
    assert len(set(names)) == len(names)
    assert aborted
    assert [n for n in names for a in aborted if n != a and n.startswith(a)] == []


def test_script_fits_the_model_and_exceeds_the_pool(script: EngineScript) -> None:
    """No request is too long; long prompts are chunked, and exceed the pool together."""
    assert all(len(each.tokens) + len(each.expected) <= CONTEXT for each in script.requests)
    assert all(3 <= token < VOCABULARY for each in script.requests for token in each.tokens)
    rounds = {each.name: each.requests for each in script.rounds}
    first = [each for each in rounds["long prompts"] if "again" not in each.name]
    assert any(len(each.tokens) > 2 * CHUNK for each in first)
    assert sum(len(each.tokens) for each in first) > DEVICE_TOKENS
    retracted = rounds["retractions"]
    assert len(retracted) == CLIENTS
    assert sum(len(each.tokens) + len(each.expected) for each in retracted) > DEVICE_TOKENS


def test_chats_extend_their_replies(script: EngineScript) -> None:
    """A later turn of a chat begins with the earlier prompt and its reply."""
    chats = {each.name: each for each in script.rounds[0].requests}
    before, after = chats["chat 1 turn 0"], chats["chat 1 turn 1"]
    assert after.tokens[: len(before.tokens + before.expected)] == before.tokens + before.expected


def test_only_rounds_that_repeat_are_compared(script: EngineScript) -> None:
    """After a race nothing is compared until the cache has been emptied."""
    compared = [each.name for each in comparable_rounds(script)]
    assert {"chats", "long prompts", "retractions", "chats after a flush"} <= set(compared)
    assert not [name for name in compared if name.startswith(("race", "aborts"))]
    first = next(at for at, each in enumerate(script.rounds) if each.order is SendOrder.RACING)
    unflushed = [evolve(each, flush=False) for each in script.rounds]
    assert len(comparable_rounds(evolve(script, rounds=tuple(unflushed)))) == first


def test_close_calls_are_drawn_anew() -> None:
    """A prompt whose next token is not clear gets another last token; at last it is an error."""
    unclear = 2
    drawer = ScriptDrawer(random.Random(1), lambda tokens, _: () if tokens[-1] % unclear else (9,))
    made = drawer.request("a", (4, 7), 3)
    assert (made.tokens[0], made.tokens[1] % unclear, made.expected) == (4, 0, (9,))
    with pytest.raises(ValueError, match="b: every continuation is a close call"):
        ScriptDrawer(random.Random(1), lambda *_: ()).request("b", (4, 7), 3)
    with pytest.raises(ValueError, match="exceed"):
        drawer.request("c", (4,) * CONTEXT, 1)


def test_most_cached_is_a_page_prefix_of_the_namespace() -> None:
    """What earlier prompts and replies share bounds a hit; the last token is always computed."""
    sent = ScriptedRequest("sent", tuple(range(10, 20)), (20, 21, 22, 23), "a")
    same = ScriptedRequest("same", tuple(range(10, 23)), (1,), "a")
    assert most_cached(same, [sent], page_size=4) == 12
    assert most_cached(evolve(same, tokens=tuple(range(10, 22))), [sent], page_size=4) == 8
    assert most_cached(evolve(same, namespace="b"), [sent], page_size=4) == 0
    assert most_cached(evolve(same, salt="b"), [sent], page_size=4) == 0
    assert most_cached(same, [], page_size=4) == 0
