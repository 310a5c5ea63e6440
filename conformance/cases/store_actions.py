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
from kvcanon.spec.operations import Ordered
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Key

STORES: dict[str, ActionKind] = {}
"""The actions on stores, by name. They are drawn for cases with a store alone."""

ALL_PAGES = 1 << 12
"""More pages than an order of any case has."""


def store_of(client: Client) -> tuple[StoredCache, StoreControl] | None:
    """The cache with its store, and the control of it; None without a store."""
    if client.store is None:
        return None
    return client.cache, client.store  # type: ignore[return-value]  # It has a store.


@enter(STORES, 5, host=True)
def store(client: Client, a: int, b: int, _c: int) -> None:
    """Order the write of a known key."""
    if (found := store_of(client)) is not None:
        found[0].store(client.known(a, b))


@enter(STORES, 5, host=True)
def prefetch(client: Client, a: int, b: int, c: int) -> None:
    """Order the fetch of a known key, or of a new prompt that shares its beginning."""
    if (found := store_of(client)) is None:
        return
    key = client.known(a, b) if c % 4 else client.prompt(a, b, c)
    begin_prefetch(client, found[0], key)


@enter(STORES, 6, host=True)
def carry_out(client: Client, a: int, b: int, c: int) -> None:
    """Let an order write or fetch some pages, or all, or end where it is."""
    if (found := store_of(client)) is None or not found[1].open_order_ids:
        return
    order_id = found[1].open_order_ids[a % len(found[1].open_order_ids)]
    if b % 8 == 0:
        found[1].end(order_id)
    else:
        found[1].go_on(order_id, ALL_PAGES if b % 2 else c % 3)


@enter(STORES, 6, host=True)
def poll_store(client: Client, _a: int, _b: int, _c: int) -> None:
    """Take the progress of the orders."""
    if (found := store_of(client)) is not None:
        found[0].poll_store()


@enter(STORES, 4, host=True)
def end_prefetch(client: Client, a: int, _b: int, _c: int) -> None:
    """End an open prefetch, however far it is."""
    if (found := store_of(client)) is not None and client.prefetches:
        found[0].end_prefetch(client.prefetches.pop(a % len(client.prefetches)))


@enter(STORES, 1, host=True)
def end_wrongly(client: Client, a: int, b: int, _c: int) -> None:
    """End a prefetch that is not open: a write that is, one that ended before, or none."""
    if (found := store_of(client)) is None:
        return
    if a % 2:
        found[0].store(client.known(a, b))
    ids = [each for each in found[1].progress if each not in client.prefetches]
    found[0].end_prefetch(ids[-1 - b % min(2, len(ids))] if ids and a % 4 else ALL_PAGES + a)


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
def restart(client: Client, a: int, b: int, c: int) -> None:
    """Reset for the same weights, mostly: what a new process over the same store begins with.

    Perhaps in the middle of a write and of two prefetches, one of which was given up before.
    """
    if (found := store_of(client)) is None:
        return
    cache, control = found
    _let_go(client)
    client.settle()
    if b % 2:
        control.finish()
        cache.poll_store()
    if c % 2:
        cache.store(client.known(b, 1))
        begin_prefetch(client, cache, client.prompt(a, b, c))
        begin_prefetch(client, cache, client.prompt(b, c, a))
        if client.prefetches:
            cache.end_prefetch(client.prefetches.pop())
    if a % 8:
        cache.reset(keep_store=True)
    else:
        cache.reset()
    client.prefetches.clear()


@enter(STORES, 4, Capability.FLUSH, Capability.EVICT, Capability.EVICT_HOST, host=True)
def round_trip(client: Client, a: int, b: int, c: int) -> None:
    """Write a prompt to the store, let it leave the host, and fetch it again for its next use.

    Meanwhile the store may have lost a page of it, or give another one, or the cache is reset.
    """
    if (found := store_of(client)) is None:
        return
    cache, control = found
    key = _kept_on_host(client, client.prompt(b, a, c))
    _carry_out(cache, control, cache.store(key))
    meanwhile, at = a % 6, -1 - b % max(1, len(key))
    if meanwhile:
        _empty(client, CPU)
    if meanwhile == 1:
        _let_go(client)
        cache.flush()
        cache.reset(keep_store=True)
        client.prefetches.clear()
    elif meanwhile in (2, 3):
        control.lose(at)
    elif meanwhile in (4, 5):
        control.damage(at, c)
    fetched = begin_prefetch(client, cache, key)
    if fetched.order_id is None:
        return
    if c % 3:
        _carry_out(cache, control, fetched)
    else:
        control.go_on(fetched.order_id, 1)
        cache.poll_store()
    client.prefetches.remove(fetched.order_id)
    cache.end_prefetch(fetched.order_id)
    _load(client, key)


