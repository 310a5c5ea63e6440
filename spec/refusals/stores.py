"""Grounds of calls on the store below the host."""

from __future__ import annotations

from kvcanon.spec.operations import EndPrefetch, Prefetch, Store
from kvcanon.spec.refusals.keys import wrong_key
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderKind


def bad_order(state: Snapshot, call: Store | Prefetch) -> str | None:
    """A wrong key, or a cache without a store."""
    if state.store is None:
        return "the cache has no store"
    return wrong_key(state.config, call.key)


def not_open(state: Snapshot, call: EndPrefetch) -> str | None:
    """An id that no open prefetch has, or one that was given up."""
    orders = () if state.store is None else state.store.orders
    for order in orders:
        if order.order_id == call.order_id and order.kind is OrderKind.FETCH:
            return "it was given up" if order.cancelled else None
    return f"no prefetch {call.order_id} is open"
