"""The queue of a store: carries out the orders of one cache in threads of its own.

    store = DiskStore.open(folder, identity, capacity_bytes)
    queue = ThreadedQueue(DiskCarrier(store))
    cache = PrefixCache(config, pools, store=queue)

One thread writes and one fetches, so that a request that waits for its prefix never waits for
writes. Each takes the orders one after another, batch by batch. The next batches are handed over
when the cache gives an order or polls: from then on the store may read and write their memory.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from queue import SimpleQueue
from typing import Self

from attrs import define, field, frozen

from kvcanon.optimized.page_orders import PageOrder
from kvcanon.optimized.store_carriers import PageBatch, PageCarrier
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress
from kvcanon.spec.types import DISK, Medium

BATCH_BYTES = 16 << 20
"""About how much one call to the store moves."""
MOST_UNDER_WAY = 2
"""Batches that a thread has: one that it moves, and the next."""
MOST_WAITING_BYTES = 1 << 30
"""How much may wait to be written. What leaves the host meanwhile is copied, so it is a bound of
memory, too."""

logger = logging.getLogger(__name__)


@define(eq=False)
class _Running:
    """An order that has not ended."""

    order: PageOrder
    handed_over: int = 0
    """Leading pages that a thread has, or has had."""
    pages: int = 0
    """Leading pages that are done."""
    batches: int = 0
    """Those that a thread has."""
    stopped: bool = False
    """Whether a thread shall move no more of it, because a page failed or nobody waits for it."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it moves, nor will."""
        return not self.batches and (self.stopped or self.handed_over == len(self.order))


@frozen(eq=False)
class _Task:
    """A batch for a thread."""

    running: _Running
    batch: PageBatch


@define(eq=False)
class _Hand:
    """The thread of one kind of orders, and what it has to do."""

    kind: OrderKind
    carrier: PageCarrier
    done: SimpleQueue[tuple[_Task, int]]
    """The batches that were moved, by all threads, each with its leading pages that went well."""
    waiting: deque[_Running] = field(factory=deque)
    """Orders with pages that no thread has, the oldest first."""
    waiting_pages: int = 0
    """Of those orders, the pages that no thread has had."""
    under_way: int = 0
    _tasks: SimpleQueue[_Task | None] = field(factory=SimpleQueue)
    _thread: threading.Thread = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._thread = threading.Thread(
            target=self._work, name=f"kvcanon-store-{self.kind}", daemon=True
        )
        self._thread.start()

    def hand_over(self, batch_bytes: int) -> None:
        """Give the thread its next batches. Called by the thread of the cache."""
        while self.waiting and self.under_way < MOST_UNDER_WAY:
            running, order = self.waiting[0], self.waiting[0].order
            if not running.stopped:
                begin = running.handed_over
                end = min(begin + max(1, batch_bytes // order.page_bytes), len(order))
                running.handed_over = end
                self.waiting_pages -= end - begin
                running.batches += 1
                self.under_way += 1
                self._tasks.put(_Task(running, PageBatch(order, begin, order.lend(begin, end))))
            if running.stopped or running.handed_over == len(order):
                self.waiting_pages -= len(order) - running.handed_over
                self.waiting.popleft()

    def close(self) -> None:
        """Wait until the thread has ended."""
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        move = self.carrier.write if self.kind is OrderKind.WRITE else self.carrier.read
        while (task := self._tasks.get()) is not None:
            moved = 0
            if not task.running.stopped:
                try:
                    moved = move(task.batch)
                except Exception:
                    logger.exception("the store failed in a %s", self.kind)
            # Later pages of a prompt are of no use without those before them.
            if moved < len(task.batch):
                task.running.stopped = True
            self.done.put((task, moved))


class ThreadedQueue:
    """A `PageQueue` over a store, for one cache. `close` it after the cache, before the store.

    A store that is slower than pages come, or stands still, is passed over: a write ends at once,
    with no page written, while more than `most_waiting_bytes` wait to be written.
    """

    def __init__(
        self,
        carrier: PageCarrier,
        medium: Medium = DISK,
        *,
        batch_bytes: int = BATCH_BYTES,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        """Start the threads. `medium` is EXTERNAL if the store is on another machine."""
        self.medium = medium
        self.passed_over_pages = 0
        """The pages of writes that ended at once."""
        self._batch_bytes = batch_bytes
        self._most_waiting_bytes = most_waiting_bytes
        self._done: SimpleQueue[tuple[_Task, int]] = SimpleQueue()
        self._hands = {kind: _Hand(kind, carrier, self._done) for kind in OrderKind}
        self._running: dict[OrderId, _Running] = {}
        self._news: dict[OrderId, _Running] = {}
        """The orders that went on since the last poll."""
        self._closed = False

    def submit(self, order: PageOrder) -> None:
        """Accept an order, and begin with it unless others come first, or too many wait."""
        hand = self._hands[order.kind]
        writes = order.kind is OrderKind.WRITE
        is_full = writes and hand.waiting_pages * order.page_bytes > self._most_waiting_bytes
        running = _Running(order, stopped=self._closed or is_full)
        self._running[order.order_id] = running
        if running.stopped:
            self.passed_over_pages += len(order) if is_full else 0
            self._news[order.order_id] = running
            return
        hand.waiting.append(running)
        hand.waiting_pages += len(order)
        hand.hand_over(self._batch_bytes)

    def stop(self, order_id: OrderId) -> None:
        """Move no more of an order than the batches that are being moved."""
        running = self._running.get(order_id)
        if running is not None:
            running.stopped = True
            self._news[order_id] = running

    def poll(self) -> tuple[OrderProgress, ...]:
        """Take what was moved, and hand over what comes next."""
        while not self._done.empty():
            self._take(*self._done.get())
        if not self._closed:
            for hand in self._hands.values():
                hand.hand_over(self._batch_bytes)
        news, self._news = self._news, {}
        for order_id, running in news.items():
            if running.has_ended:
                del self._running[order_id]
        return tuple(
            OrderProgress(order_id, running.pages, running.has_ended)
            for order_id, running in news.items()
        )

    def close(self) -> None:
        """Wait for the batches that are being moved, and end the threads. The others end unmoved.

        The cache may poll afterwards, and finds that all orders have ended.
        """
        self._closed = True
        for order_id in list(self._running):
            self.stop(order_id)
        for hand in self._hands.values():
            hand.close()

    def __enter__(self) -> Self:
        """Return the queue, which is closed at the end of the block."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the queue."""
        self.close()

    def _take(self, task: _Task, moved: int) -> None:
        running, batch = task.running, task.batch
        running.order.give_back(batch.begin, batch.begin + len(batch))
        self._hands[running.order.kind].under_way -= 1
        running.batches -= 1
        running.pages += moved
        self._news[running.order.order_id] = running
