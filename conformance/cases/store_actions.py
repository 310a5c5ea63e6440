"""Actions on the store below the host: writes, prefetches, late and lying stores, restarts.

They are drawn for cases with a store alone (`Case.store`); elsewhere they do nothing. A cache over
a store keeps full data alone, so such a case has neither windows nor mamba states.
"""

from __future__ import annotations

from contextlib import suppress

from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.protocol.adapter import Capability, StoreControl
from kvcanon.spec.cache import StoredCache
from kvcanon.spec.errors import CacheError
from kvcanon.spec.tier import OrderId
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Key

STORES: dict[str, ActionKind] = {}
"""The actions on stores, by name. They are drawn for cases with a store alone."""

ALL_PAGES = 1 << 12
"""More pages than an order of any case has."""


def _store_of(client: Client) -> tuple[StoredCache, StoreControl] | None:
    """The cache with its store, and the control of it; None without a store."""
    if client.store is None:
        return None
    return client.cache, client.store  # type: ignore[return-value]  # It has a store.


@enter(STORES, 5, host=True)
def store(client: Client, a: int, b: int, _c: int) -> None:
    """Order the write of a known key."""
    if (found := _store_of(client)) is not None:
        found[0].store(client.known(a, b))


@enter(STORES, 5, host=True)
def prefetch(client: Client, a: int, b: int, c: int) -> None:
    """Order the fetch of a known key, or of a new prompt that shares its beginning."""
    if (found := _store_of(client)) is None:
        return
    key = client.known(a, b) if c % 4 else client.prompt(a, b, c)
    _begin_prefetch(client, found[0], key)


@enter(STORES, 6, host=True)
def carry_out(client: Client, a: int, b: int, c: int) -> None:
    """Let an order write or fetch some pages, or all, or end where it is."""
    if (found := _store_of(client)) is None or not found[1].open_order_ids:
        return
    order_id = found[1].open_order_ids[a % len(found[1].open_order_ids)]
    if b % 8 == 0:
        found[1].end(order_id)
    else:
        found[1].go_on(order_id, ALL_PAGES if b % 2 else c % 3)


@enter(STORES, 6, host=True)
def poll_store(client: Client, _a: int, _b: int, _c: int) -> None:
    """Take the progress of the orders."""
    if (found := _store_of(client)) is not None:
        found[0].poll_store()


@enter(STORES, 4, host=True)
def end_prefetch(client: Client, a: int, _b: int, _c: int) -> None:
    """End an open prefetch, however far it is."""
    if (found := _store_of(client)) is not None and client.prefetches:
        found[0].end_prefetch(client.prefetches.pop(a % len(client.prefetches)))


@enter(STORES, 1, host=True)
def end_wrongly(client: Client, a: int, _b: int, _c: int) -> None:
    """End a prefetch that is not open: one that ended before, a write, or none."""
    if (found := _store_of(client)) is not None:
        ids = [each for each in found[1].progress if each not in client.prefetches]
        found[0].end_prefetch(ids[a % len(ids)] if ids and a % 3 else ALL_PAGES + a)


@enter(STORES, 2, host=True)
def lose_stored(client: Client, a: int, _b: int, _c: int) -> None:
    """Let the store lose a page, as one that evicts does."""
    if client.store is not None:
        client.store.lose(a)


@enter(STORES, 2, host=True)
def damage_stored(client: Client, a: int, b: int, _c: int) -> None:
    """Let the store give a page with other bytes, or another page in its place."""
    if client.store is not None:
        client.store.damage(a, b)


@enter(STORES, 2, Capability.RESET, host=True)
def restart(client: Client, a: int, b: int, _c: int) -> None:
    """Reset for the same weights, mostly: what a new process over the same store begins with."""
    if (found := _store_of(client)) is None:
        return
    _let_go(client)
    client.settle()
    if b % 2:
        found[1].finish()
        found[0].poll_store()
    if a % 8:
        found[0].reset(keep_store=True)
    else:
        found[0].reset()
    client.prefetches.clear()


@enter(STORES, 4, Capability.FLUSH, Capability.EVICT, Capability.EVICT_HOST, host=True)
def round_trip(client: Client, a: int, b: int, c: int) -> None:
    """Write a prompt to the store, let it leave the host, and fetch it again for its next use."""
    if (found := _store_of(client)) is None:
        return
    cache, control = found
    key = client.prompt(a, b, c)
    client.keys.append(key)
    for _ in range(2):
        with suppress(CacheError):  # What is locked may leave no slots.
            client.put(key)
    cache.flush()
    _empty(client, GPU)
    _carry_out(cache, control, cache.store(key).order_id)
    if c % 4:
        _empty(client, CPU)
    if c % 8 == 1:
        _let_go(client)
        cache.flush()
        cache.reset(keep_store=True)
        client.prefetches.clear()
    if c % 3 == 0:
        control.damage(-1 - b % max(1, len(key)), c // 3)
    order_id = _begin_prefetch(client, cache, key)
    if order_id is None:
        return
    if b % 3:
        _carry_out(cache, control, order_id)
    else:
        control.go_on(order_id, 1)
        cache.poll_store()
    client.prefetches.remove(order_id)
    cache.end_prefetch(order_id)
    _load(client, key)


@enter(STORES, 0, host=True)
def finish_orders(client: Client, _a: int, _b: int, _c: int) -> None:
    """Let every order end where it is; not drawn, but the drain does it."""
    if client.store is not None:
        client.store.finish()


def _begin_prefetch(client: Client, cache: StoredCache, key: Key) -> OrderId | None:
    """Order a prefetch, which the client knows from then on."""
    order_id = cache.prefetch(key).order_id
    if order_id is not None:
        client.prefetches.append(order_id)
    return order_id


def _carry_out(cache: StoredCache, control: StoreControl, order_id: OrderId | None) -> None:
    """Let an order go on to its end, and take its progress."""
    if order_id is not None and order_id in control.open_order_ids:
        control.go_on(order_id, ALL_PAGES)
    cache.poll_store()


def _empty(client: Client, medium: object) -> None:
    """Evict from a medium all that is not locked."""
    config = client.cache.config
    pool = config.device_slots if medium is GPU else config.host_slots
    evict = client.cache.evict if medium is GPU else client.cache.evict_host
    evict(Counts(full=pool[FULL]))


def _let_go(client: Client) -> None:
    """Release all locks; requests keep their slots."""
    for receipt in list(client.receipts):
        client.unlock(receipt)
    for request in client.requests:
        client.let_go(request)


def _load(client: Client, key: Key) -> None:
    """Use a prefix from the host, so that its bytes are read on the device."""
    if Capability.LOAD_BACK not in client.can:
        return
    there = client.cache.match(key).prefix_pages
    if there:
        client.cache.load_back(key.prefix(there))
        client.cache.flush()
        client.cache.match(key)
