"""Draws a script from a seed: what a chat server sees in a day, in a hundred requests.

Each round is there for something that a prefix cache can get wrong; its docstring says what.
Prompts are short, since the pools are tiny: what matters is how they relate to pages, window and
pools.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from attrs import evolve, frozen

from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, ScriptRound, SendOrder, Tokens
from kvcanon.lab.servers.tiny_model import CONTEXT, VOCABULARY

Continue = Callable[[Tokens, int], Tokens]
"""Returns up to so many tokens that greedily follow a prompt."""

FIRST_TOKEN = 3
"""Smaller ones are special."""
CLIENTS = 8
TRIES = 20


@frozen
class ScriptSize:
    """How much of everything a script has."""

    chats: int
    turns: int
    branches: int
    long_prompts: int
    races: int


SMALL = ScriptSize(chats=2, turns=3, branches=4, long_prompts=3, races=1)
WHOLE = ScriptSize(chats=4, turns=4, branches=8, long_prompts=5, races=3)


@frozen
class ScriptDrawer:
    """Draws requests. `rng` is used up in the order of the calls, so that a seed is a script."""

    rng: random.Random
    follow: Continue

    def tokens(self, count: int) -> Tokens:
        """Random tokens."""
        return tuple(self.rng.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(count))

    def request(
        self, name: str, tokens: Tokens, count: int, namespace: str = ""
    ) -> ScriptedRequest:
        """A request for up to `count` tokens; its last token is drawn anew while none is clear."""
        if len(tokens) + count > CONTEXT:
            raise ValueError(f"{name}: {len(tokens)} + {count} tokens exceed {CONTEXT}")
        for _ in range(TRIES):
            expected = self.follow(tokens, count)
            if expected:
                return ScriptedRequest(name, tokens, expected, namespace)
            tokens = tokens[:-1] + self.tokens(1)
        raise ValueError(f"{name}: every continuation is a close call")

    def between(self, least: int, most: int) -> int:
        """A random number."""
        return self.rng.randint(least, most)


def draw_script(
    model: str, seed: int, follow: Continue, page_size: int, size: ScriptSize = WHOLE
) -> EngineScript:
    """Draw the script of a seed for a model whose continuations `follow` computes."""
    draw = ScriptDrawer(random.Random(f"{seed} {model}"), follow)
    system = draw.tokens(38)
    chats = _chats(draw, system, size)
    branches = _branches(draw, system, size, page_size)
    rounds = (
        chats,
        branches,
        _together(draw, system),
        _asked_again("old turns", (*chats.requests, *branches.requests)),
        _long_prompts(draw, size),
        _returns("chats after long prompts", chats),
        _retractions(draw),
        _returns("chats after retractions", chats),
        *(_race(draw, system, number) for number in range(size.races)),
        _aborts(draw, system),
        evolve(_namespaces(draw, chats), flush=True),
        evolve(_returns("chats after a flush", chats), flush=True),
        _returns("chats again", chats),
    )
    return EngineScript(model, seed, page_size, rounds)


def _chats(draw: ScriptDrawer, system: Tokens, size: ScriptSize) -> ScriptRound:
    """Chats with one system prompt, interleaved: each prompt extends an earlier reply."""
    said = [system + draw.tokens(draw.between(5, 12)) for _ in range(size.chats)]
    requests = []
    for turn in range(size.turns):
        for chat in range(size.chats):
            made = draw.request(f"chat {chat} turn {turn}", said[chat], draw.between(6, 14))
            requests.append(made)
            said[chat] = made.tokens + made.expected + draw.tokens(draw.between(3, 9))
    return ScriptRound("chats", SendOrder.ONE_BY_ONE, tuple(requests))


def _branches(draw: ScriptDrawer, system: Tokens, size: ScriptSize, page: int) -> ScriptRound:
    """Prompts that leave one path at pages and within pages: each splits a node."""
    trunk = system + draw.tokens(50)
    requests = [draw.request("trunk", trunk, 6)]
    for branch in range(size.branches):
        at = draw.between(2, len(trunk) // page - 1) * page + branch % page
        tokens = trunk[:at] + draw.tokens(draw.between(4, 20))
        requests.append(draw.request(f"branch {branch} at {at}", tokens, 6))
    requests.append(evolve(requests[0], name="trunk again"))
    return ScriptRound("branches", SendOrder.ONE_BY_ONE, tuple(requests))


def _namespaces(draw: ScriptDrawer, chats: ScriptRound) -> ScriptRound:
    """Prompts that are cached already, in other namespaces and under other salts, each twice."""
    first = chats.requests[-1]
    others = (("tenant-a", ""), ("tenant-b", ""), ("", "pepper"), ("tenant-a", "pepper"))
    requests = [
        evolve(
            first,
            name=f"{extra or 'no key'}, {salt or 'no salt'}, {time}",
            namespace=extra,
            salt=salt,
        )
        for time in ("once", "again")
        for extra, salt in others
    ]
    longer = first.tokens + draw.tokens(7)
    requests.append(draw.request("tenant-a goes on", longer, 6, namespace="tenant-a"))
    return ScriptRound("namespaces", SendOrder.ONE_BY_ONE, tuple(requests))


def _together(draw: ScriptDrawer, system: Tokens) -> ScriptRound:
    """Eight prompts of one batch with a shared prefix, two of them equal."""
    shared = system + draw.tokens(9)
    requests = [
        draw.request(f"together {number}", shared + draw.tokens(draw.between(1, 12)), 8)
        for number in range(CLIENTS - 1)
    ]
    requests.append(evolve(requests[2], name="together 2 too"))
    return ScriptRound("together", SendOrder.TOGETHER, tuple(requests))


def _long_prompts(draw: ScriptDrawer, size: ScriptSize) -> ScriptRound:
    """Prompts of several chunks, which together exceed the device pool, sent twice."""
    prompts = [
        draw.request(f"long {number}", draw.tokens(draw.between(150, 260)), 6)
        for number in range(size.long_prompts)
    ]
    again = [evolve(each, name=f"{each.name} again") for each in prompts]
    halves = [
        draw.request(f"{each.name} by half", each.tokens[: len(each.tokens) // 2], 6)
        for each in prompts
    ]
    return ScriptRound("long prompts", SendOrder.ONE_BY_ONE, (*prompts, *again, *halves))


def _retractions(draw: ScriptDrawer) -> ScriptRound:
    """Eight long replies at a time, which do not fit into the pool: some are taken back."""
    requests = tuple(
        draw.request(f"retracted {number}", draw.tokens(draw.between(18, 30)), 72)
        for number in range(CLIENTS)
    )
    return ScriptRound("retractions", SendOrder.TOGETHER, requests)


def _race(draw: ScriptDrawer, system: Tokens, number: int) -> ScriptRound:
    """Prompts of all kinds by eight clients at a time."""
    return ScriptRound(f"race {number}", SendOrder.RACING, tuple(_mixed(draw, system, number)))


def _mixed(draw: ScriptDrawer, system: Tokens, race: int) -> Iterator[ScriptedRequest]:
    shared = system + draw.tokens(20)
    for number in range(2 * CLIENTS):
        begin = shared[: draw.between(10, len(shared))] if number % 4 else draw.tokens(100)
        tokens = begin + draw.tokens(draw.between(1, 30))
        yield draw.request(f"race {race} prompt {number}", tokens, draw.between(4, 16))


def _aborts(draw: ScriptDrawer, system: Tokens) -> ScriptRound:
    """Requests that their clients abort while they generate, beside some that end."""
    requests = []
    for number in range(CLIENTS):
        tokens = system + draw.tokens(draw.between(2, 40))
        made = draw.request(f"aborted {number}", tokens, 40)
        aborted = number % 3 < 2 and len(made.expected) > 30
        requests.append(evolve(made, abort_after=draw.between(1, 8) if aborted else 0))
    return ScriptRound("aborts", SendOrder.RACING, tuple(requests))


def _asked_again(name: str, requests: Sequence[ScriptedRequest]) -> ScriptRound:
    """Earlier requests once more, the old ones first: each ends at a window of its own."""
    again = tuple(evolve(each, name=f"{each.name}, {name}") for each in requests)
    return ScriptRound(name, SendOrder.ONE_BY_ONE, again)


def _returns(name: str, chats: ScriptRound) -> ScriptRound:
    """The last turns of the chats once more: what is left of them is found."""
    last = {each.name.partition(" turn")[0]: each for each in chats.requests}
    return _asked_again(name, [evolve(each, name=chat) for chat, each in last.items()])
