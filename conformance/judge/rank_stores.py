"""The stores of several ranks, each with pages of its own, whose orders go on at other times.

What the client decides happens on each rank, but some operations later than on another. A page that
is lost or damaged is so on one rank alone, and an order that fails does so on one; what counts is
the least of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.tier import OrderId, OrderProgress, StoreCalls
from kvcanon.spec.types import Medium


class RankStores:
    """The control of the stores of all ranks."""

    def __init__(self, ranks: int, medium: Medium) -> None:
        self.queues = [ManualQueue(medium) for _ in range(ranks)]
        self._due: list[tuple[int, int, OrderId, Callable[[], None]]] = []
        """What is to happen: at which operation, on which rank, with which order."""
        self._now = 0

    @property
    def open_order_ids(self) -> Sequence[OrderId]:
        """The orders that are open on some rank, and for which no decision waits."""
        due = {order_id for _, _, order_id, _ in self._due}
        ids = dict.fromkeys(each for queue in self.queues for each in queue.open_order_ids)
        return [each for each in ids if each not in due]

    @property
    def progress(self) -> Mapping[OrderId, OrderProgress]:
        """How far each order is on the rank that is least far."""
        first = self.queues[0].progress
        return {each: self._least(each) for each in first}

    def _least(self, order_id: OrderId) -> OrderProgress:
        each = [queue.progress[order_id] for queue in self.queues if order_id in queue.progress]
        return OrderProgress(order_id, min(p.pages for p in each), all(p.ended for p in each))

    def begin(self) -> None:
        """Begin an operation: decisions that are due take effect before it."""
        self._now += 1
        due = [each for each in self._due if each[0] <= self._now]
        self._due = [each for each in self._due if each[0] > self._now]
        for _, rank, order_id, happen in due:
            if order_id in self.queues[rank].open_order_ids:
                happen()

    def go_on(self, order_id: OrderId, pages: int) -> None:
        """Let an order go on, on each rank sooner or later."""
        for rank, queue in enumerate(self.queues):
            self._later(rank, order_id, partial(queue.go_on, order_id, pages))

    def end(self, order_id: OrderId) -> None:
        """Let an order end where it is on one rank; the others go on to its last page."""
        failing = self._place(order_id) % len(self.queues)
        for rank, queue in enumerate(self.queues):
            end = partial(queue.end, order_id)
            go_on = partial(queue.go_on, order_id, len(queue.records) + 1)
            self._later(rank, order_id, end if rank == failing else go_on)

    def finish(self) -> None:
        """Let all due decisions take effect, and all open orders end where they are."""
        self._due.clear()
        for queue in self.queues:
            queue.finish()

    def lose(self, at: int) -> None:
        """Let one rank's store lose a page."""
        self.queues[at % len(self.queues)].lose(at)

    def damage(self, at: int, how: int) -> None:
        """Let one rank's store give a page with other bytes."""
        self.queues[at % len(self.queues)].damage(at, how)

    def take_calls(self) -> StoreCalls:
        """The calls and writes of the first rank, and how far orders are on all ranks.

        Also what any rank refused.
        """
        progress = self.progress
        calls = [queue.take_calls() for queue in self.queues]
        first, refused = calls[0], dict.fromkeys(page for each in calls for page in each.refused)
        return StoreCalls(
            first.submitted, first.stopped, progress, first.written, refused=tuple(refused)
        )

    def _place(self, order_id: OrderId) -> int:
        """The place of an order among all: caches that are compared number theirs otherwise."""
        return list(self.queues[0].progress).index(order_id)

    def _later(self, rank: int, order_id: OrderId, happen: Callable[[], None]) -> None:
        # Each rank is the first for some orders and the last for others.
        place = self._place(order_id)
        delay = 1 + (place + rank) % len(self.queues) * (place % 2)
        self._due.append((self._now + delay, rank, order_id, happen))
