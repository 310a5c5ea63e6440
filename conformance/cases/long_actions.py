"""Long actions: hundreds of calls of one kind, for counters and structures that overflow late.

A case has at most one of them, and few cases have any: each takes as long as several cases. They
are not among the actions that Hypothesis draws.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.conformance.protocol.drawn_config import PAST_16_BITS
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Counts, Key, Slots, make_key

LONG: dict[str, ActionKind] = {}
"""Every long action by name."""

MANY = 270
"""More than one byte counts."""
MANY_EVICTIONS = 1_005
NESTED = 175
"""By how many nodes a path grows at a time."""
NEST = 200
"""The letter of nested prompts, which no other prompt has."""
MANY_COPIES = 300
"""How many copies are in flight at once."""
COPIED = 1 << 12
"""The first letter of pages that are copied."""
STRIDE, TOKENS = 7, 50_021
"""How far apart the tokens of a lengthy prompt are, and how many there are: a prime number."""
LIVED, LIVES, LIVED_PAGES = 500, 12, 3
"""The first letter of prompts that are served for long, and how many letters and pages they have.
"""
ROUNDS, LOOKS = 75, 9
"""How many of them an action serves, and how many others it matches before each: so 108 actions
draw more ticks than 16 bits count."""
HOT = 4
"""How many prompts of one page an action matches; the others become old meanwhile."""
ABORTED, SETTLED, LOADED = 1 / 8, 1 / 8, 1 / 8
"""The share of requests that are aborted, after which copies are settled, and before which the
prompt is loaded back."""
LEFT = 8
"""How many slots a nested prompt leaves free."""


@enter(LONG, 1)
def hit_for_long(client: Client, a: int, b: int, c: int) -> None:
    """Insert the cached part of a known key so often that its hits need more than a byte."""
    key = client.known(a, b) if client.keys else client.prompt(a, b, c)
    client.put(key)
    client.keys.append(key)
    there = key.prefix(client.cache.match(key).device_pages)
    for _ in range(MANY if len(there) else 0):
        client.cache.insert(there, len(there), Slots(), priority=c % 3)


@enter(LONG, 1)
def lock_for_long(client: Client, a: int, b: int, _c: int) -> None:
    """Lock a known key more often than a byte counts, and release all but one lock."""
    key = client.known(a, b)
    receipts = [client.cache.lock(key) for _ in range(MANY)]
    client.receipts.append(receipts.pop(a % MANY))
    for receipt in receipts:
        client.cache.unlock(receipt)


@enter(LONG, 1, Capability.EVICT)
def evict_for_long(client: Client, a: int, b: int, c: int) -> None:
    """Call evict a thousand times: now and then for a page that was inserted, mostly for none."""
    config = client.cache.config
    one = Counts(1, int(SWA in client.components), int(MAMBA in client.components))
    for at in range(MANY_EVICTIONS):
        if at % 16 == 0:
            page = page_of(NEST + (a + at) % 3, config.page_size, bigram=config.bigram)
            key = Key((page,) * (1 + b % 2))
            client.put(key)
        client.cache.evict(one if at % 16 == 8 + c % 8 else Counts())


@enter(LONG, 1)
def nest(client: Client, a: int, _b: int, _c: int) -> None:
    """Insert a long prompt, then shorter and shorter parts of it, so that each page may be a node.

    The next goes on with shorter parts. From the longest on, each insert walks few nodes.
    """
    config = client.cache.config
    page = page_of(NEST + a % 2, config.page_size, bigram=config.bigram)
    slots = config.capacity(FULL, GPU)
    if SWA in client.components:
        slots = min(slots, config.capacity(SWA, GPU))
    whole = Key((page,) * max(0, slots - LEFT))
    nested = [key for key in client.keys if key.pages[:1] == (page,)]
    if not nested:
        client.put(whole)
    shortest = min((len(key) for key in nested), default=len(whole))
    for pages in range(shortest - 1, max(0, shortest - 1 - NESTED), -1):
        client.cache.insert(whole.prefix(pages), pages, Slots())
    client.keys += [whole, whole.prefix(max(1, shortest - 1 - NESTED))]
    client.cache.match(whole)


@enter(LONG, 1)
def serve_past_16_bits(client: Client, a: int, _b: int, _c: int) -> None:
    """Run a request for a prompt of almost 2^16 tokens, for a longer one, and for that again."""
    for key in lengthy_prompts(client.cache.config, a):
        client.keys.append(key)
        request = client.start(key, client.cache.match(key).device_pages, counted_pages=0)
        client.insert(request, priority=0)
        client.cache.match(key)


def lengthy_prompts(config: CacheConfig, a: int) -> tuple[Key, Key, Key]:
    """Return prompts of fewer and of more tokens than 16 bits count, and the longer one again."""
    tokens = [(a + STRIDE * at) % TOKENS for at in range(PAST_16_BITS + config.bigram)]
    longer = make_key(tokens, config.page_size, bigram=config.bigram)
    return longer.prefix(((1 << 16) - 1) // config.page_size), longer, longer


@enter(LONG, 1, host=True)
def back_up_many(client: Client, a: int, _b: int, _c: int) -> None:
    """Insert hundreds of pages, whose backups are all in flight together, if there are any."""
    for key in _copied(client, a):
        client.put(key)
        client.hit(key, priority=0)
        client.keys.append(key)
    _acknowledge_all(client)


@enter(LONG, 1, Capability.LOAD_BACK, Capability.EVICT, host=True)
def load_many(client: Client, a: int, _b: int, _c: int) -> None:
    """Evict from the device what the host has, and load hundreds of pages back together."""
    client.settle()
    client.cache.evict(Counts(full=client.cache.config.capacity(FULL, GPU)))
    client.settle()
    for key in _copied(client, a):
        client.cache.load_back(key)
    _acknowledge_all(client)


def _copied(client: Client, a: int) -> list[Key]:
    """The keys of pages that are copied together."""
    config = client.cache.config
    letters = range(COPIED + a, COPIED + a + MANY_COPIES)
    return [Key((page_of(each, config.page_size, bigram=config.bigram),)) for each in letters]


def _acknowledge_all(client: Client) -> None:
    """Let every copy in flight end, the last one first."""
    if client.copies is not None:
        for transfer_id in reversed(client.copies.open_transfer_ids):
            client.copies.acknowledge(transfer_id)


@enter(LONG, 1)
def live_on(client: Client, a: int, b: int, c: int) -> None:
    """Serve a few prompts again and again, with evictions and copies: about a thousand calls."""
    random, config = Random(a << 24 | b << 12 | c), client.cache.config
    prompts = lived_prompts(config)
    hot = [prompts[(c + at) % LIVES * LIVED_PAGES] for at in range(HOT)]
    for _ in range(ROUNDS):
        for _ in range(LOOKS):
            client.cache.match(random.choice(hot))
        key = random.choice(prompts)
        if config.host_tier and Capability.LOAD_BACK in client.can and random.random() < LOADED:
            with suppress(CacheError):
                client.cache.load_back(key)
        start = client.cache.match(key).device_pages
        with suppress(CacheError):  # Little is free while copies hold it.
            request = client.start(key, start, counted_pages=0)
            if random.random() < ABORTED:
                client.abort(request)
            else:
                client.insert(request, priority=0)
        if random.random() < SETTLED:
            _acknowledge_all(client)
            _poll_and_take(client)
    client.spent.clear()  # Only the cache is to remember them.


def lived_prompts(config: CacheConfig) -> list[Key]:
    """Return the prompts that are served for long."""
    pages = [page_of(LIVED + at, config.page_size, bigram=config.bigram) for at in range(LIVES)]
    return [Key((page,) * count) for page in pages for count in range(1, LIVED_PAGES + 1)]


def _poll_and_take(client: Client) -> None:
    """Settle what has arrived, and take the events, where the cache has them."""
    if Capability.POLL in client.can and client.cache.config.host_tier:
        client.cache.poll()
    if Capability.TAKE_EVENTS in client.can:
        client.cache.take_events()


OF_SMALL_POOLS = (hit_for_long.__name__, lock_for_long.__name__, evict_for_long.__name__)
"""Those that small pools allow too."""
