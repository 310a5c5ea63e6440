"""Copy workers: the background threads of an engine, one for each direction.

A thread refers to its worker and never to the engine, so that an engine without references is
collected, and its threads end.

Nobody waits for ever. A thread that ends by an error leaves its reason: calls that wait for one of
its orders, and later calls, raise a `CacheUnusable` that says it. So do all calls in a process that
was forked, since threads do not come along.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat, starmap
from operator import attrgetter
from threading import Thread
from typing import Any, Generic, Protocol, Self, TypeVar

from attrs import define, field

from kvcanon.optimized.changes import Changes
from kvcanon.spec.errors import BadArgument, CacheUnusable
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)

MOST_FAILED = 1 << 16
"""How many failed orders an engine remembers for `wait_layer`, which may come late. It says that
orders before those failed, too, since it does not know better."""

FORKED = "the transfer engine belongs to the process that this one was forked from"


class Ended(Protocol):
    """What is known of an order that has ended."""

    @property
    def transfer_id(self) -> TransferId:
        """The order."""

    @property
    def ok(self) -> bool:
        """Whether it was performed."""


Job = TypeVar("Job")


@define(eq=False)
class CopyWorker(ABC, Generic[Job]):
    """The orders of one direction, and the thread that performs them."""

    changed: Changes = field(factory=Changes)
    """Held only briefly, never during a copy or a call to a device."""
    waiting: deque[Job] = field(factory=deque)
    ended: deque[Ended] = field(factory=deque)
    """Orders that have ended and were not reported yet."""
    failed: dict[TransferId, None] = field(factory=dict)
    """The latest orders that failed."""
    unknown: TransferId = -1
    """Up to this order nobody knows any more which ones failed."""
    closed: bool = False
    entered: bool = False
    """Whether the thread is ready for jobs."""
    died: str | None = None
    """Why no thread performs orders any more; None while one does."""
    thread: Thread | None = None

    @abstractmethod
    def look(self) -> None:
        """Add the orders that have ended to `ended`. Never waits for a copy."""

    @abstractmethod
    def wait(self, transfer_id: TransferId) -> None:
        """Return once `look` finds this order and all before it. Raises: CacheUnusable."""

    @abstractmethod
    def finish(self) -> None:
        """Return once no byte moves any more, and forget all orders. Raises: CacheUnusable."""

    @abstractmethod
    def work(self) -> None:
        """Perform orders until the worker is closed: what the thread does."""

    def enter(self) -> None:
        """Prepare the thread, before its first order."""

    def put(self, job: Job) -> None:
        """Queue a job; the caller holds `changed`. Raises: BadArgument once closed."""
        if self.closed:
            raise BadArgument("order", "comes to an engine that was closed; make a new one")
        self.require_alive()
        self.waiting.append(job)
        self.changed.notify_all()

    def next_job(self) -> Job | None:
        """Wait for the next job; None once the worker is closed and its queue is empty."""
        self.until(lambda: bool(self.waiting) or self.closed)
        return self.waiting.popleft() if self.waiting else None

    def require_alive(self) -> None:
        """Raises: CacheUnusable: the thread that performs orders has ended."""
        if self.died is not None:
            raise CacheUnusable(self.died)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a change. Raises: CacheUnusable: the thread that would make it has ended."""
        if self.died == FORKED:
            self.require_alive()
        self.changed.wait_for(lambda: self.died is not None or is_so())
        if not is_so():
            self.require_alive()

    def fail(self, transfer_id: TransferId) -> None:
        """Remember that an order failed."""
        self.failed[transfer_id] = None
        if len(self.failed) > MOST_FAILED:
            oldest = next(iter(self.failed))
            self.unknown = max(self.unknown, oldest)
            del self.failed[oldest]

    def succeeded(self, transfer_id: TransferId) -> bool:
        """Whether an order that has ended is known not to have failed."""
        return transfer_id > self.unknown and transfer_id not in self.failed

    def start(self, direction: Direction) -> None:
        """Start the thread, and return once it is ready. Raises: CacheUnusable."""
        # A daemon: Python joins other threads before the exit handler here could close them.
        name = f"kvcanon-{direction}"
        self.died, self.entered = None, False
        thread = Thread(target=_run, args=(self, name), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.died = (
                f"the thread {name} cannot start ({error}); "
                "raise the limit of threads of this user or container"
            )
            raise CacheUnusable(self.died) from error
        self.thread = thread
        self.until(lambda: self.entered)

    def die(self, why: str) -> None:
        """Wake all that wait for orders: no thread performs them any more."""
        self.died = why
        self.changed.notify_all()

    def disown(self) -> None:
        """Forget the thread, which is another process's, and the lock, which it may hold."""
        self.changed, self.thread, self.died = Changes(), None, FORKED
        self.closed = True
        self.waiting.clear()

    def close(self) -> None:
        """Accept no more jobs; the thread ends when the queue is empty."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


def _run(worker: CopyWorker[Any], name: str) -> None:
    try:
        worker.enter()
        worker.entered = True
        worker.changed.notify_all()
        worker.work()
    except BaseException as error:
        logger.exception("the thread %s ended", name)
        worker.die(f"the thread {name} ended with {type(error).__name__}: {error}")


WorkerKind = TypeVar("WorkerKind", bound="CopyWorker[Any]")

_id_and_ok = attrgetter("transfer_id", "ok")


class WorkerEngine(Generic[WorkerKind]):
    """Base of engines that have a worker for each direction.

    Raises:
        CacheUnusable: a thread cannot start, or ends at once.
    """

    def __init__(self, workers: Mapping[Direction, WorkerKind]) -> None:
        self._workers = workers
        # An engine that is dropped without `close` must not leave threads behind. Nothing can poll
        # its completions any more, so queued copies are dropped, too.
        weakref.finalize(self, _abandon, tuple(workers.values())).atexit = False
        _open_engines.add(self)

    def poll(self) -> tuple[Completion, ...]:
        """Return the completions since the last poll, backups first. Never waits for a copy.

        Raises:
            CacheUnusable: a thread has ended by an error, or is another process's.
        """
        taken: list[tuple[TransferId, bool]] = []
        self.poll_into(taken)
        return tuple(Completion(*each) for each in taken)

    def poll_into(self, taken: list[tuple[TransferId, bool]]) -> None:
        """Move the completions since the last poll to the end of a list, as `poll` returns them.

        An interrupt loses none: each is still here, or in the list. Raises: CacheUnusable.
        """
        for worker in self._workers.values():
            worker.require_alive()
            worker.look()
            # One call of C code, which no interrupt cuts in two.
            ended = worker.ended
            taken.extend(map(_id_and_ok, starmap(ended.popleft, repeat((), len(ended)))))

    def wait(self, transfer_id: TransferId) -> None:
        """Return once this order, and all before it in its direction, can be polled as complete.

        Returns at once for an order that has ended or was never submitted.

        Raises:
            CacheUnusable: no thread performs the order any more.
        """
        for worker in self._workers.values():
            worker.wait(transfer_id)

    def restart(self) -> None:
        """Wait until no copy runs, forget all orders, and start threads that ended by an error.

        Raises:
            CacheUnusable: a copy may still run, a thread cannot start, or the engine is another
                process's or was closed.
        """
        for direction, worker in self._workers.items():
            if worker.closed:
                raise CacheUnusable(worker.died or "the transfer engine was closed; make a new one")
            worker.finish()
            worker.ended.clear()
            if worker.died is not None:
                worker.start(direction)

    def start(self) -> None:
        """Start all threads; if one cannot start, end the others. Raises: CacheUnusable."""
        try:
            for direction, worker in self._workers.items():
                worker.start(direction)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Perform all submitted orders and end the threads. Completions can still be polled."""
        for worker in self._workers.values():
            worker.close()
        for worker in self._workers.values():
            if worker.thread is not None:
                worker.thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


def require_layer(layer: int) -> None:
    """Raises: BadArgument, for a layer below 0."""
    if layer < 0:
        raise BadArgument("layer", f"is {layer}; the first layer is 0")


def _abandon(workers: Iterable[CopyWorker[Any]]) -> None:
    """End the threads without waiting: the garbage collector may run this in one of them."""
    for worker in workers:
        worker.waiting.clear()
        worker.close()


_open_engines: weakref.WeakSet[WorkerEngine[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stop all threads before the interpreter shuts down."""
    for engine in list(_open_engines):
        engine.close()


def _disown_all() -> None:
    """In a child of a fork: no engine of the parent works here."""
    for engine in list(_open_engines):
        for worker in engine._workers.values():  # noqa: SLF001  # It is this module's.
            worker.disown()


os.register_at_fork(after_in_child=_disown_all)
