"""Copy workers: the background threads of an engine, one for each direction.

A thread refers to its worker and never to the engine, so that an engine without references is
collected, and its threads end.
"""

from __future__ import annotations

import atexit
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from attrs import define, field

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import TransferId

Job = TypeVar("Job")


@define(eq=False)
class CopyWorker(ABC, Generic[Job]):
    """The orders of one direction, and the thread that performs them."""

    changed: Condition = field(factory=Condition)
    """Held only briefly, never during a copy or a call to a device."""
    waiting: deque[Job] = field(factory=deque)
    failed: set[TransferId] = field(factory=set)
    """Never forgotten, because `wait_layer` may come late; failures are rare."""
    closed: bool = False
    thread: Thread | None = None

    @abstractmethod
    def take_completions(self) -> list[Completion]:
        """Return the orders that ended since the last call. Never waits for a copy."""

    @abstractmethod
    def wait(self, transfer_id: TransferId) -> None:
        """Return once the next `take_completions` has this order and all before it."""

    def put(self, job: Job) -> None:
        """Queue a job; the caller holds `changed`. Raises: BadArgument once closed."""
        if self.closed:
            raise BadArgument("order", "comes to an engine that was closed; make a new one")
        self.waiting.append(job)
        self.changed.notify_all()

    def next_job(self) -> Job | None:
        """Wait for the next job; None once the worker is closed and its queue is empty."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closed)
            return self.waiting.popleft() if self.waiting else None

    def start(self, direction: Direction, work: Callable[[Self], None]) -> None:
        """Start the thread."""
        # A daemon: Python joins other threads before the exit handler here could close them.
        name = f"kvcanon-{direction}"
        self.thread = Thread(target=work, args=(self,), name=name, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Accept no more jobs; the thread ends when the queue is empty."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


WorkerKind = TypeVar("WorkerKind", bound="CopyWorker[Any]")


class WorkerEngine(Generic[WorkerKind]):
    """Base of engines that have a worker for each direction."""

    def __init__(self, workers: dict[Direction, WorkerKind]) -> None:
        self._workers = workers
        # An engine that is dropped without `close` must not leave threads behind. Nothing can poll
        # its completions any more, so queued copies are dropped, too.
        weakref.finalize(self, _abandon, tuple(workers.values())).atexit = False
        _open_engines.add(self)

    def poll(self) -> tuple[Completion, ...]:
        """Return the completions since the last poll, backups first. Never waits for a copy."""
        return tuple(
            each for worker in self._workers.values() for each in worker.take_completions()
        )

    def wait(self, transfer_id: TransferId) -> None:
        """Return once this order, and all before it in its direction, can be polled as complete.

        Returns at once for an order that has ended or was never submitted.
        """
        for worker in self._workers.values():
            worker.wait(transfer_id)

    def close(self) -> None:
        """Perform all submitted orders and end the threads. Completions can still be polled."""
        for worker in self._workers.values():
            worker.close()
        for worker in self._workers.values():
            if worker.thread is not None:
                worker.thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def require_layer(layer: int) -> None:
    """Raises: BadArgument, for a layer below 0."""
    if layer < 0:
        raise BadArgument("layer", f"is {layer}; the first layer is 0")


def _abandon(workers: Iterable[CopyWorker[Any]]) -> None:
    """End the threads without waiting: the garbage collector may run this in one of them."""
    for worker in workers:
        with worker.changed:
            worker.waiting.clear()
        worker.close()


_open_engines: weakref.WeakSet[WorkerEngine[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Stop all threads before the interpreter shuts down."""
    for engine in list(_open_engines):
        engine.close()