@enter(STORES, 2, Capability.FLUSH, Capability.EVICT, host=True)
def cross_orders(client: Client, a: int, b: int, c: int) -> None:
    """Order a write twice, end it as if it were a prefetch, and begin a fetch while it goes on.

    The fetch is of more than a prompt that was just computed, and is perhaps on the device alone.
    """
    if (found := store_of(client)) is None:
        return
    cache, control = found
    key = _kept_on_host(client, client.prompt(a, b, c))
    written = cache.store(key)
    cache.store(client.known(a, 1) if c % 3 else key)
    if written.order_id is not None:
        with suppress(CacheError):
            cache.end_prefetch(written.order_id)
        control.go_on(written.order_id, b % 2)
        cache.poll_store()
    fresh = client.prompt(b, c, a)
    with suppress(CacheError):
        client.put(fresh)
    client.keys.append(fresh)
    begin_prefetch(client, cache, Key((*fresh.pages, *key.pages), fresh.namespace))
    _carry_out(cache, control, written)
    cache.store(key)


@enter(STORES, 2, Capability.FLUSH, Capability.EVICT, Capability.EVICT_HOST, host=True)
def write_late(client: Client, a: int, b: int, c: int) -> None:
    """Write a prompt whose host slots have other pages by the time at which the store takes it."""
    if (found := store_of(client)) is None:
        return
    cache, control = found
    written = cache.store(_kept_on_host(client, client.prompt(a, b, c)))
    _empty(client, CPU)
    _kept_on_host(client, client.prompt(a, b, c + 1))
    _carry_out(cache, control, written)


@enter(STORES, 2, Capability.FLUSH, Capability.EVICT, Capability.EVICT_HOST, host=True)
def read_late(client: Client, a: int, b: int, c: int) -> None:
    """Give up a prefetch on which the store goes on while other pages come to the host."""
    if (found := store_of(client)) is None:
        return
    cache, control = found
    key = _kept_on_host(client, client.prompt(a, b, c))
    _carry_out(cache, control, cache.store(key))
    _empty(client, CPU)
    ordered = begin_prefetch(client, cache, key)
    if ordered.order_id is None:
        return
    if c % 2:
        control.go_on(ordered.order_id, 1)
        cache.poll_store()
    client.prefetches.remove(ordered.order_id)
    cache.end_prefetch(ordered.order_id)
    other = _kept_on_host(client, client.prompt(a, b, c + 1))
    _carry_out(cache, control, ordered)
    _load(client, other)


@enter(STORES, 2, Capability.FLUSH, Capability.EVICT, Capability.EVICT_HOST, host=True)
def compute_meanwhile(client: Client, a: int, b: int, c: int) -> None:
    """Compute the beginning of a prompt while a prefetch of it goes on."""
    if (found := store_of(client)) is None:
        return
    cache, control = found
    # The prefetch and the copies each take a host slot for a page.
    most = max(1, cache.config.host_slots.full // 2)
    key = _kept_on_host(client, client.prompt(a, b, c).prefix(most))
    _carry_out(cache, control, cache.store(key))
    _empty(client, CPU)
    ordered = begin_prefetch(client, cache, key)
    if ordered.order_id is None:
        return
    control.go_on(ordered.order_id, c % 2)
    _kept_on_host(client, key.prefix(1 + b % len(key)))
    _carry_out(cache, control, ordered)
    client.prefetches.remove(ordered.order_id)
    cache.end_prefetch(ordered.order_id)
    _load(client, key)


@enter(STORES, 0, host=True)
def finish_orders(client: Client, _a: int, _b: int, _c: int) -> None:
    """Let every order end where it is; not drawn, but the drain does it."""
    if client.store is not None:
        client.store.finish()


def _kept_on_host(client: Client, prompt: Key) -> Key:
    """Compute the beginning of a prompt and evict it from the device, so that it is on the host.

    Twice, since some caches do not copy at the first use. Returns what of it the pools have room
    for, if nobody else needs them.
    """
    config = client.cache.config
    key = prompt.prefix(min(len(prompt), config.device_slots.full, config.host_slots.full))
    client.keys.append(key)
    for _ in range(2):
        with suppress(CacheError):  # What is locked may leave no slots.
            client.put(key)
    client.cache.flush()
    _empty(client, GPU)
    return key


def begin_prefetch(client: Client, cache: StoredCache, key: Key) -> Ordered:
    """Order a prefetch, which the client knows from then on."""
    ordered = cache.prefetch(key)
    if ordered.order_id is not None:
        client.prefetches.append(ordered.order_id)
    return ordered


def _carry_out(cache: StoredCache, control: StoreControl, ordered: Ordered) -> None:
    """Let an order go on to its last page, and take its progress."""
    if ordered.order_id is not None and ordered.order_id in control.open_order_ids:
        control.go_on(ordered.order_id, ordered.pages)
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
