"""The tier below the host: orders to the store, and what becomes of them.

The native core decides which pages an order is about, and knows which are stored. Here are the open
orders: their host slots, how far they are on every rank, and who still waits for them. What
`kvcanon.spec.cache.StoredCache` says of each call holds here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from attrs import Factory, define, field

from kvcanon.optimized import _core, native_types
from kvcanon.optimized.page_orders import MOST_UNDER_WAY, HostReads, PageOrder, PageQueue, Words
from kvcanon.optimized.page_transfer import SlotArray
from kvcanon.spec.errors import BadArgument, PrefixNotCached, SpecViolation
from kvcanon.spec.operations import HostInserted, Ordered
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress
from kvcanon.spec.transfer import Agree
from kvcanon.spec.types import Namespace

if TYPE_CHECKING:
    from kvcanon.optimized.prefix_cache import PrefixCache

NOTHING_PLACED = (0, 0, 0)


@define(eq=False)
class TrackedOrder:
    """An order that the store still works on, or a prefetch that was not given up."""

    order: PageOrder
    namespace: int
    """The number of its namespace."""
    reserved: SlotArray
    """Of a prefetch: the host slots that it still holds, of consecutive pages."""
    first_reserved: int = 0
    """The page of the first of them."""
    pages: int = 0
    """Leading pages that are done on every rank."""
    ended: bool = False
    cancelled: bool = False
    unused_pages: int = 0
    """As `PageOrder.unused_pages`, on every rank."""

    @property
    def progress(self) -> tuple[int, bool]:
        """How far it is on every rank, and whether it has ended there."""
        return self.pages, self.ended

    @property
    def is_open(self) -> bool:
        """Whether the cache still has it. Of a write that has ended, memory may be in use still."""
        return not (self.ended and self.order.kind is OrderKind.WRITE)


@define(eq=False)
class StoreTier:
    """The open orders of one cache. One thread calls it, that of the cache."""

    cache: PrefixCache
    queue: PageQueue
    host: HostReads
    agree: Agree | None = None
    """Asks the other ranks how far their orders are; None if there are no others."""
    is_open: bool = True
    """Whether the store may still be used: a reset for new weights lets go of it."""
    orders: dict[OrderId, TrackedOrder] = Factory(dict)
    _tier: _core.Tier = field(init=False)
    _reported: dict[OrderId, OrderProgress] = Factory(dict)
    """How far orders are on this rank."""
    _next_id: OrderId = 1

    def __attrs_post_init__(self) -> None:
        self._tier = _core.Tier(self.cache)

    def store(
        self, tokens: native_types.Tokens, number: int, namespace: Namespace, page_words: int
    ) -> Ordered:
        """Order the write of the leading host pages that the store is not known to have."""
        run, slots = self._tier.unstored(tokens, number)
        if not (self.is_open and len(run)) or self._is_being_written(run):
            return Ordered(None, run.start_pages, 0)
        words = words_of(tokens, (run.start_pages + len(run)) * page_words)
        order = self._order(OrderKind.WRITE, run, words, namespace, slots)
        self.host.begin_write(order)
        return self._submit(TrackedOrder(order, number, slots[:0]))

    def prefetch(
        self, tokens: native_types.Tokens, number: int, namespace: Namespace, page_words: int
    ) -> Ordered:
        """Order the fetch of the pages that the cache lacks, as many as have a free host slot."""
        run = self._tier.unfetched(tokens, number)
        if not (self.is_open and len(run)):
            return Ordered(None, run.start_pages, 0)
        words = words_of(tokens, (run.start_pages + len(run)) * page_words)
        slots, _, _ = self.cache.reserve_host(len(run))
        order = self._order(OrderKind.FETCH, run, words, namespace, slots)
        return self._submit(TrackedOrder(order, number, slots))

    def poll(self) -> tuple[OrderProgress, ...]:
        """Take the progress that all orders have on every rank, and count the stored pages."""
        # The queue says everything once, and a cache that is to be reset could not take it.
        self._tier.require_usable()
        for each in self.queue.poll():
            if each.order_id in self.orders:
                self._reported[each.order_id] = each
        moved: list[OrderProgress] = []
        for order_id, progress in self._on_all_ranks().items():
            its = self.orders[order_id]
            if (progress.pages, progress.ended) != its.progress:
                moved.append(progress)
                self._count(its, progress)
            if its.order.kind is OrderKind.WRITE:
                self._take_back(its)
            elif its.ended and its.cancelled:
                self._close(its)
        self._offer()
        self.queue.begin_calls()
        return tuple(moved)

    def end_prefetch(self, order_id: OrderId) -> HostInserted:
        """Place what has arrived of a prefetch, and give the other slots back once it has ended."""
        its = self.orders.get(order_id)
        if its is None or its.order.kind is not OrderKind.FETCH or its.cancelled:
            raise BadArgument("order_id", f"is {order_id}, which no open prefetch has")
        arrived, its.reserved = its.reserved[: its.pages], its.reserved[its.pages :]
        its.first_reserved = its.pages
        its.cancelled = True
        if its.ended:
            self._close(its)
        else:
            self.queue.stop(order_id)
        return self._place(its, arrived)

    def start_anew(self, *, keep_store: bool) -> None:
        """Give up all orders after a reset, and let go of the store unless it is kept."""
        for its in self.orders.values():
            if not (its.cancelled or its.ended):
                self.queue.stop(its.order.order_id)
            its.cancelled = True
        self.is_open &= keep_store

    def _is_being_written(self, run: _core.PageRun) -> bool:
        """Whether an open write has the first page of a run."""
        first = run.hash(0)
        for order in self.host.writes.values():
            at = run.start_pages - order.run.start_pages
            if 0 <= at < len(order) and order.run.hash(at) == first:
                return True
        return False

    def _order(
        self,
        kind: OrderKind,
        run: _core.PageRun,
        words: Words,
        namespace: Namespace,
        slots: SlotArray,
    ) -> PageOrder:
        self._next_id += 1
        return PageOrder(
            self._next_id - 1, kind, run, words, namespace, slots, self.host, self._tier
        )

    def _submit(self, its: TrackedOrder) -> Ordered:
        order = its.order
        self.orders[order.order_id] = its
        self._offer()
        self.queue.submit(order)
        return Ordered(order.order_id, order.run.start_pages, len(order))

    def _on_all_ranks(self) -> Mapping[OrderId, OrderProgress]:
        """How far each open order is, on the rank that is least far. Raises: SpecViolation.

        A slot comes free on all ranks in the same poll, so they agree on that, too. What a rank has
        yet to write of an order that has ended on another is not offered to it.
        """
        numbers = []
        for order_id, its in self.orders.items():
            here = self._reported.get(order_id, OrderProgress(order_id, 0, ended=False))
            unused = its.order.unused_pages(ended=here.ended)
            numbers += [here.pages, int(here.ended), int(not here.ended), unused]
        if self.agree is not None and numbers:
            numbers = self._agreed(numbers, self.agree)
        progress = {}
        for (order_id, its), (pages, ended, goes_on, unused) in zip(
            self.orders.items(), zip(*[iter(numbers)] * 4, strict=True), strict=True
        ):
            its.unused_pages = unused
            if its.order.kind is OrderKind.WRITE and not goes_on:
                its.order.cut_short()
            progress[order_id] = OrderProgress(order_id, pages, ended=bool(ended))
        return progress

    @staticmethod
    def _agreed(ours: list[int], agree: Agree) -> list[int]:
        """The least of all ranks. Raises: SpecViolation."""
        least = list(agree(ours))
        if len(least) != len(ours) or any(m > n for m, n in zip(least, ours, strict=True)):
            raise SpecViolation(
                f"agree got {ours} and returned {least}; return the least of all ranks"
            )
        return least

    def _count(self, its: TrackedOrder, progress: OrderProgress) -> None:
        """Note how far an order is, and which pages are therefore in the store, or not."""
        was, its.pages, its.ended = its.pages, progress.pages, progress.ended
        if its.cancelled:
            return
        order = its.order
        self._tier.note_stored(order.run, was, its.pages)
        if order.kind is OrderKind.FETCH and its.ended and its.pages < len(order):
            self._tier.note_missing(order.run, its.pages)

    def _place(self, its: TrackedOrder, arrived: SlotArray) -> HostInserted:
        """Insert the slots of arrived pages; they come free if their beginning has left."""
        order, count = its.order, len(arrived)
        if not count:
            return HostInserted(*NOTHING_PLACED, 0)
        start = order.run.start_pages
        words = order.words[: len(order.words) // (start + len(order)) * (start + count)]
        try:
            return self.cache.commit_host(words, start, arrived, namespace=its.namespace)
        except PrefixNotCached:
            self.cache.abort_host(arrived)
            return HostInserted(*NOTHING_PLACED, count)

    def _offer(self) -> None:
        """Let the store read what is next of the writes, batch by batch, the oldest first.

        The slots of these batches are given to nobody. So it depends on nothing but what all ranks
        have read, and not on what the store of this one is doing.
        """
        size = self.queue.batch_bytes
        if size is None:
            return
        writes = self.host.writes.values()
        under_way = sum(
            -(-(order.offered - order.taken_back) // order.batch_pages(size)) for order in writes
        )
        for order in writes:
            while order.offered < order.end and under_way < MOST_UNDER_WAY:
                order.offer(order.batch_pages(size))
                under_way += 1

    def _take_back(self, its: TrackedOrder) -> None:
        """Free the slots of a write that no rank reads any more; forget it once it has ended.

        It stays as long as a call that was given up may read some of its slots.
        """
        order = its.order
        order.take_back(its.unused_pages)
        if not its.ended:
            return
        if order.order_id in self.host.writes:
            self.host.end_write(order)
        if order.taken_back == order.offered:
            self._forget(order)

    def _close(self, its: TrackedOrder) -> None:
        """Free the slots that a fetch still holds, and forget it.

        It stays as long as a call that was given up may write to some of its slots.
        """
        order = its.order
        in_use = max(0, len(order) - its.unused_pages - its.first_reserved)
        free, its.reserved = its.reserved[in_use:], its.reserved[:in_use]
        if len(free):
            self.cache.abort_host(free)
        if not len(its.reserved):
            self._forget(order)

    def _forget(self, order: PageOrder) -> None:
        del self.orders[order.order_id]
        self._reported.pop(order.order_id, None)


def words_of(tokens: native_types.Tokens, count: int) -> Words:
    """A copy of the first words of a prompt, as the core reads them."""
    return np.asarray(tokens)[:count].astype(np.uint32)
