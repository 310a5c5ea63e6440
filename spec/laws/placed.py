"""The end of a prefetch as a host insert, and what the laws of the store share.

A prefetch that ends places its pages as `insert_host` does, and no other law says anything new
about that. So the step is judged as a host insert from the state in which the slots of the pages
that arrived had just been given back.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import evolve

from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import EndPrefetch, HostInserted, HostPayload, InsertHost
from kvcanon.spec.snapshot import NO_POOL, Pool, PoolState, Snapshot
from kvcanon.spec.tier import OrderKind, OrderState
from kvcanon.spec.types import CPU, FULL, Key, Slot
from kvcanon.spec.views import Step, present_pages

SLOTS_OF_STORES: Pool = (FULL, CPU)
"""The pool whose slots prefetches hold."""


@lru_cache(maxsize=256)  # A step asks for the names of the same keys several times.
def names_of(key: Key) -> tuple[bytes, ...]:
    """The hash of each page of a key: its name in the store."""
    return page_hashes(namespace_seed(key.namespace), key.pages)


def free_of(state: Snapshot, pool: Pool) -> frozenset[Slot]:
    """The free slots of a pool, as a set."""
    return state.pools.get(pool, NO_POOL).free_set


def ended_order(step: Step) -> OrderState | None:
    """The prefetch that a step ended; None if it ended none."""
    call, store = step.operation, step.before.store
    if not isinstance(call, EndPrefetch) or not isinstance(step.outcome, HostInserted):
        return None
    if store is None:
        return None
    for order in store.orders:
        if order.order_id == call.order_id and order.kind is OrderKind.FETCH:
            return None if order.cancelled else order
    return None


def arrived_of(step: Step) -> int:
    """The pages of the prefetch that a step ended which had arrived."""
    order = ended_order(step)
    return 0 if order is None else order.pages


def as_host_insert(step: Step) -> Step | None:
    """The end of a prefetch as a host insert of the pages that arrived; None where it is none.

    It is none either where the pages before them have left the tree: then nothing is placed.
    """
    order = ended_order(step)
    if order is None or not order.pages:
        return None
    end = order.start_pages + order.pages
    key = order.key.prefix(end)
    if present_pages(step.before, key) < order.start_pages:
        return None
    blank = bytes(step.before.config.slot_bytes)
    call = InsertHost(key, order.start_pages, HostPayload((blank,) * order.pages))
    before = _given_back(step, order)
    return evolve(step, before=before, operation=call, difference=None)


def _given_back(step: Step, order: OrderState) -> Snapshot:
    """The state before a prefetch ended, with the slots that it gave up in the free list."""
    before, after = step.before, step.after
    kept = {
        slot
        for each in (() if after.store is None else after.store.orders)
        if each.order_id == order.order_id
        for slot in each.slots
    }
    given = [slot for slot in order.slots if slot not in kept]
    pool = before.pools[SLOTS_OF_STORES]
    without = PoolState(pool.capacity, (*pool.free, *given), pool.held.difference(given))
    return evolve(before, pools={**before.pools, SLOTS_OF_STORES: without}, store=after.store)
