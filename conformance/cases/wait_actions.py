"""Actions about waits: they say how the next wait of a cache for its engine ends.

A cache waits in a flush, and under write_back in evictions and load-backs. A copy that is waited
for may fail, and the engine may raise. These actions are drawn into cases with a host tier besides
the others, so that the others are as they are without them.

They do nothing where the copies are not those of the judge's own engine.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.protocol.adapter import Capability, WaitControl
from kvcanon.reference.engine import WaitEnd
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import FULL, GPU, Key, WritePolicy

WAITS: dict[str, ActionKind] = {}
"""Every action about waits by name."""

BACK_SHARE, SHARE = 1 / 2, 1 / 16
"""The share of small cases that have such actions, under write_back and otherwise."""
MOST_ROOM = 10
"""The largest device, in full slots, that an action fills."""
LOADED, FILLING = 104, 112
"""The first letter of the keys of a load that is broken off, and of what fills the device."""
EVERY = 6
"""One action in so many is added to them."""


@enter(WAITS, 0, host=True)
def fail_wait(client: Client, _a: int, _b: int, _c: int) -> None:
    """Let the next copy fail that the cache waits for."""
    if isinstance(client.copies, WaitControl):
        client.copies.next_wait(WaitEnd.FAILED)


@enter(WAITS, 0, Capability.FREE_SLOTS, host=True)
def break_off_wait(client: Client, _a: int, _b: int, _c: int) -> None:
    """Let the engine raise when the cache waits for it the next time."""
    if isinstance(client.copies, WaitControl):
        client.copies.next_wait(WaitEnd.BROKEN_OFF)


@enter(WAITS, 0, Capability.FREE_SLOTS, Capability.LOAD_BACK, Capability.INSERT_HOST, host=True)
def break_off_load(client: Client, a: int, b: int, c: int) -> None:
    """Load what only the host has, on a full device, and let the engine raise meanwhile.

    Under write_back the load waits for the copies of what has to leave the device first.
    """
    room = client.cache.config.capacity(FULL, GPU)
    copies = client.copies
    if not can_break_off(client.cache.config) or not isinstance(copies, WaitControl):
        return
    loaded = _page_key(client, LOADED + a % 4)
    for at in range(room):
        with suppress(CacheError):  # What is locked stays.
            client.put(_page_key(client, FILLING + (b + at) % (2 * MOST_ROOM)))
    client.fetch(loaded, 0, swa_pages=1)
    copies.next_wait(WaitEnd.BROKEN_OFF)
    client.cache.load_back(loaded)
    if c % 2:
        client.cache.load_back(loaded)


def can_break_off(config: CacheConfig) -> bool:
    """Whether a load may be broken off: it waits, and the device is small enough to be filled."""
    room = config.capacity(FULL, GPU)
    return config.write_policy is WritePolicy.WRITE_BACK and room <= MOST_ROOM


def _page_key(client: Client, letter: int) -> Key:
    """A key of one page, which the client knows from now on."""
    config = client.cache.config
    key = Key((page_of(letter, config.page_size, bigram=config.bigram),))
    client.keys.append(key)
    return key


@enter(WAITS, 0, host=True)
def mend_wait(client: Client, _a: int, _b: int, _c: int) -> None:
    """Let the next wait end well; not drawn, but the drain does it."""
    if isinstance(client.copies, WaitControl):
        client.copies.next_wait(WaitEnd.DONE)


DRAWN = (fail_wait.__name__, break_off_wait.__name__, break_off_load.__name__)


def with_waits(
    random: Random, config: CacheConfig, actions: tuple[Action, ...]
) -> tuple[Action, ...]:
    """The actions of a small case, with such actions among them if they are drawn."""
    back = config.write_policy is WritePolicy.WRITE_BACK
    if not config.host_tier or random.random() >= (BACK_SHARE if back else SHARE):
        return actions
    mixed = list(actions)
    for _ in range(1 + len(actions) // EVERY):
        mixed.insert(random.randrange(len(mixed) + 1), Action(random.choice(DRAWN)))
    return tuple(mixed)
