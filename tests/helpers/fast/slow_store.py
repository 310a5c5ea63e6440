"""A store in memory that answers when a test says so, and a clock that a test sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import Factory, define

from fast.copies import PATIENCE_S
from fast.stores import PAGE_BYTES, Server, server_over
from kvcanon.optimized.store_carriers import PageBatch, PageCarrier
from kvcanon.optimized.store_queue import ThreadedQueue
from kvcanon.spec.transfer import Agree

DEADLINE_SECONDS, FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 5.0, 1.0, 4.0


@define
class Clock:
    """A clock that goes on when it is told to."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@define(eq=False)
class Slow(PageCarrier):
    """A store in memory that waits before each batch until it is told to go on."""

    pages: dict[bytes, bytes] = Factory(dict)
    may_go_on: threading.Semaphore = Factory(lambda: threading.Semaphore(0))
    begun: int = 0
    fails_at: int | None = None
    """The page of an order before which it fails."""

    def write(self, batch: PageBatch) -> int:
        """Keep the pages as they are once it may go on."""
        self._begin()
        for at, (name, memory) in enumerate(zip(batch.hashes, batch.memory, strict=True)):
            if batch.begin + at == self.fails_at:
                raise OSError("the store is full")
            self.pages[name] = bytes(memory)
        return len(batch)

    def read(self, batch: PageBatch) -> int:
        """Fill the memory once it may go on."""
        self._begin()
        for at, (name, memory) in enumerate(zip(batch.hashes, batch.memory, strict=True)):
            if name not in self.pages:
                return at
            memory[:] = self.pages[name]
        return len(batch)

    def go_on(self, batches: int = 99) -> None:
        """Let it go on with so many batches."""
        for _ in range(batches):
            self.may_go_on.release()

    def stop(self) -> None:
        """Let it wait again."""
        self.may_go_on = threading.Semaphore(0)

    def _begin(self) -> None:
        may_go_on = self.may_go_on
        self.begun += 1
        assert may_go_on.acquire(timeout=PATIENCE_S)


@contextmanager
def over_slow(
    pages: int = 2,
    waiting: int = 99,
    clock: Clock | None = None,
    agree: Agree | None = None,
) -> Iterator[tuple[Server, Slow]]:
    """A server over a slow store, with batches of so many pages, of which so many may wait."""
    slow = Slow()
    with (
        ThreadedQueue(
            slow,
            batch_bytes=pages * PAGE_BYTES,
            most_waiting_bytes=waiting * PAGE_BYTES,
            deadline_seconds=DEADLINE_SECONDS,
            first_rest_seconds=FIRST_REST_SECONDS,
            longest_rest_seconds=LONGEST_REST_SECONDS,
            clock=clock or Clock(),
        ) as queue,
        server_over(queue, agree) as server,
    ):
        try:
            yield server, slow
        finally:
            slow.go_on()
