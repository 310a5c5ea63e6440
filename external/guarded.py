"""An external store that keeps no caller past a deadline: `GuardedStore`, for engines without one.

Each call runs in a thread of its own, on memory of its own. At the deadline its caller gets a no or
a miss, and the store is left alone for a while (`kvcanon.store_breaker`). What the call does later
it does to memory that nobody else has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import numpy as np
from attrs import define, evolve, field

from kvcanon.disk.parts import PageGet, PagePut, copy_from, copy_into, total_bytes
from kvcanon.external.figures import ExternalFigures
from kvcanon.external.registered_memory import Bytes
from kvcanon.store_breaker import StoreBreaker

BATCH_BYTES = 16 << 20
"""About how much one call to the store moves."""
MOST_LATE = 4
"""Calls of one kind that were given up and have not returned. With so many no other is made, since
each holds the memory of a batch."""
SHARES = {"look": 0.25, "memory": 0.25, "read": 0.5, "write": 0.5}
"""The share of the deadline that a call of each kind has: a request waits for a look, for memory
and for a read, one after another."""
_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")
Page = TypeVar("Page", PagePut, PageGet)


class ExternalStore(Protocol):
    """What is called of a store: `RedisTier` or `MooncakeTier`."""

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        """Store pages."""

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        """Read pages."""

    def leading_run(self, names: Sequence[bytes]) -> int:
        """How many pages are there before the first that is not."""

    def statistics(self) -> ExternalFigures:
        """What it has done."""

    def close(self) -> None:
        """Close it."""


@define
class GuardFigures:
    """What became of calls."""

    given_up_calls: int = 0
    """Those that had not returned at their deadline."""
    failed_calls: int = 0
    """Those that were answered with an error."""
    late_calls: int = 0
    """Those that were given up, and have not returned yet."""
    rests: int = 0
    """How often the store was left alone."""
    is_resting: bool = False


@define(eq=False)
class CallMemory:
    """Blocks of memory, each of which one call has at a time."""

    block_bytes: int
    register: Callable[[Bytes], None] | None = None
    """Lets a client know a new block."""
    _free: list[Bytes] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)

    def free_block(self) -> Bytes | None:
        """A block that was used before, if there is one; its contents are undefined."""
        with self._lock:
            return self._free.pop() if self._free else None

    def new_block(self) -> Bytes:
        """One more. Raises: ExternalFailed, if it cannot be registered."""
        block = np.empty(self.block_bytes, np.uint8)
        if self.register is not None:
            self.register(block)
        return block

    def give_back(self, block: Bytes) -> None:
        """The call that had it has returned."""
        with self._lock:
            self._free.append(block)


@define(eq=False)
class _Loan:
    """A block that a call has."""

    memory: CallMemory
    block: Bytes
    is_lent: bool = False
    """Whether a call that was given up still has it."""

    def give_back(self) -> None:
        """The call has returned."""
        self.memory.give_back(self.block)


@define(eq=False)
class _Call(Generic[Value]):
    """A call in a thread; its caller and the thread agree on who looks at the answer."""

    work: Callable[[], Value]
    after: Callable[[], None]
    """Done at its end, where the caller has given it up."""
    answer: Value | None = None
    error: Exception | None = None
    is_done: threading.Event = field(factory=threading.Event)
    _is_given_up: bool = False
    _lock: threading.Lock = field(factory=threading.Lock)

    def run(self) -> None:
        """Make the call."""
        try:
            self.answer = self.work()
        except Exception as error:  # noqa: BLE001  # Whatever a client raises is a failure.
            self.error = error
        with self._lock:
            self.is_done.set()
            if not self._is_given_up:
                return
        self.after()

    def give_up(self) -> bool:
        """Wait for it no longer; False if it has returned."""
        with self._lock:
            self._is_given_up = not self.is_done.is_set()
            return self._is_given_up


@define(eq=False)
class GuardedStore:
    """A store with deadlines. Any thread may call it, and nothing of it raises."""

    store: ExternalStore
    deadline_seconds: float
    """How long a caller waits for a look at pages and their first batch together, if the store does
    not answer."""
    memory: CallMemory
    breaker: StoreBreaker = field(factory=lambda: StoreBreaker(time.monotonic))
    figures: GuardFigures = field(factory=GuardFigures)
    _late: dict[str, int] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        """Store pages; says for each whether it is stored."""
        answers: list[bool] = []
        for batch in self._batches(pages):
            done = self._put(batch)
            if done is None:
                break
            answers += done
        return answers + [False] * (len(pages) - len(answers))

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        """Read pages into their parts; the bytes of each, or None for a miss.

        Nothing is written to the parts of a miss, nor to any after this has returned.
        """
        answers: list[int | None] = []
        for batch in self._batches(pages):
            read = self._get(batch)
            if read is None:
                break
            answers += read
        return answers + [None] * (len(pages) - len(answers))

    def leading_run(self, names: Sequence[bytes]) -> int:
        """How many pages are there before the first that is not.

        A store whose memory hangs may still say what it has. So no rest ends by this.
        """
        return self._ask("look", lambda: self.store.leading_run(names)) or 0

    def clear(self) -> None:
        """Remove nothing: pages are other servers', too, and leave when the room is needed."""
        _LOG.warning("kvcanon's external store keeps its pages: the store evicts what is not used")

    def statistics(self) -> GuardFigures:
        """What became of calls since it was made."""
        with self._lock:
            return evolve(
                self.figures,
                late_calls=sum(self._late.values()),
                rests=self.breaker.rests,
                is_resting=self.breaker.is_resting,
            )

    def close(self) -> None:
        """Close the store. A call that hangs ends by itself."""
        self.store.close()

    # Inside.

    def _batches(self, pages: Sequence[Page]) -> Iterator[list[Page]]:
        """Pages that fit into a block together, in order."""
        batch: list[Page] = []
        size = 0
        for page in pages:
            more = total_bytes(page.parts)
            if batch and size + more > self.memory.block_bytes:
                yield batch
                batch, size = [], 0
            batch.append(page)
            size += more
        if batch:
            yield batch

    def _put(self, pages: list[PagePut]) -> list[bool] | None:
        with self._loan() as loan:
            if loan is None:
                return None
            views = _views(loan.block, pages)
            for page, view in zip(pages, views, strict=True):
                copy_from(page.parts, view)
            own = [
                PagePut(page.name, (view,), page.parent)
                for page, view in zip(pages, views, strict=True)
            ]
            return self._ask("write", lambda: self.store.put(own), loan)

    def _get(self, pages: list[PageGet]) -> list[int | None] | None:
        with self._loan() as loan:
            if loan is None:
                return None
            views = _views(loan.block, pages)
            own = [PageGet(page.name, (view,)) for page, view in zip(pages, views, strict=True)]
            lengths = self._ask("read", lambda: self.store.get(own), loan)
            for page, view, length in zip(pages, views, lengths or (), strict=False):
                if length is not None:
                    copy_into(page.parts, view)
            return lengths

    @contextmanager
    def _loan(self) -> Iterator[_Loan | None]:
        """Memory for a call, until the end of this or of a call that was given up."""
        with self._lock:
            admits = self.breaker.admits
        block = self.memory.free_block() if admits else None
        if admits and block is None:
            # A client that hangs may hang in this, too.
            block = self._ask("memory", self.memory.new_block, late=self.memory.give_back)
        loan = None if block is None else _Loan(self.memory, block)
        try:
            yield loan
        finally:
            if loan is not None and not loan.is_lent:
                loan.give_back()

    def _ask(
        self,
        kind: str,
        work: Callable[[], Value],
        loan: _Loan | None = None,
        late: Callable[[Value], None] | None = None,
    ) -> Value | None:
        """Make a call; None if it fails, or has not returned at its deadline, or is not made.

        `late` takes an answer that comes after that.
        """
        with self._lock:
            if not self.breaker.admits or self._late.get(kind, 0) >= MOST_LATE:
                return None
            is_trial = self.breaker.begin_call()

        def note_return() -> None:
            if late is not None and call.answer is not None:
                late(call.answer)
            self._note_return(kind, loan)

        call = _Call(work, note_return)
        threading.Thread(target=call.run, name=f"kvcanon-external-{kind}", daemon=True).start()
        seconds = SHARES[kind] * self.deadline_seconds
        if not call.is_done.wait(seconds) and call.give_up():
            if loan is not None:
                loan.is_lent = True
            with self._lock:
                self._late[kind] = self._late.get(kind, 0) + 1
                self.figures.given_up_calls += 1
                self._note_failure(f"no answer in {seconds:g} s", is_trial=is_trial)
            return None
        with self._lock:
            if call.error is not None:
                self.figures.failed_calls += 1
                self._note_failure(f"{call.error}", is_trial=is_trial)
            elif loan is None:
                self.breaker.note_untried(is_trial=is_trial)
            elif self.breaker.note_answer(is_trial=is_trial):
                _LOG.info("kvcanon's external store answers again")
        return call.answer

    def _note_return(self, kind: str, loan: _Loan | None) -> None:
        """A call that was given up has returned: its memory may have another owner."""
        if loan is not None:
            loan.give_back()
        with self._lock:
            self._late[kind] = self._late.get(kind, 0) - 1

    def _note_failure(self, why: str, *, is_trial: bool) -> None:
        if self.breaker.note_failure(is_trial=is_trial):
            _LOG.warning(
                "kvcanon's external store is left alone for %g s: %s",
                self.breaker.rest_seconds,
                why,
            )


def _views(block: Bytes, pages: Sequence[PagePut | PageGet]) -> list[memoryview]:
    """A piece of a block for each page. A block is as large as a page, at least."""
    views, end = [], 0
    whole = block.data
    for page in pages:
        begin, end = end, end + total_bytes(page.parts)
        views.append(whole[begin:end])
    return views
