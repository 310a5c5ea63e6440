"""Calls to a store, in threads: each moves a batch of pages, and may take as long as it likes.

A call that has passed its deadline is given up, and its thread with it: that ends when the call
returns. Until then the call may read and write its memory, which stays lent to it (`PageOrder`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue

from attrs import define, field, frozen

from kvcanon.optimized.page_orders import PageOrder
from kvcanon.optimized.store_carriers import PageBatch
from kvcanon.spec.tier import OrderKind

logger = logging.getLogger(__name__)

Move = Callable[[PageBatch], int]


@define(eq=False)
class RunningOrder:
    """An order that has not ended."""

    order: PageOrder
    handed_over: int = 0
    """Leading pages that a call has, or has had."""
    pages: int = 0
    """Leading pages that are done."""
    calls: int = 0
    """Those that a thread has, and that were not given up."""
    stopped: bool = False
    """Whether no more of it shall move, because a page failed or nobody waits for it."""

    @property
    def has_ended(self) -> bool:
        """Whether no page of it follows."""
        return not self.calls and (self.stopped or self.handed_over == self.order.end)


class CallState(Enum):
    """How far a call is."""

    WAITING = "waiting"
    BEGUN = "begun"
    WITHDRAWN = "withdrawn"
    """It is not made."""
    GIVEN_UP = "given up"
    """Nobody waits for it any more, and it may still be under way."""


@frozen
class StoreAnswer:
    """What came of a call."""

    pages: int = 0
    """Its leading pages that went well."""
    is_made: bool = True
    """Whether the store was called at all."""
    failure: str | None = None
    """What it raised, in words; None if the store has answered."""


@define(eq=False)
class StoreCall:
    """A batch that a thread moves, or is about to."""

    running: RunningOrder
    batch: PageBatch
    is_trial: bool
    """Whether it tries a store that was left alone."""
    state: CallState = CallState.WAITING
    began_at: float = 0.0
    result: StoreAnswer = StoreAnswer()
    _lock: threading.Lock = field(factory=threading.Lock)

    def begin(self, now: float) -> bool:
        """Begin, in a thread; False if the call was withdrawn."""
        with self._lock:
            if self.state is not CallState.WAITING:
                return False
            self.state, self.began_at = CallState.BEGUN, now
            return True

    def withdraw(self) -> bool:
        """Take the call back; False if a thread has begun with it."""
        with self._lock:
            if self.state is not CallState.WAITING:
                return False
            self.state = CallState.WITHDRAWN
            return True


class CallThread:
    """A thread that makes calls of one kind, one after another."""

    def __init__(
        self,
        kind: OrderKind,
        move: Move,
        clock: Callable[[], float],
        done: SimpleQueue[StoreCall],
    ) -> None:
        self._move, self._clock, self._done = move, clock, done
        self._calls: SimpleQueue[StoreCall | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name=f"kvcanon-store-{kind}", daemon=True
        )
        self._thread.start()

    def put(self, call: StoreCall) -> None:
        """Make a call after those that were put before."""
        self._calls.put(call)

    def end(self) -> None:
        """End after the calls that were put. Does not wait for it."""
        self._calls.put(None)

    def join(self, seconds: float) -> bool:
        """Wait until the thread has ended; False if it has not after this time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.begin(self._clock()):
                call.result = self._result(call)
                self._done.put(call)

    def _result(self, call: StoreCall) -> StoreAnswer:
        if call.running.stopped:
            return StoreAnswer(is_made=False)
        try:
            result = StoreAnswer(self._move(call.batch))
        except Exception as error:  # Whatever a client raises is a failure.
            logger.debug("%s raised", threading.current_thread().name, exc_info=True)
            result = StoreAnswer(failure=f"{type(error).__name__}: {error}")
        # Later pages of a prompt are of no use without those before them.
        if result.pages < len(call.batch):
            call.running.stopped = True
        return result
