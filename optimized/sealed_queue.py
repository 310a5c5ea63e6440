"""A queue of `kvcanon.spec` below the fast cache: the judge's, or anyone's over a store of records.

Such a queue takes orders with keys of Python numbers, and moves records of bytes. Each record has a
seal, so that a store needs no proofs of its own.
"""

from __future__ import annotations

from attrs import frozen

from kvcanon.optimized.keys import key_of
from kvcanon.optimized.page_orders import PageOrder
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.tier import (
    OrderId,
    OrderKind,
    OrderProgress,
    StoreOrder,
    StoreQueue,
    seal,
    unseal,
)
from kvcanon.spec.types import Medium


@frozen(eq=False)
class SealedQueue:
    """A `StoreQueue` as a `PageQueue`."""

    queue: StoreQueue
    config: CacheConfig

    @property
    def medium(self) -> Medium:
        """The medium of the store."""
        return self.queue.medium

    @property
    def batch_bytes(self) -> None:
        """It reads each page in one step."""

    def submit(self, order: PageOrder) -> None:
        """Accept an order; its bytes are read and written when the queue asks for records."""
        key = key_of(self.config, order.words.tobytes(), order.namespace)
        start = order.run.start_pages

        def record(page: int) -> bytes:
            return seal(order.run.hash(page), order.read(page))

        def accept(page: int, given: bytes) -> bool:
            data = unseal(order.run.hash(page), given, order.page_bytes)
            if data is not None:
                order.memory(page)[:] = data
            return data is not None

        writes = order.kind is OrderKind.WRITE
        self.queue.submit(
            StoreOrder(order.order_id, order.kind, key, start, record=record)
            if writes
            else StoreOrder(order.order_id, order.kind, key, start, accept=accept)
        )

    def stop(self, order_id: OrderId) -> None:
        """Ask an order to end early."""
        self.queue.stop(order_id)

    def poll(self) -> tuple[OrderProgress, ...]:
        """The progress of each order that went on since the last poll."""
        return self.queue.poll()

    def begin_calls(self) -> None:
        """It asks for pages when it likes."""

    def stats(self) -> None:
        """It counts nothing."""
