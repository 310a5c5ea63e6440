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
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)

GROUP_BYTES = 4 << 20
"""Least bytes of a group of layers: about a millisecond of copying."""


class ThreadedEngine(WorkerEngine["_MemcpyWorker"]):
    """Copies in the background, for pools in CPU memory.

    A copy that raises is logged, and completes as failed. The threads start with the first order,
    and end with `close`, with the `with` block, or when the engine is collected.

    Raises:
        BadArgument: `group_bytes` is below 1.
    """

    def __init__(self, group_bytes: int = GROUP_BYTES) -> None:
        if group_bytes < 1:
            raise BadArgument("group_bytes", f"is {group_bytes}; it must be at least 1")
        super().__init__(
            {each: _MemcpyWorker(direction=each, group_bytes=group_bytes) for each in Direction}
        )

    def submit(self, order: TransferOrder) -> None:
        """Queue an order and return without waiting. Raises: BadArgument once closed."""
        self._workers[order.direction].submit(order)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for this layer and those below: True once they are there, False if the copy failed.

        Any thread may call this, also after the order has ended. Layers count as in `PageTransfer`;
        all layers of other orders arrive together at the end.

        Raises:
            BadArgument: the layer is below 0.
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
    completions: list[Completion] = field(factory=list)

    def submit(self, order: TransferOrder) -> None:
        with self.changed:
            self.put(order)
            self.layers_there[order.transfer_id] = 0
        if self.thread is None:
            self.start(self.direction, _work)

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


def _work(worker: _MemcpyWorker) -> None:
    while _work_one(worker):
        pass


def _work_one(worker: _MemcpyWorker) -> bool:
    """Perform the next order and drop all references to it: an idle thread must not keep pools."""
    order = worker.next_job()
    if order is None:
        return False
    ok = False
    try:
        _perform(worker, order)
        ok = True
    except BaseException:
        # Whatever was raised, callers wait for this order and for later ones.
        logger.exception("%s %d failed", worker.direction, order.transfer_id)
    worker.end(order.transfer_id, ok=ok)
    return True


def _perform(worker: _MemcpyWorker, order: TransferOrder) -> None:
    transfer = order.perform
    if not isinstance(transfer, PageTransfer):
        transfer()
    elif transfer.layer_bytes:
        for layers in layer_groups(transfer.layers, transfer.layer_bytes, worker.group_bytes):
            transfer.perform_layers(layers)
            worker.advance(order.transfer_id, layers.stop)
