"""An engine whose copies are made by threads of this process: one thread for each direction.

Orders of one direction are performed in the order in which they came, the two directions side by
side. A large order goes some layers at a time, lower ones first, so that a request can compute on
its first layers while the others still come.

What readers get wrong: bytes that arrived are not yet settled. `wait_layer` says that they are
there; only `poll` tells the cache, and until the cache has settled the transfer their slots are
locked or its own (see `orders`). That is why no slot is guarded here.
"""

from __future__ import annotations

import logging

from attrs import define, field

from kvcanon.optimized.copy_workers import Lane, LaneEngine, require_layer
from kvcanon.optimized.layout import layer_groups
from kvcanon.optimized.page_transfer import PageTransfer
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)

GROUP_BYTES = 4 << 20
"""Less than this is not worth a word to those who wait: about a millisecond of copying."""


class ThreadedEngine(LaneEngine["_Lane"]):
    """Copies in the background, for pools that the processor reaches.

    A copy that raises is logged, and told to the cache as one that failed. The threads start with
    the first order, and end with `close`, with the `with` block, or with the engine itself.

    Raises:
        BadArgument: a group has less than one byte.
    """

    def __init__(self, group_bytes: int = GROUP_BYTES) -> None:
        if group_bytes < 1:
            raise BadArgument("group_bytes", f"is {group_bytes}; it must be at least 1")
        super().__init__(
            {each: _Lane(direction=each, group_bytes=group_bytes) for each in Direction}
        )

    def submit(self, order: TransferOrder) -> None:
        """Take an order; return without waiting for it. Raises: BadArgument once closed."""
        self._lanes[order.direction].submit(order)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Return once this layer and those below it are there, or never will be: which of the two.

        Any thread may ask, also after the order has ended. Layers count as in `PageTransfer`; of
        another order, the layers arrive together when it ends.

        Raises:
            BadArgument: the layer is below 0.
        """
        require_layer(layer)
        return all(lane.wait_layer(transfer_id, layer) for lane in self._lanes.values())


@define(eq=False, kw_only=True)
class _Lane(Lane[TransferOrder]):
    """The orders of one direction, and the thread that performs them."""

    direction: Direction
    group_bytes: int
    layers_there: dict[TransferId, int] = field(factory=dict)
    """Of the orders that have not ended."""
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


def _work(lane: _Lane) -> None:
    while _work_one(lane):
        pass


def _work_one(lane: _Lane) -> bool:
    """Perform the next order, and hold on to nothing of it: an idle thread must keep no pools."""
    order = lane.next_job()
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
    transfer = order.perform
    if not isinstance(transfer, PageTransfer):
        transfer()
    elif transfer.layer_bytes:
        for layers in layer_groups(transfer.layers, transfer.layer_bytes, lane.group_bytes):
            transfer.perform_layers(layers)
            lane.advance(order.transfer_id, layers.stop)
