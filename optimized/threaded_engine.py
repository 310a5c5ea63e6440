"""An engine that copies in threads of this process, one for each direction.

Orders of one direction run in the order of submission; the two directions run in parallel. A large
order is copied some layers at a time, lower layers first, so that a request can compute on its
first layers while the others are copied.

After `wait_layer` the bytes are there, but the cache settles the transfer only in `poll`. Until
then the cache keeps both ends of the copy locked, so no slot is guarded here.
"""

from __future__ import annotations

import logging

from attrs import define, field

from kvcanon.optimized.copy_workers import CopyWorker, WorkerEngine, require_layer
from kvcanon.optimized.layout import layer_groups
from kvcanon.optimized.page_transfer import PageTransfer
from kvcanon.spec.errors import BadArgument, CacheUnusable
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)

GROUP_BYTES = 4 << 20
"""Least bytes of a group of layers: about a millisecond of copying."""


class ThreadedEngine(WorkerEngine["_MemcpyWorker"]):
    """Copies in the background, for pools in CPU memory.

    A copy that raises is logged, and completes as failed. The threads end with `close`, with the
    `with` block, or when the engine is collected.

    Raises:
        BadArgument: `group_bytes` is below 1.
        CacheUnusable: the threads cannot start.
    """

    def __init__(self, group_bytes: int = GROUP_BYTES) -> None:
        if group_bytes < 1:
            raise BadArgument("group_bytes", f"is {group_bytes}; it must be at least 1")
        super().__init__(
            {each: _MemcpyWorker(direction=each, group_bytes=group_bytes) for each in Direction}
        )
        self.start()

    def submit(self, order: TransferOrder) -> None:
        """Queue an order and return without waiting.

        Raises:
            BadArgument: the engine was closed.
            CacheUnusable: no thread performs orders any more.
        """
        self._workers[order.direction].submit(order)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for this layer and those below: True once they are there, False if the copy failed.

        Any thread may call this, also after the order has ended. Layers count as in `PageTransfer`;
        all layers of other orders arrive together at the end.

        Raises:
            BadArgument: the layer is below 0.
            CacheUnusable: no thread performs the order any more.
        """
        require_layer(layer)
        return all(worker.wait_layer(transfer_id, layer) for worker in self._workers.values())


@define(eq=False, kw_only=True)
class _MemcpyWorker(CopyWorker[TransferOrder]):
    """The orders of one direction, and the thread that performs them."""

    direction: Direction
    group_bytes: int
    layers_there: dict[TransferId, int] = field(factory=dict)
    """How many layers have arrived, for each order that has not ended."""

    def submit(self, order: TransferOrder) -> None:
        with self.changed:
            self.layers_there[order.transfer_id] = 0
            try:
                self.put(order)
            except (BadArgument, CacheUnusable):
                del self.layers_there[order.transfer_id]
                raise

    def look(self) -> None:
        """Orders that ended are there already."""

    def wait(self, transfer_id: TransferId) -> None:
        self.until(lambda: transfer_id not in self.layers_there)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        self.until(lambda: self.layers_there.get(transfer_id, layer + 1) > layer)
        return self.succeeded(transfer_id)

    def finish(self) -> None:
        """A last order ends after all others; where the thread has ended, nothing moves."""
        if self.died is None:
            last = TransferOrder(-1, self.direction, (), lambda: None)
            self.submit(last)
            self.wait(last.transfer_id)
        self.waiting.clear()
        self.layers_there.clear()

    def advance(self, transfer_id: TransferId, layers_there: int) -> None:
        self.layers_there[transfer_id] = layers_there
        self.changed.notify_all()

    def end(self, transfer_id: TransferId, *, ok: bool) -> None:
        if not ok:
            self.fail(transfer_id)
        self.ended.append(Completion(transfer_id, ok))
        del self.layers_there[transfer_id]
        self.changed.notify_all()

    def work(self) -> None:
        while self.work_one():
            pass

    def work_one(self) -> bool:
        """Perform the next order and drop all references to it: an idle thread keeps no pools."""
        order = self.next_job()
        if order is None:
            return False
        ok = False
        try:
            self.perform(order)
            ok = True
        except BaseException:
            # Whatever was raised, callers wait for this order and for later ones.
            logger.exception("%s %d failed", self.direction, order.transfer_id)
        self.end(order.transfer_id, ok=ok)
        return True

    def perform(self, order: TransferOrder) -> None:
        transfer = order.perform
        if not isinstance(transfer, PageTransfer):
            transfer()
        elif transfer.begin() and transfer.layer_bytes:
            for layers in layer_groups(transfer.layers, transfer.layer_bytes, self.group_bytes):
                transfer.perform_layers(layers)
                self.advance(order.transfer_id, layers.stop)
