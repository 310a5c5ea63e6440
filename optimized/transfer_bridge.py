"""The bridge between the native core and an engine of copies.

The core knows slots, not bytes. The bridge combines the core's transfers with the pools that have
the bytes, and passes them to the engine.
"""

from __future__ import annotations

import logging

from attrs import field, frozen

from kvcanon.optimized.codes import COMPONENTS, DIRECTIONS
from kvcanon.optimized.copy_workers import MOST_FAILED, WorkerEngine
from kvcanon.optimized.page_orders import HostReads
from kvcanon.optimized.page_transfer import (
    LayerwiseEngine,
    Move,
    PageTransfer,
    SlotArray,
    StreamEngine,
    page_order,
)
from kvcanon.optimized.pools import Pools
from kvcanon.spec.errors import BadArgument, CacheUnusable, SpecViolation
from kvcanon.spec.transfer import Agree, Direction, TransferEngine, TransferOrder
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)


@frozen(eq=False)
class TransferBridge:
    """An engine and the pools that it copies between, with the methods that the core calls.

    It alone decides whether the engine has an order, in `submit` or in `give_up`. An order that it
    has given up never moves a byte, and is never completed, whatever the engine says of it later;
    the core counts it as failed. For an insert has handed its slots over by then and cannot be
    refused any more.

    If the engine raises in `submit`, the error is logged, and the order is given up at once. Where
    an interrupt ended `submit`, the core asks `give_up` in its next call.
    """

    engine: TransferEngine
    pools: Pools
    agree: Agree | None = None
    """Asks the other ranks how far their copies are; None if there are no others."""
    store_reads: HostReads | None = None
    """The host pages that a store below has yet to read; None without a store."""
    _last_taken: dict[Direction, TransferId] = field(factory=dict, init=False)
    _not_taken: dict[TransferId, TransferId | None] = field(factory=dict, init=False)
    """The latest orders that were given up, each with the last order before it that the engine
    took."""
    _handed_over: dict[TransferId, TransferOrder] = field(factory=dict, init=False)
    """Orders whose `submit` began, until it is decided whether the engine has them."""
    _completed: list[tuple[TransferId, bool]] = field(factory=list, init=False)
    """Completions that the core has not read yet."""

    def submit(
        self,
        transfer_id: TransferId,
        direction: int,
        moves: list[tuple[int, SlotArray, SlotArray]],
        after: object = None,
    ) -> bool:
        """Submit an order to the engine; answers whether the engine will complete it.

        Raises:
            SpecViolation: the engine does.
            CacheUnusable: no thread performs orders any more.
        """
        way = DIRECTIONS[direction]
        named = tuple(Move(COMPONENTS[number], *slots) for number, *slots in moves)
        order = page_order(transfer_id, way, named, self.pools, after)
        if self.store_reads is not None and way is Direction.BACKUP:
            for move in named:
                self.keep_unread(move.targets)
        self._handed_over[transfer_id] = order
        try:
            self.engine.submit(order)
        except (SpecViolation, CacheUnusable):
            raise
        except Exception:
            logger.exception("the engine did not take %s %d", way, transfer_id)
            return not self.give_up(transfer_id)
        self._take(order)
        return True

    def keep_unread(self, slots: SlotArray) -> None:
        """Keep what the store has yet to read of host slots, which are about to be overwritten."""
        if self.store_reads is not None:
            self.store_reads.keep(slots)

    def give_up(self, transfer_id: TransferId) -> bool:
        """Give up an order, if no byte of it has moved; answers whether that is so.

        If not, the engine performs it, and will complete it. Calling this again changes nothing.
        """
        if transfer_id in self._not_taken:
            return True
        order = self._handed_over.get(transfer_id)
        if order is None:
            # An interrupt came before the order was made, or after the engine took it.
            return transfer_id not in self._last_taken.values()
        transfer = order.perform
        if not isinstance(transfer, PageTransfer) or not transfer.revoke():
            self._take(order)
            return False
        self._not_taken[transfer_id] = self._last_taken.get(order.direction)
        if len(self._not_taken) > MOST_FAILED:
            del self._not_taken[next(iter(self._not_taken))]
        self._handed_over.pop(transfer_id, None)
        return True

    def _take(self, order: TransferOrder) -> None:
        """Note that the engine has an order."""
        self._last_taken[order.direction] = order.transfer_id
        self._handed_over.pop(order.transfer_id, None)

    def event_after(self, point: object) -> object:
        """Return what `submit` takes as `after`. Raises: BadArgument."""
        if not isinstance(self.engine, StreamEngine):
            raise BadArgument(
                "after", "is given, and the engine has no streams; leave it out for pools on a CPU"
            )
        return self.engine.event_after(point)

    def poll(self) -> list[tuple[TransferId, bool]]:
        """Return completions since the last call, except those of abandoned orders.

        The caller empties the list when it has read it: what an interrupt leaves in it comes again.
        """
        if isinstance(self.engine, WorkerEngine):
            self.engine.poll_into(self._completed)
        else:
            self._completed.extend((each.transfer_id, each.ok) for each in self.engine.poll())
        if self._not_taken:
            given_up = self._not_taken
            self._completed[:] = [each for each in self._completed if each[0] not in given_up]
        return self._completed

    def restart(self) -> None:
        """Wait until no copy runs, and forget all orders: the cache starts over.

        Raises:
            CacheUnusable: the engine cannot go on.
        """
        if isinstance(self.engine, WorkerEngine):
            self.engine.restart()
        else:
            for transfer_id in self._last_taken.values():
                self.engine.wait(transfer_id)
            self.engine.poll()
        self._last_taken.clear()
        self._handed_over.clear()
        self._completed.clear()

    def wait(self, transfer_id: TransferId) -> None:
        """Return once the order, and all before it in its direction, can be polled as complete."""
        taken = self._not_taken.get(transfer_id, transfer_id)
        if taken is not None:
            self.engine.wait(taken)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for a layer: True once it is there, False if it failed. Raises: BadArgument."""
        if not isinstance(self.engine, LayerwiseEngine):
            raise BadArgument("engine", "has no wait_layer; poll until the transfer has settled")
        if transfer_id in self._handed_over and self.give_up(transfer_id):
            return False
        # An engine answers True for orders that it does not know.
        return transfer_id not in self._not_taken and self.engine.wait_layer(transfer_id, layer)
