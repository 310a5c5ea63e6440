"""Queues of stores: the judge's, on which nothing happens by itself, and one over a page store."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey
from kvcanon.spec.tier import SEAL_BYTES, OrderId, OrderKind, OrderProgress, StoreCalls, StoreOrder
from kvcanon.spec.types import Key, Medium


@define(eq=False)
class _Open:
    """An order that has not ended."""

    order: StoreOrder
    names: tuple[bytes, ...]
    """The hashes of its pages."""
    pages: int = 0


class ManualQueue:
    """A queue and its store, in memory: each page is written or fetched when the caller says so."""

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        self.records: dict[bytes, bytes] = {}
        """What the store has, by the hash of the page; the caller may take or change some."""
        self._submitted: list[StoreOrder] = []
        self._stopped: list[OrderId] = []
        self._written: list[tuple[bytes, bytes]] = []
        self._whole: dict[bytes, bytes] = {}
        """The last record that was written of each page."""
        self._refused: list[tuple[OrderId, int]] = []
        self.progress: dict[OrderId, OrderProgress] = {}
        """How far each order is."""
        self._open: dict[OrderId, _Open] = {}
        self._news: dict[OrderId, OrderProgress] = {}

    @property
    def open_order_ids(self) -> Sequence[OrderId]:
        """The orders that have not ended, in the order in which they were submitted."""
        return tuple(self._open)

    def submit(self, order: StoreOrder) -> None:
        """Accept an order; nothing happens yet."""
        names = page_hashes(namespace_seed(order.key.namespace), order.key.pages)
        self._submitted.append(order)
        self._open[order.order_id] = _Open(order, names[order.start_pages :])
        self._note(order.order_id, 0, ended=False)

    def stop(self, order_id: OrderId) -> None:
        """Note that an order shall end; it does when the caller says so."""
        self._stopped.append(order_id)

    def poll(self) -> tuple[OrderProgress, ...]:
        """The orders that went on since the last poll."""
        news, self._news = tuple(self._news.values()), {}
        return news

    def go_on(self, order_id: OrderId, pages: int) -> None:
        """Write or fetch so many more pages; it ends after the last, or where one is missing.

        Raises: BadArgument.
        """
        at = self._require(order_id)
        for _ in range(pages):
            if at.pages == len(at.names) or not self._carry_out(at):
                break
            at.pages += 1
        else:
            if at.pages < len(at.names):
                self._note(order_id, at.pages, ended=False)
                return
        self.end(order_id)

    def end(self, order_id: OrderId) -> None:
        """End an order where it is: the store failed, or was asked to. Raises: BadArgument."""
        at = self._require(order_id)
        del self._open[order_id]
        self._note(order_id, at.pages, ended=True)

    def finish(self) -> None:
        """End all orders where they are."""
        for order_id in self.open_order_ids:
            self.end(order_id)

    def lose(self, at: int) -> None:
        """Lose one of the pages that the store has."""
        if self.records:
            del self.records[self._name_at(at)]

    def damage(self, at: int, how: int) -> None:
        """Give other bytes for one of the pages: a bit flipped, cut, zeroed, or another page's."""
        if not self.records:
            return
        name, other = self._name_at(at), self._name_at(at + 1 + how)
        record = self.records[name] or b"\0"
        flipped = bytearray(record)
        flipped[how % len(record)] ^= 1 << how % 8
        half = len(record) // 2
        zeroed = record[:half] + bytes(len(record) - half)
        changes = (bytes(flipped), record[:half], zeroed, self.records[other], b"")
        self.records[name] = changes[how % len(changes)]

    def take_calls(self) -> StoreCalls:
        """The calls, writes and refusals since the last call, and how far each order is."""
        calls = StoreCalls(
            tuple(self._submitted),
            tuple(self._stopped),
            dict(self.progress),
            tuple(self._written),
            refused=tuple(self._refused),
        )
        self._submitted, self._stopped, self._written, self._refused = [], [], [], []
        return calls

    def _name_at(self, at: int) -> bytes:
        return list(self.records)[at % len(self.records)]

    def _require(self, order_id: OrderId) -> _Open:
        if order_id not in self._open:
            raise BadArgument("order_id", f"is {order_id}, which is no open order")
        return self._open[order_id]

    def _carry_out(self, at: _Open) -> bool:
        """Write or fetch the next page of an order; returns whether that went well."""
        name, order = at.names[at.pages], at.order
        if order.kind is OrderKind.WRITE:
            assert order.record is not None
            self.records[name] = self._whole[name] = order.record(at.pages)
            self._written.append((name, self.records[name]))
            return True
        assert order.accept is not None
        record = self.records.get(name)
        if record is None:
            return False
        accepted = order.accept(at.pages, record)
        if not accepted and record == self._whole.get(name):
            self._refused.append((order.order_id, at.pages))
        return accepted

    def _note(self, order_id: OrderId, pages: int, *, ended: bool) -> None:
        self._news[order_id] = self.progress[order_id] = OrderProgress(order_id, pages, ended)


class InlineQueue:
    """Carries out every order at the next poll, on a store of pages that is open already.

    The store is opened with the identity of what the cache keeps: model, weights, dtype, rank.
    """

    def __init__(self, store: PageStore, medium: Medium, slot_bytes: int) -> None:
        self.medium = medium
        self._store = store
        self._record_bytes = SEAL_BYTES + slot_bytes
        self._open: dict[OrderId, StoreOrder] = {}

    def submit(self, order: StoreOrder) -> None:
        """Accept an order."""
        self._open[order.order_id] = order

    def stop(self, order_id: OrderId) -> None:
        """Nothing to stop: the next poll ends every order."""

    def poll(self) -> tuple[OrderProgress, ...]:
        """Carry out and end all orders."""
        orders, self._open = self._open, {}
        return tuple(
            OrderProgress(order_id, self._pages_done(order), ended=True)
            for order_id, order in orders.items()
        )

    def _pages_done(self, order: StoreOrder) -> int:
        names = [
            _name_of(order.key, end) for end in range(order.start_pages + 1, len(order.key) + 1)
        ]
        if order.kind is OrderKind.WRITE:
            assert order.record is not None
            written = self._store.put([(name, order.record(at)) for at, name in enumerate(names)])
            return _leading(written)
        assert order.accept is not None
        buffers = [bytearray(self._record_bytes) for _ in names]
        lengths = self._store.get(
            [(name, memoryview(into)) for name, into in zip(names, buffers, strict=True)]
        )
        for at, (length, buffer) in enumerate(zip(lengths, buffers, strict=True)):
            if length is None or not order.accept(at, bytes(buffer[:length])):
                return at
        return len(names)


def _leading(answers: Sequence[bool]) -> int:
    return next((at for at, each in enumerate(answers) if not each), len(answers))


def _name_of(key: Key, end: int) -> PageKey:
    """The name of the page that ends a prefix; of bigrams, all tokens in a row."""
    tokens: list[int] = []
    for page in key.pages[:end]:
        for unit in page:
            tokens += unit if isinstance(unit, tuple) else (unit,)
    return PageKey(tuple(tokens), key.namespace)
