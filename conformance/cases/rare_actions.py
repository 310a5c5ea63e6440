"""Rare actions: situations that the other actions hardly ever reach.

Examples are a copy that fails while others build on it, a load that must evict, an eviction from
the host of data that the device has, too, and a refusal for each reason. Some laws are exercised
only by these.

An action makes its situation likely, by lawful calls. Whether it arises depends on the cache.
"""

from __future__ import annotations

from contextlib import suppress

from attrs import evolve

from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.errors import CacheError, OutOfSlots
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Key, Page, Slots

RARE: dict[str, ActionKind] = {}
"""Every rare action by name."""

FIRST_LETTER = 9
"""The letters of one-letter keys, which no other prompt has."""
CHAT = 12
"""The most pages of a chat: more than a window and its page before it."""
DUPLICATES = 8
"""The most prompts of which copies fill the host."""
TRIES = 4
"""How many keys are matched to find one that is usable from the host."""


@enter(RARE, 1, Capability.RESET)
def start_over(client: Client, a: int, b: int, c: int) -> None:
    """Sometimes release all locks, mostly wait for all copies, and reset."""
    if a % 2:
        return
    for receipt in list(client.receipts):
        client.unlock(receipt)
    for request in client.requests:
        client.let_go(request)
    if c % 4:
        client.settle()
    client.cache.reset()
    if b % 2 and Capability.TAKE_EVENTS in client.can:
        client.cache.take_events()


@enter(RARE, 2, Capability.POLL, host=True)
def back_up_and_fail(client: Client, a: int, b: int, _c: int) -> None:
    """Insert a page and the page after it, and let the backup of the first fail.

    The backup of the second builds on it, and is usually still in flight.
    """
    client.settle()
    both = Key(_pages(client, FIRST_LETTER + a % 4, 2))
    for part in (both.prefix(1), both):
        client.keys.append(part)
        client.put(part)
    client.hit(both, priority=0)
    copies = client.copies
    if copies is not None and copies.open_transfer_ids:
        first, *others = copies.open_transfer_ids
        if b % 3 == 1 and others:
            copies.acknowledge(others[-1])
            client.cache.poll()
        copies.fail(first)
        client.cache.poll()


@enter(RARE, 2, Capability.LOAD_BACK, Capability.INSERT_HOST, host=True)
def squeeze_and_load(client: Client, a: int, b: int, c: int) -> None:
    """Insert a key on the host, insert another, allocate all free slots, and load the first back.

    The load must evict the other, which is sometimes locked. Then the slots are freed, and the key
    is matched while its load is in flight.
    """
    fetched = _fetched(client, a, b)
    other = client.prompt(a, b, c)
    other = other.prefix(min(len(other), 4))
    client.keys.append(other)
    client.put(other)
    client.settle()
    if not c % 4:
        client.receipts.append(client.cache.lock(other))
    taken = _take_free_slots(client)
    try:
        client.cache.load_back(fetched)
    finally:
        for slots in taken:
            client.cache.free(slots)
    client.cache.match(fetched)


@enter(RARE, 1, Capability.LOAD_BACK, Capability.EVICT, Capability.EVICT_HOST, host=True)
def demote_and_load(client: Client, a: int, b: int, c: int) -> None:
    """Evict much of the device's data, load a key back, and evict its host copy."""
    client.settle()
    client.cache.evict(Counts(full=1 + c % client.cache.config.capacity(FULL, GPU)))
    client.cache.load_back(client.on_host(a, b, TRIES))
    client.settle()
    client.cache.evict_host(Counts(full=1 + c % 3))


@enter(RARE, 1, Capability.EVICT)
def press_for_all(client: Client, a: int, b: int, c: int) -> None:
    """Evict for every component, even those that the cache does not have."""
    client.cache.evict(Counts(a % 2, b % 3, c % 2))


@enter(RARE, 1, Capability.LOAD_BACK, Capability.INSERT_HOST, Capability.EVICT_HOST, host=True)
def fetch_and_press(client: Client, a: int, b: int, c: int) -> None:
    """Insert a key on the host, load it back, and evict its host copy."""
    client.cache.load_back(_fetched(client, a, b))
    client.settle()
    client.cache.evict_host(Counts(full=1 + c % 3))


@enter(RARE, 1, Capability.INSERT_HOST, Capability.EVICT_HOST, host=True)
def fetch_what_is_there(client: Client, a: int, b: int, c: int) -> None:
    """Compute a key, insert it on the host, too, and evict from the host."""
    client.settle()
    key = Key(_pages(client, FIRST_LETTER + a % 4, 1 + b % 2))
    client.keys.append(key)
    client.put(key)
    client.fetch(key, 0, swa_pages=len(key))
    client.settle()
    client.cache.evict_host(Counts(full=1 + c % 3))


