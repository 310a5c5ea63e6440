"""Store watch: what passes between a cache and its store, and which bytes are right there.

The store outlives the pages of the tree, so the bytes that were written for a page are remembered
from the order that writes it on, whatever becomes of the page in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kvcanon.conformance.judge.answers import Read
from kvcanon.conformance.judge.by_states.written_bytes import WrittenBytes
from kvcanon.conformance.protocol.adapter import StoreControl
from kvcanon.spec.laws.placed import names_of
from kvcanon.spec.operations import EndPrefetch
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.tier import OrderKind, OrderState, StoreCalls, StoreOrder
from kvcanon.spec.types import CPU, FULL
from kvcanon.spec.views import Stamp, rows_along


class StoreWatch:
    """Watches the store below one cache."""

    def __init__(
        self,
        control: StoreControl,
        written: WrittenBytes | None,
        read: Read,
        known: Mapping[bytes, tuple[bytes, ...]] | None = None,
    ) -> None:
        """`known` are the right bytes of pages, by hash: all, where what is written is not seen."""
        self._control = control
        self._written = written
        self._read = read
        self._right: dict[bytes, tuple[bytes, ...]] = dict(known or {})
        """The bytes that were written for the pages that were ever ordered to be written."""

    def calls(self) -> StoreCalls:
        """What passed since the last look, and the right bytes of what was written."""
        calls = self._control.take_calls()
        for order in calls.submitted:
            if order.kind is OrderKind.WRITE and self._written is not None:
                self._remember(order, self._written)
        return evolve(calls, right=self._right)

    def _remember(self, order: StoreOrder, written: WrittenBytes) -> None:
        for name in names_of(order.key)[order.start_pages :]:
            known = written.known(FULL, name)
            if known:
                self._right[name] = tuple(dict.fromkeys((*self._right.get(name, ()), *known)))

    def fetched(self, order: OrderState) -> Mapping[bytes, tuple[bytes, ...]]:
        """The right bytes of the pages of a prefetch that have arrived; empty where unknown."""
        names = names_of(order.key)[order.start_pages : order.start_pages + order.pages]
        return {name: self._right.get(name, ()) for name in names}

    def stamps(self, before: Snapshot, call: EndPrefetch, after: Snapshot) -> tuple[Stamp, ...]:
        """The bytes on the host of the pages that a prefetch placed, if theirs are known."""
        order = prefetch_of(before, call)
        if order is None or not order.pages:
            return ()
        key = order.key.prefix(order.start_pages + order.pages)
        names = names_of(key)
        had = [row.slot(FULL, CPU) for row in rows_along(before, key)]
        stamps: list[Stamp] = []
        for page, row in enumerate(rows_along(after, key)):
            slot, right = row.slot(FULL, CPU), self._right.get(names[page], ())
            is_new = page >= order.start_pages and (page >= len(had) or had[page] is None)
            if slot is not None and is_new and right:
                data = self._read(FULL, CPU, slot)
                expected = data if data in right else right[-1]
                stamps.append(Stamp(FULL, page, slot, expected, data))
        return tuple(stamps)


def prefetch_of(state: Snapshot, call: EndPrefetch) -> OrderState | None:
    """The open prefetch that a call names."""
    for order in () if state.store is None else state.store.orders:
        if order.order_id == call.order_id and order.kind is OrderKind.FETCH:
            return order
    return None
