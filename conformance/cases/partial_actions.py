"""Partial actions: part of the data of a key is handed over, fetched or loaded.

A heal of part of a tombstone, a fetch from inside a node on, and a load that ends inside a node cut
nodes where no match has cut them before. Each action takes keys of one letter, in a range of its
own, so that a node of several pages is likely.
"""

from __future__ import annotations

from contextlib import suppress

from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.prompts import LONGEST_PAGES, page_of
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import HostPayload, Receipt
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Slots,
    WritePolicy,
)

PARTIAL: dict[str, ActionKind] = {}
"""Every partial action by name."""

HEALED, FETCHED, LOADED, LITTLE, FILLING, ABOVE, ACROSS, UNWRITTEN = range(24, 88, 8)
"""The first letter of the keys of each action."""
MOST_FILLERS = 8


@enter(PARTIAL, 2)
def heal_part(client: Client, a: int, b: int, c: int) -> None:
    """Insert a key without window data, and again with some for its last pages only."""
    if SWA not in client.components:
        return
    key = _letters(client, HEALED + a % 4, 2 + b % 4)
    start = client.cache.match(key).device_pages
    client.hand_over(key, start, _take(client, key, start, windowed=0))
    if c % 4 == 0:
        client.receipts.append(client.cache.lock(key))
    start = b % 2
    windowed = 1 + c % max(1, len(key) - start - 1)
    client.hand_over(key, start, _take(client, key, start, windowed))


@enter(PARTIAL, 3, Capability.INSERT_HOST, host=True)
def fetch_part(client: Client, a: int, b: int, c: int) -> None:
    """Compute a key, perhaps in two nodes, and insert part of it on the host, or all of it."""
    pages = 3 + b % 3
    most = client.cache.config.capacity(FULL, CPU)
    if c % 4 == 0 and most < min(LONGEST_PAGES, client.cache.config.capacity(FULL, GPU)):
        pages = most + 1  # The host lacks slots for it.
    key = _letters(client, FETCHED + a % 8, pages)
    cut = b % len(key)
    for part in (key.prefix(cut), key) if cut else (key,):
        start = client.cache.match(part).device_pages
        client.hand_over(part, start, _take(client, part, start, windowed=0))
    start = 0 if c % 4 == 0 else 1 + c % (len(key) - 1)
    client.fetch(key, start, swa_pages=a % (len(key) - start + 1))


@enter(PARTIAL, 2, Capability.LOAD_BACK, Capability.INSERT_HOST, host=True)
def load_part(client: Client, a: int, b: int, c: int) -> None:
    """Insert a key on the host, load a part of it, and insert it while it is being loaded."""
    key = _letters(client, LOADED + a % 8, 2 + b % 3)
    client.fetch(key, 0, swa_pages=len(key))
    client.cache.load_back(key.prefix(len(key) - c % 2))
    slots = client.allocate(key, 0)
    client.hand_over(key, 0, slots)


@enter(PARTIAL, 1, Capability.LOAD_BACK, Capability.INSERT_HOST, host=True)
def load_little(client: Client, a: int, b: int, c: int) -> None:
    """Insert nothing but full pages on the host, and load them: a page, or with a small quota."""
    key = _letters(client, LITTLE + a % 8, 1 + b % 3)
    stamps = client.stamps.of_key(FULL, key)
    client.cache.insert_host(key, 0, HostPayload(full=tuple(stamps)))
    client.cache.load_back(key, quota_pages=c % len(key))
    client.cache.load_back(key.prefix(1))
    client.cache.load_back(key)


@enter(PARTIAL, 2, Capability.EVICT, Capability.INSERT_HOST, host=True)
def evict_above_a_host_leaf(client: Client, a: int, b: int, c: int) -> None:
    """Evict a node above a leaf on the host, which has no free slots for all of the node.

    Only under write_back may a leaf be on the host, and the node above it not.
    """
    config = client.cache.config
    if config.write_policy is not WritePolicy.WRITE_BACK or len(client.components) < 2:
        return
    client.settle()
    component = client.components[-1]
    fillers = _fill_host(client, component)
    key = _letters(client, ABOVE + a % 8, 2 + b % 2)
    part = key.prefix(len(key) - 1)
    client.put(part)
    tail = client.stamps.of_key(FULL, key)[len(part) :]
    client.cache.insert_host(key, len(part), HostPayload(full=tuple(tail)))
    for _ in range(2 + c % 2):
        client.cache.evict(Counts(full=config.capacity(FULL, GPU)))
    for receipt in fillers if c % 4 else ():
        client.unlock(receipt)


@enter(PARTIAL, 2, Capability.LOAD_BACK, Capability.INSERT_HOST, Capability.POLL, host=True)
def fail_across(client: Client, a: int, b: int, c: int) -> None:
    """Let a backup fail while a load is in flight, or the load while the backup is; poll first."""
    client.settle()
    fetched = _letters(client, ACROSS + a % 4, 1 + b % 2)
    client.fetch(fetched, 0, swa_pages=len(fetched))
    other = _letters(client, ACROSS + 4 + b % 4, 1)
    client.cache.load_back(fetched)
    for _ in range(2):
        client.put(other)
    client.cache.poll()
    copies = client.copies
    if copies is not None and copies.open_transfer_ids:
        copies.fail(copies.open_transfer_ids[-1 if c % 2 else 0])
        client.cache.poll()


@enter(PARTIAL, 1)
def insert_unwritten(client: Client, a: int, b: int, c: int) -> None:
    """Insert pages to which nothing was written, which are copied as they are."""
    key = _letters(client, UNWRITTEN + a % 4, 1 + b % 2)
    start = client.cache.match(key).device_pages
    wanted = _counts(client, key, start, c % (len(key) - start + 1))
    client.hand_over(key, start, client.cache.allocate(wanted))


def _letters(client: Client, letter: int, count: int) -> Key:
    """A key of one letter, which the client knows from now on."""
    config = client.cache.config
    key = Key((page_of(letter, config.page_size, bigram=config.bigram),) * count)
    client.keys.append(key)
    return key


def _counts(client: Client, key: Key, start: int, windowed: int) -> Counts:
    pages = len(key) - start
    states = int(MAMBA in client.components and pages > 0)
    return Counts(pages, windowed if SWA in client.components else 0, states)


def _take(client: Client, key: Key, start: int, windowed: int) -> Slots:
    """Allocate and write slots from a page on, window slots for the last pages only."""
    return client.take(key, _counts(client, key, start, min(windowed, len(key) - start)))


def _fill_host(client: Client, component: Component) -> list[Receipt]:
    """Fill the host's pool of a component with data of locked keys; returns their receipts."""
    receipts: list[Receipt] = []
    most = client.cache.config.capacity(component, CPU)
    for at in range(min(most, MOST_FILLERS)):
        key = _letters(client, FILLING + at, 1)
        with suppress(CacheError):
            client.fetch(key, 0, swa_pages=1)
            receipts.append(client.cache.lock(key))
            client.receipts.append(receipts[-1])
    return receipts
