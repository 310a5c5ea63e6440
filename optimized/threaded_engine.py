"""An engine whose copies are made by threads of this process: one thread for each direction.

Orders of one direction are performed in the order in which they came, the two directions side by
side. A large order goes some layers at a time, lower ones first, so that a request can compute on
its first layers while the others still come.

What readers get wrong: bytes that arrived are not yet settled. `wait_layer` says that they are
there; only `poll` tells the cache, and until the cache has settled the transfer their slots are
locked or its own (see `orders`). That is why no slot is guarded here.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections import deque
from collections.abc import Iterable
from threading import Condition, Thread
from types import TracebackType
from typing import Self

from attrs import define, field

from kvcanon.optimized.layout import layer_groups
from kvcanon.optimized.orders import PageOrder
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)

GROUP_BYTES = 4 << 20
"""Less than this is not worth a word to those who wait: about a millisecond of copying."""


class ThreadedEngine:
    """Copies in the background, for pools that the processor reaches.

    A copy that raises is logged, and told to the cache as one that failed. The threads start with
    the first order, and end with `close`, with the `with` block, or with the engine itself.

    Raises:
        BadArgument: a group has less than one byte.
    """

    def __init__(self, group_bytes: int = GROUP_BYTES) -> None:
        if group_bytes < 1:
            raise BadArgument("group_bytes", f"is {group_bytes}; it must be at least 1")
        self._lanes = {direction: _Lane(direction, group_bytes) for direction in Direction}
        # Whoever drops an engine without a word must not keep its threads. Nobody can be told of
        # its copies any more, so those that wait are dropped too.
        weakref.finalize(self, _abandon, tuple(self._lanes.values())).atexit = False
        _open_engines.add(self)

    def submit(self, order: TransferOrder) -> None:
        """Take an order; return without waiting for it. Raises: BadArgument once closed."""
        self._lanes[order.direction].submit(order)

    def poll(self) -> tuple[Completion, ...]:
        """The completions since the last poll, backups first. Never waits for a copy."""
        return tuple(each for lane in self._lanes.values() for each in lane.take_completions())

    def wait(self, transfer_id: TransferId) -> None:
        """Return once this order, and all before it in its direction, can be polled as complete.

        An order that has ended, or that nobody submitted, is not waited for.
        """
        for lane in self._lanes.values():
            lane.wait(transfer_id)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Return once this layer and those below it are there, or never will be: which of the two.

        Any thread may ask, also after the order has ended. Layers count as in `PageOrder`; of
        another order, the layers arrive together when it ends.

        Raises:
            BadArgument: the layer is below 0.
        """
        if layer < 0:
            raise BadArgument("layer", f"is {layer}; the first layer is 0")
        return all(lane.wait_layer(transfer_id, layer) for lane in self._lanes.values())

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


@define(eq=False)
class _Lane:
    """The orders of one direction, and the thread that performs them.

    The thread knows its lane and never the engine, so that the engine can go while it waits.
    """

    direction: Direction
    group_bytes: int
    changed: Condition = field(factory=Condition)
    """Held for moments only, and never during a copy."""
    waiting: deque[TransferOrder] = field(factory=deque)
    layers_there: dict[TransferId, int] = field(factory=dict)
    """Of the orders that have not ended."""
    failed: set[TransferId] = field(factory=set)
    """Kept for good, for those who ask late; failures are few."""
    completions: list[Completion] = field(factory=list)
    closed: bool = False
    thread: Thread | None = None

    def submit(self, order: TransferOrder) -> None:
        with self.changed:
            if self.closed:
                raise BadArgument("order", "comes to an engine that was closed; make a new one")
            self.waiting.append(order)
            self.layers_there[order.transfer_id] = 0
            self.changed.notify_all()
        if self.thread is None:
            # A daemon, since Python would join any other before it lets us close it at exit.
            name = f"kvcanon-{self.direction}"
            self.thread = Thread(target=_work, args=(self,), name=name, daemon=True)
            self.thread.start()

    def take_completions(self) -> list[Completion]:
        with self.changed:
            completions, self.completions = self.completions, []
        return completions

    def wait(self, transfer_id: TransferId) -> None:
        with self.changed:
            self.changed.wait_for(lambda: transfer_id not in self.layers_there)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.layers_there.get(transfer_id, layer + 1) > layer)
            return transfer_id not in self.failed

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def next_order(self) -> TransferOrder | None:
        """The order to perform now; None when there will be none."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closed)
            return self.waiting.popleft() if self.waiting else None

    def advance(self, transfer_id: TransferId, layers_there: int) -> None:
        with self.changed:
            self.layers_there[transfer_id] = layers_there
            self.changed.notify_all()

    def end(self, transfer_id: TransferId, *, ok: bool) -> None:
        with self.changed:
            del self.layers_there[transfer_id]
            if not ok:
                self.failed.add(transfer_id)
            self.completions.append(Completion(transfer_id, ok))
            self.changed.notify_all()


def _work(lane: _Lane) -> None:
    while _work_one(lane):
        pass


def _work_one(lane: _Lane) -> bool:
    """Perform the next order, and hold on to nothing of it: an idle thread must keep no pools."""
    order = lane.next_order()
    if order is None:
        return False
    ok = False
    try:
        _perform(lane, order)
        ok = True
    except BaseException:
        # Whatever it is, somebody waits for this order and for those behind it.
        logger.exception("%s %d failed", lane.direction, order.transfer_id)
    lane.end(order.transfer_id, ok=ok)
    return True


def _perform(lane: _Lane, order: TransferOrder) -> None:
    if not isinstance(order, PageOrder):
        order.perform()
    elif order.layer_bytes:
        for layers in layer_groups(order.layers, order.layer_bytes, lane.group_bytes):
            order.perform_layers(layers)
            lane.advance(order.transfer_id, layers.stop)


def _abandon(lanes: Iterable[_Lane]) -> None:
    """End the threads without waiting: the collector runs anywhere, in those threads too."""
    for lane in lanes:
        with lane.changed:
            lane.waiting.clear()
        lane.close()


_open_engines: weakref.WeakSet[ThreadedEngine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Let no thread copy while the interpreter is taken apart around it."""
    for engine in list(_open_engines):
        engine.close()
