"""Draws cases of stores: a seed and a number become a case.

Each case has a theme, in turn: what is tried in it more often than in others. So a short check has
some cases of every kind that the store offers, and a long one has them in every mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from attrs import frozen

from kvcanon.conformance.stores.adapter import StoreOffer
from kvcanon.conformance.stores.case import (
    AskPages,
    AskRun,
    ContinueServer,
    DamageFile,
    GetPages,
    KillInPut,
    LookAtMemory,
    PutAtOnce,
    PutOnFullDisk,
    PutPages,
    RemovePages,
    Restart,
    StopServer,
    StoreAction,
    StoreCase,
)
from kvcanon.conformance.stores.prompts import FORKS, PAGES, PROMPTS
from kvcanon.spec.stores.calls import Ability

ACTIONS_OF_A_CASE = (12, 36)
MOST_CALLS = 60
"""The latest call at which a put is interrupted."""
STRETCH = 16
"""How many times as long the prompts of a long case are: 128 pages, which SGLang moves at once."""


@frozen
class Theme:
    """What a case tries, with the abilities that it needs."""

    needs: frozenset[Ability] = frozenset()
    weights: Mapping[str, int] = {}
    writers: tuple[int, ...] = (1, 1, 2)
    other: bool = False
    """Whether the last writer has another identity."""
    namespaces: bool = False
    capacity: bool = False
    long: bool = False
    """Whether prompts are long in one case of four."""


_PLAIN = {"put": 6, "get": 6, "exists": 3, "run": 3}
THEMES: Mapping[str, Theme] = {
    "plain": Theme(weights=_PLAIN | {"remove": 1, "restart": 1, "look": 1}, long=True),
    "identity": Theme(weights=_PLAIN | {"restart": 1}, writers=(2, 3), other=True),
    "names": Theme(
        frozenset({Ability.NAMESPACES}), _PLAIN | {"restart": 1}, (1, 2), namespaces=True
    ),
    "removal": Theme(frozenset({Ability.REMOVES}), _PLAIN | {"remove": 4, "restart": 1}),
    "restart": Theme(frozenset({Ability.DURABLE}), _PLAIN | {"restart": 3}, (1, 2)),
    "crash": Theme(frozenset({Ability.DURABLE}), _PLAIN | {"kill": 6}, (1, 2)),
    "disk": Theme(frozenset({Ability.FILES}), _PLAIN | {"full": 5}),
    "damage": Theme(frozenset({Ability.FILES}), _PLAIN | {"damage": 4}),
    "writers": Theme(frozenset({Ability.SHARED, Ability.DURABLE}), _PLAIN | {"at_once": 5}, (2, 3)),
    "room": Theme(
        frozenset({Ability.EVICTS}), _PLAIN | {"put": 14, "look": 3, "remove": 1}, capacity=True
    ),
    "stop": Theme(frozenset({Ability.STALLS}), _PLAIN | {"stop": 3, "go": 3, "look": 2}),
    "all": Theme(
        weights=_PLAIN
        | {"remove": 1, "restart": 1, "kill": 1, "full": 1, "damage": 1, "at_once": 1, "look": 1},
        writers=(1, 2, 3),
        namespaces=True,
    ),
}

TWICE = ("identity", "damage", "crash")
"""Themes with so many kinds of faults that they come twice in a turn."""


def themes_of(offer: StoreOffer) -> list[str]:
    """The themes whose abilities a store offers, in turn."""
    offered = [name for name, theme in THEMES.items() if theme.needs <= offer.abilities]
    return [*offered, *(name for name in TWICE if name in offered)]


def draw_case(offer: StoreOffer, seed: int, number: int) -> StoreCase:
    """The case of a number, in a check with a seed."""
    random = Random(f"store {seed} {number}")
    names = themes_of(offer)
    theme = THEMES[names[number % len(names)]]
    writers = random.choice(theme.writers)
    drawer = _Drawer(random, theme, offer)
    least, most = ACTIONS_OF_A_CASE
    actions = [drawer.action() for _ in range(random.randint(least, most))]
    if Ability.STALLS in offer.abilities:
        actions += [ContinueServer()]
    actions += [LookAtMemory(), Restart()]
    fields = offer.identity_fields
    turn = number // len(names)
    return StoreCase(
        tuple(actions),
        writers=writers,
        page_bytes=max(offer.page_bytes) if theme.capacity else random.choice(offer.page_bytes),
        pools=random.choice((1, 2)) if Ability.POOLS in offer.abilities else 1,
        capacity_pages=random.randint(3, 12) if theme.capacity else 0,
        stretch=STRETCH if theme.long and turn % 4 == 1 else 1,
        # In turn, so that a quick check has each field.
        other=fields[turn % len(fields)] if theme.other and fields else "",
    )


class _Drawer:
    """Draws the actions of one case. Most of them are about few pages, so that they meet."""

    def __init__(self, random: Random, theme: Theme, offer: StoreOffer) -> None:
        self.random = random
        self.names = list(theme.weights)
        self.weights = list(theme.weights.values())
        spaces = theme.namespaces and Ability.NAMESPACES in offer.abilities
        self.prompts = [0, 0, 1, 2, 3, *(range(len(FORKS), PROMPTS) if spaces else ())]

    def action(self) -> StoreAction:
        """Draw an action."""
        (name,) = self.random.choices(self.names, self.weights)
        return _DRAWS[name](self)

    def pages(self) -> tuple[int, int, int, int]:
        """A writer, a prompt, a first page and a count."""
        first = 0 if self.random.random() < 0.6 else self.random.randrange(PAGES)
        count = self.random.choice((1, 2, 3, PAGES))
        return self.random.randrange(6), self.random.choice(self.prompts), first, count

    def version(self) -> int:
        return 0 if self.random.random() < 0.8 else 1

    def at_call(self) -> int:
        """Draw the number of a call; small ones are as likely as large ones."""
        return int(MOST_CALLS ** self.random.random())

    def put(self) -> StoreAction:
        pools = 0 if self.random.random() < 0.7 else self.random.randrange(1, 3)
        return PutPages(*self.pages(), self.version(), pools)

    def get(self) -> StoreAction:
        buffers = 0 if self.random.random() < 0.8 else self.random.randrange(1, 3)
        return GetPages(*self.pages(), buffers)

    def exists(self) -> StoreAction:
        return AskPages(*self.pages())

    def run(self) -> StoreAction:
        writer, prompt, _, _ = self.pages()
        return AskRun(writer, prompt, self.random.randint(1, PAGES))

    def remove(self) -> StoreAction:
        return RemovePages(*self.pages())

    def restart(self) -> StoreAction:
        return Restart(self.random.randrange(6))

    def kill(self) -> StoreAction:
        return KillInPut(*self.pages(), self.version(), self.at_call())

    def full(self) -> StoreAction:
        return PutOnFullDisk(*self.pages(), self.version(), self.random.randrange(9))

    def damage(self) -> StoreAction:
        pick = self.random.randrange
        return DamageFile(self.random.choice(self.prompts), pick(PAGES), pick(5), pick(16))

    def at_once(self) -> StoreAction:
        return PutAtOnce(*self.pages(), self.at_call())

    def stop(self) -> StoreAction:
        return StopServer()

    def go(self) -> StoreAction:
        return ContinueServer()

    def look(self) -> StoreAction:
        return LookAtMemory()


_DRAWS: Mapping[str, Callable[[_Drawer], StoreAction]] = {
    "put": _Drawer.put,
    "get": _Drawer.get,
    "exists": _Drawer.exists,
    "run": _Drawer.run,
    "remove": _Drawer.remove,
    "restart": _Drawer.restart,
    "kill": _Drawer.kill,
    "full": _Drawer.full,
    "damage": _Drawer.damage,
    "at_once": _Drawer.at_once,
    "stop": _Drawer.stop,
    "go": _Drawer.go,
    "look": _Drawer.look,
}