@enter(RARE, 1, Capability.INSERT_HOST, host=True)
def fetch_beyond(client: Client, a: int, b: int, c: int) -> None:
    """Compute pages, and insert them and one more on the host, which may lack free slots."""
    key = Key(_pages(client, FIRST_LETTER + a % 4, 2 + b % 3))
    part = key.prefix(len(key) - 1)
    client.keys += [part, key]
    client.put(part)
    client.fetch(key, 0, swa_pages=c % (len(key) + 1))


@enter(RARE, 1, Capability.EVICT, host=True)
def evict_above_a_bare_tail(client: Client, a: int, b: int, _c: int) -> None:
    """Evict a node with window data whose children are only on the host, without window data.

    If the host has too few free window slots, the evicted data cannot be copied.
    """
    client.settle()
    key = Key(_pages(client, FIRST_LETTER + a % 4, 4 + b % 3))
    for bare in (0, 1, 2):
        part = key.prefix(len(key) - 2 + bare)
        client.keys.append(part)
        start = client.cache.match(part).device_pages
        slots = client.allocate(part, start)
        if bare and slots.swa:
            client.cache.free(Slots(swa=slots.swa))
            slots = evolve(slots, swa=())
        client.hand_over(part, start, slots)
    client.settle()
    for _ in range(TRIES):
        client.cache.evict(Counts(full=1))
        if client.cache.match(key.prefix(len(key) - 2)).device_pages < len(key) - 2:
            return
    client.cache.evict(Counts(full=len(key)))


@enter(RARE, 1, Capability.LOAD_BACK, Capability.EVICT, host=True)
def evict_beside_duplicates(client: Client, a: int, b: int, c: int) -> None:
    """Evict a prompt while the host is full of copies of data that is on the device, too."""
    client.release_all()
    key, config = client.prompt(a, b, c), client.cache.config
    key = key.prefix(min(len(key), 2))
    room = min(config.capacity(FULL, CPU), config.capacity(FULL, GPU) - len(key))
    pages = max(1, config.load_back_threshold_pages, -(-room // DUPLICATES))
    others = [Key(_pages(client, FIRST_LETTER + at, pages)) for at in range(room // pages)]
    client.keys += [key, *others]
    client.put(key)
    receipt = client.cache.lock(key)
    client.receipts.append(receipt)
    try:
        for other in others:
            client.put(other)
        client.cache.evict(Counts(full=config.capacity(FULL, GPU)))
        for other in others:
            with suppress(CacheError):  # It may have found no room on the host.
                client.cache.load_back(other)
        client.settle()
    finally:
        client.unlock(receipt)
    client.cache.evict(Counts(full=1 + c % 2))


@enter(RARE, 1)
def lock_a_chat(client: Client, a: int, b: int, c: int) -> None:
    """Compute a long prompt in turns of a few pages, lock it, and make room beside it."""
    client.release_all()
    config, turn = client.cache.config, 1 + b % 4
    whole = Key(_pages(client, FIRST_LETTER + a % 8, min(config.capacity(FULL, GPU) - 1, CHAT)))
    for end in (*range(turn, len(whole), turn), len(whole)):
        key = whole.prefix(end)
        client.keys.append(key)
        client.insert(client.start(key, client.cache.match(key).device_pages, 0), priority=0)
    client.receipts.append(client.cache.lock(whole))
    if Capability.EVICT in client.can:
        client.cache.evict(Counts(1 + c % 4, c % 3, c % 2))
    client.cache.match(whole)


def _fetched(client: Client, a: int, b: int) -> Key:
    """Insert a key of a page or two on the host, as if fetched from storage; returns the key."""
    key = Key(_pages(client, FIRST_LETTER + 4 + a % 4, 1 + b % 2))
    client.keys.append(key)
    client.fetch(key, 0, swa_pages=len(key))
    return key


def _pages(client: Client, letter: int, count: int) -> tuple[Page, ...]:
    config = client.cache.config
    return (page_of(letter, config.page_size, bigram=config.bigram),) * count


def _take_free_slots(client: Client) -> list[Slots]:
    """Allocate, by halves, until hardly a full slot is free; returns the slots."""
    taken: list[Slots] = []
    count = client.cache.config.capacity(FULL, GPU)
    while count:
        try:
            taken.append(client.cache.allocate(Counts(full=count)))
        except OutOfSlots:
            count //= 2
    return taken
