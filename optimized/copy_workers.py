"""Lanes: how an engine works in the background, with a thread for each direction.

What readers get wrong: a thread knows its lane and never the engine. So an engine that nobody has
any more can go, and takes its threads along.
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
class Lane(ABC, Generic[Job]):
    """The orders of one direction, and the thread that sees to them."""

    changed: Condition = field(factory=Condition)
    """Held for moments only, and never during a copy or a call to a device."""
    waiting: deque[Job] = field(factory=deque)
    failed: set[TransferId] = field(factory=set)
    """Kept for good, for those who ask late; failures are few."""
    closed: bool = False
    thread: Thread | None = None

    @abstractmethod
    def take_completions(self) -> list[Completion]:
        """What has ended since it was asked last. Never waits for a copy."""

    @abstractmethod
    def wait(self, transfer_id: TransferId) -> None:
        """Return once this order, and all before it, will be among the completions."""

    def put(self, job: Job) -> None:
        """Let it wait for its turn; `changed` is held. Raises: BadArgument once closed."""
        if self.closed:
            raise BadArgument("order", "comes to an engine that was closed; make a new one")
        self.waiting.append(job)
        self.changed.notify_all()

    def next_job(self) -> Job | None:
        """What is to be done now; None when there will be nothing any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closed)
            return self.waiting.popleft() if self.waiting else None

    def start(self, direction: Direction, work: Callable[[Self], None]) -> None:
        """Start the thread."""
        # A daemon, since Python would join any other before it lets us close it at exit.
        name = f"kvcanon-{direction}"
        self.thread = Thread(target=work, args=(self,), name=name, daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Let nothing more come; the thread ends when nothing waits."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


LaneKind = TypeVar("LaneKind", bound="Lane[Any]")


class LaneEngine(Generic[LaneKind]):
    """What engines with a lane for each direction have in common."""

    def __init__(self, lanes: dict[Direction, LaneKind]) -> None:
        self._lanes = lanes
        # Whoever drops an engine without a word must not keep its threads. Nobody can be told of
        # its copies any more, so those that wait are dropped too.
        weakref.finalize(self, _abandon, tuple(lanes.values())).atexit = False
        _open_engines.add(self)

    def poll(self) -> tuple[Completion, ...]:
        """The completions since the last poll, backups first. Never waits for a copy."""
        return tuple(each for lane in self._lanes.values() for each in lane.take_completions())

    def wait(self, transfer_id: TransferId) -> None:
        """Return once this order, and all before it in its direction, can be polled as complete.

        An order that has ended, or that nobody submitted, is not waited for.
        """
        for lane in self._lanes.values():
            lane.wait(transfer_id)

    def close(self) -> None:
        """Perform what was submitted, and end the threads; what completed can still be polled."""
        for lane in self._lanes.values():
            lane.close()
        for lane in self._lanes.values():
            if lane.thread is not None:
                lane.thread.join()

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


def _abandon(lanes: Iterable[Lane[Any]]) -> None:
    """End the threads without waiting: the collector runs anywhere, in those threads too."""
    for lane in lanes:
        with lane.changed:
            lane.waiting.clear()
        lane.close()


_open_engines: weakref.WeakSet[LaneEngine[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Let no thread copy while the interpreter is taken apart around it."""
    for engine in list(_open_engines):
        engine.close()
