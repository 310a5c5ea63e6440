"""The queue of a store: carries out the orders of one cache in threads of its own.

    store = DiskStore.open(folder, identity, capacity_bytes)
    queue = ThreadedQueue(ProvedCarrier(store))
    cache = PrefixCache(config, pools, store=queue)

One thread writes and one fetches, so that a request that waits for its prefix never waits for
writes. Each takes the orders one after another, batch by batch. The next batches are handed over
when the cache gives an order or has polled: from then on the store may read and write their memory.

A call to the store has a deadline, which a poll looks at. Once it has passed, the orders end with
what they have, and the store is left alone for a while. The call itself cannot be stopped: its
memory stays lent to it until it returns, and has no other owner.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Self

from attrs import Factory, define, evolve

from kvcanon.optimized.page_orders import MOST_UNDER_WAY, PageOrder
from kvcanon.optimized.store_calls import CallState, CallThread, RunningOrder, StoreCall
from kvcanon.optimized.store_carriers import PageBatch, PageCarrier
from kvcanon.optimized.store_stats import StoreCallStats, StoreStats
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress
from kvcanon.spec.types import DISK, Medium
from kvcanon.store_breaker import FIRST_REST_SECONDS, LONGEST_REST_SECONDS, StoreBreaker

BATCH_BYTES = 16 << 20
"""About how much one call to the store moves."""
MOST_LATE = 4
"""Calls of one kind that were given up and have not returned. With so many no other is made, since
each holds the memory of a batch."""
MOST_WAITING_BYTES = 1 << 30
"""How much may wait to be written. What leaves the host meanwhile is copied, so it is a bound of
memory, too."""
DEADLINE_SECONDS = 10.0
"""Of one call to the store, which moves a batch."""

logger = logging.getLogger(__name__)


@define(eq=False)
class _Hand:
    """What moves orders of one kind: those that wait, and the calls that a thread makes."""

    kind: OrderKind
    start: Callable[[], CallThread]
    waiting: deque[RunningOrder] = Factory(deque)
    """Orders with pages that no call has, the oldest first."""
    waiting_pages: int = 0
    """Of those orders, the pages that no call has had."""
    calls: list[StoreCall] = Factory(list)
    """Handed over, and neither done nor given up; the oldest first."""
    late: set[StoreCall] = Factory(set)
    """Given up, and not returned."""
    stats: StoreCallStats = Factory(StoreCallStats)
    thread: CallThread | None = None

    def add(self, running: RunningOrder) -> None:
        """Put an order behind the others."""
        self.waiting.append(running)
        self.waiting_pages += len(running.order)

    def next_batch(self, batch_bytes: int) -> tuple[RunningOrder, PageBatch] | None:
        """The next batch of the oldest order, with its memory lent.

        None if no order waits, or if the next pages of that one are not offered yet.
        """
        while self.waiting:
            running, order = self.waiting[0], self.waiting[0].order
            begin = running.handed_over
            if running.stopped or begin == order.end:
                self.waiting_pages -= len(order) - begin
                self.waiting.popleft()
                continue
            end = min(begin + order.batch_pages(batch_bytes), order.offered)
            if begin == end:
                return None
            running.handed_over = end
            self.waiting_pages -= end - begin
            return running, PageBatch(order, begin, order.lend(begin, end))
        return None

    def make(self, call: StoreCall) -> None:
        """Hand a call over to the thread, which is started for it if there is none."""
        if self.thread is None:
            self.thread = self.start()
        call.running.calls += 1
        self.calls.append(call)
        self.thread.put(call)

    def give_up(self, call: StoreCall) -> None:
        """Wait no longer for a call, and leave its thread to it."""
        call.state = CallState.GIVEN_UP
        call.running.calls -= 1
        self.calls.remove(call)
        self.late.add(call)
        self.stats.calls += 1
        self.stats.given_up_calls += 1
        self.end_thread()

    def end_thread(self) -> CallThread | None:
        """Let the thread end when it has made its calls. Does not wait for it."""
        ended, self.thread = self.thread, None
        if ended is not None:
            ended.end()
        return ended


class ThreadedQueue:
    """A `PageQueue` over a store, for one cache. `close` it after the cache, before the store.

    A store that is slower than pages come is passed over: a write ends at once, with no page
    written, while more than `most_waiting_bytes` wait to be written. One that fails a call, or does
    not answer it within `deadline_seconds`, is left alone: every order ends at once, until one call
    after a rest goes well.
    """

    def __init__(
        self,
        carrier: PageCarrier,
        medium: Medium = DISK,
        *,
        batch_bytes: int = BATCH_BYTES,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
        deadline_seconds: float = DEADLINE_SECONDS,
        first_rest_seconds: float = FIRST_REST_SECONDS,
        longest_rest_seconds: float = LONGEST_REST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a queue; `medium` is EXTERNAL if the store is on another machine."""
        self.medium = medium
        self._carrier = carrier
        self.batch_bytes = batch_bytes
        self._most_waiting_bytes = most_waiting_bytes
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._breaker = StoreBreaker(clock, first_rest_seconds, longest_rest_seconds)
        self._done: SimpleQueue[StoreCall] = SimpleQueue()
        self._hands = {kind: _Hand(kind, self._starter(kind)) for kind in OrderKind}
        self._running: dict[OrderId, RunningOrder] = {}
        self._news: dict[OrderId, RunningOrder] = {}
        """The orders that went on since the last poll."""
        self._closed = False

    def submit(self, order: PageOrder) -> None:
        """Accept an order, and begin with it unless others come first.

        It ends at once if the store is left alone, or if too many writes wait.
        """
        hand = self._hands[order.kind]
        writes = order.kind is OrderKind.WRITE
        is_full = writes and hand.waiting_pages * order.page_bytes > self._most_waiting_bytes
        running = RunningOrder(order)
        self._running[order.order_id] = running
        if self._closed or is_full or not self._may_call(hand):
            self._pass_over(running)
            return
        hand.add(running)
        self._hand_over(hand)

    def stop(self, order_id: OrderId) -> None:
        """Move no more of an order than the batches that are being moved."""
        running = self._running.get(order_id)
        if running is not None:
            self._stop(running)

    def poll(self) -> tuple[OrderProgress, ...]:
        """Take what was moved, and give up what has passed its deadline."""
        while not self._done.empty():
            self._take(self._done.get())
        self._give_up_overdue()
        news, self._news = self._news, {}
        for order_id, running in news.items():
            if running.has_ended:
                self._running.pop(order_id, None)
        return tuple(
            OrderProgress(order_id, running.pages, running.has_ended)
            for order_id, running in news.items()
        )

    def begin_calls(self) -> None:
        """Hand over the batches that are next, and end the writes that were cut short."""
        for running in self._hands[OrderKind.WRITE].waiting:
            if running.has_ended and running.order.end < len(running.order):
                self._pass_over(running)
        if not self._closed:
            for hand in self._hands.values():
                self._hand_over(hand)

    def stats(self) -> StoreStats:
        """What it did, and how its store is. Any thread may call this."""
        hands = self._hands
        return StoreStats(
            self.medium,
            {kind: evolve(hand.stats) for kind, hand in hands.items()},
            self._carrier.damaged_pages,
            self._breaker.rests,
            self._breaker.is_resting,
            sum(len(hand.late) for hand in hands.values()),
            hands[OrderKind.WRITE].waiting_pages,
        )

    def close(self) -> None:
        """End the threads, and wait for the calls that are being made, up to their deadline.

        The cache may poll afterwards, and finds that all orders have ended.
        """
        self._closed = True
        for running in list(self._running.values()):
            self._stop(running)
        for hand in self._hands.values():
            self._withdraw(hand)
            thread = hand.end_thread()
            if thread is not None and not thread.join(self._deadline_seconds):
                logger.warning("the store has not answered a %s: its thread is left", hand.kind)

    def __enter__(self) -> Self:
        """Return the queue, which is closed at the end of the block."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the queue."""
        self.close()

    # Calls to the store.

    def _starter(self, kind: OrderKind) -> Callable[[], CallThread]:
        move = self._carrier.write if kind is OrderKind.WRITE else self._carrier.read
        return lambda: CallThread(kind, move, self._clock, self._done)

    def _may_call(self, hand: _Hand) -> bool:
        return self._breaker.admits and len(hand.late) < MOST_LATE

    def _hand_over(self, hand: _Hand) -> None:
        """Give the thread of a hand its next calls."""
        while len(hand.calls) < MOST_UNDER_WAY and self._may_call(hand):
            found = hand.next_batch(self.batch_bytes)
            if found is None:
                return
            running, batch = found
            hand.make(StoreCall(running, batch, self._breaker.begin_call()))

    def _take(self, call: StoreCall) -> None:
        """Take a call that has returned, in time or late."""
        running, batch, result = call.running, call.batch, call.result
        hand = self._hands[batch.order.kind]
        batch.give_back()
        if call in hand.late:
            hand.late.remove(call)
            return
        hand.calls.remove(call)
        running.calls -= 1
        running.pages += result.pages
        self._news[batch.order.order_id] = running
        if not result.is_made:
            self._breaker.note_untried(is_trial=call.is_trial)
            return
        hand.stats.calls += 1
        if result.failure is not None:
            hand.stats.failed_calls += 1
            self._note_failure(call, f"a {hand.kind} failed with {result.failure}")
            return
        hand.stats.pages += result.pages
        hand.stats.bytes += result.pages * batch.order.page_bytes
        hand.stats.missed_pages += len(batch) - result.pages
        if self._breaker.note_answer(is_trial=call.is_trial):
            logger.warning("the store on %s answers again, and is used", self.medium)

    def _give_up_overdue(self) -> None:
        """Give up the calls that have passed their deadline, with the orders that they are of."""
        now, limit = self._clock(), self._deadline_seconds
        for hand in self._hands.values():
            for call in list(hand.calls):
                if call.state is CallState.BEGUN and now - call.began_at >= limit:
                    hand.give_up(call)
                    self._pass_over(call.running)
                    self._note_failure(call, f"a {hand.kind} had no answer for {limit:g} s")

    def _note_failure(self, call: StoreCall, what: str) -> None:
        """Leave the store alone after a failure: end every order, and take back every call."""
        if not self._breaker.note_failure(is_trial=call.is_trial):
            return
        rest = self._breaker.rest_seconds
        logger.warning("the store on %s is left alone for %g s: %s", self.medium, rest, what)
        for hand in self._hands.values():
            self._withdraw(hand)
            for running in hand.waiting:
                self._pass_over(running)
            hand.waiting.clear()
            hand.waiting_pages = 0

    def _withdraw(self, hand: _Hand) -> None:
        """Take back the calls that no thread has begun with, and end their orders."""
        for call in list(hand.calls):
            if call.withdraw():
                call.batch.give_back()
                call.running.calls -= 1
                hand.calls.remove(call)
                hand.stats.passed_over_pages += len(call.batch)
                self._breaker.note_untried(is_trial=call.is_trial)
                self._pass_over(call.running)

    def _pass_over(self, running: RunningOrder) -> None:
        """End an order without asking the store for the rest of it."""
        if not running.stopped:
            left = len(running.order) - running.handed_over
            self._hands[running.order.kind].stats.passed_over_pages += left
        self._stop(running)

    def _stop(self, running: RunningOrder) -> None:
        """Move no more of an order."""
        running.stopped = True
        self._news[running.order.order_id] = running
