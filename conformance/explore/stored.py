"""The store below an explored cache: its part of the state, and a copy of it.

A record is that of a page if it has the bytes that every request writes for the page. Those of no
page differ in no way that matters: no cache may take them.
"""

# ruff: noqa: SLF001  # Copying an object needs its private fields.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product as every

from attrs import evolve, frozen

from kvcanon.conformance.cases.client import Stamps
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.explore.form import Form
from kvcanon.conformance.explore.scope import Scope
from kvcanon.reference.state import OpenOrder, State, Tier
from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.laws.placed import names_of
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderId, OrderKind, seal
from kvcanon.spec.types import FULL, Key, Namespace


@frozen
class RightRecords:
    """What is right in the store for each page of a scope."""

    pages: Mapping[bytes, bytes]
    """The bytes of each page, by its hash."""
    names: Mapping[bytes, bytes]
    """The hash of each page, by its record."""

    def page_of(self, record: bytes) -> bytes:
        """The hash of the page whose record it is; empty if it is of none."""
        return self.names.get(record, b"")


def right_records(scope: Scope, namespaces: tuple[Namespace, ...], stamps: Stamps) -> RightRecords:
    """The right records of all pages of a scope; none where it has no store."""
    pages: dict[bytes, bytes] = {}
    for number in scope.namespaces if scope.store is not None else ():
        for letters in every(*map(range, scope.fans)):
            config = scope.config
            made = tuple(page_of(each, config.page_size, bigram=config.bigram) for each in letters)
            key = Key(made, namespaces[number])
            pages.update(zip(names_of(key), stamps.of_key(FULL, key), strict=True))
    return RightRecords(pages, {seal(name, data): name for name, data in pages.items()})


def whole_records(queue: ManualQueue) -> Iterator[bool]:
    """Whether each record that the store has is as it was written."""
    return (record == queue._whole.get(name) for name, record in queue.records.items())


def form_of(
    queue: ManualQueue, state: Snapshot, prefetches: list[OrderId], right: RightRecords
) -> Form:
    """What of the store decides the future, besides the slots of orders.

    The order of records does not matter, since each of them is lost and damaged in turn. Nothing
    reads them once the cache has let go of the store and no order is open.
    """
    store = state.store
    if store is None:
        return ()
    records = queue.records if store.is_open or queue.open_order_ids else {}
    numbers = {order.order_id: number for number, order in enumerate(store.orders)}
    return (
        store.is_open,
        tuple(store.stored),
        tuple(
            (
                order.kind.value,
                names_of(order.key)[-1],
                order.start_pages,
                order.pages,
                order.ended,
                order.cancelled,
            )
            for order in store.orders
        ),
        tuple((numbers.get(i, -1), at.pages) for i, at in queue._open.items()),
        tuple((numbers.get(i, -1), news.pages, news.ended) for i, news in queue._news.items()),
        tuple(_to_write(queue, right)),
        tuple(
            sorted(
                (name, right.page_of(each), right.page_of(queue._whole.get(name, b"")))
                for name, each in records.items()
            )
        ),
        tuple((name, right.page_of(each)) for name, each in queue._written),
        tuple((numbers.get(i, -1), page) for i, page in queue._refused),
        tuple(sorted(numbers.get(i, -1) for i in prefetches)),
    )


def _to_write(queue: ManualQueue, right: RightRecords) -> Iterator[tuple[bytes, ...]]:
    """What each open write has yet to write."""
    for at in queue._open.values():
        record = at.order.record
        if record is not None:
            left = range(at.pages, len(at.names))
            yield tuple(right.page_of(record(page)) for page in left)


def traces_of_queue(queue: ManualQueue) -> tuple[object, ...]:
    """All that a queue has, in a form that can be compared."""
    return (
        dict(queue.records),
        dict(queue._whole),
        dict(queue.progress),
        dict(queue._news),
        [(order_id, at.pages) for order_id, at in queue._open.items()],
        list(queue._written),
        list(queue._refused),
    )


def copied_below(tier: Tier, state: State) -> tuple[Tier, ManualQueue]:
    """Copy what a plain cache knows of its store, with the queue, for a copy of its state."""
    queue = tier.queue
    assert isinstance(queue, ManualQueue)  # noqa: S101  # The explorer has made it.
    twin = ManualQueue(queue.medium)
    orders = {order_id: evolve(order) for order_id, order in tier.orders.items()}
    twin.records, twin._whole = dict(queue.records), dict(queue._whole)
    twin.progress, twin._news = dict(queue.progress), dict(queue._news)
    twin._written, twin._refused = list(queue._written), list(queue._refused)
    twin._submitted, twin._stopped = list(queue._submitted), list(queue._stopped)
    for order_id, at in queue._open.items():
        order = at.order
        if order.kind is OrderKind.FETCH:
            accept = order.accept
            assert isinstance(accept, partial)  # noqa: S101  # It is the plain cache's own.
            order = evolve(order, accept=_bound(accept, state, orders[order_id]))
        twin._open[order_id] = evolve(at, order=order)
    below = Tier(twin, tier.is_open, dict(tier.stored), orders, dict(tier.reported))
    return below, twin


def _bound(accept: partial[bool], state: State, order: OpenOrder) -> partial[bool]:
    """What accepts records, bound to a copied state and order."""
    _, _, slots = accept.args
    return partial(accept.func, state, order, slots)
