"""The bridge between the native core and an engine of copies.

The core knows slots, not bytes. The bridge combines the core's transfers with the pools that have
the bytes, and passes them to the engine.
"""

from __future__ import annotations

import logging

from attrs import field, frozen

from kvcanon.optimized.codes import COMPONENTS, DIRECTIONS
from kvcanon.optimized.page_transfer import (
    LayerwiseEngine,
    Move,
    SlotArray,
    StreamEngine,
    page_order,
)
from kvcanon.optimized.pools import Pools
from kvcanon.spec.errors import BadArgument, SpecViolation
from kvcanon.spec.transfer import Direction, TransferEngine
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)


@frozen(eq=False)
class TransferBridge:
    """An engine and the pools that it copies between, with the methods that the core calls.

    If the engine raises in `submit`, it did not take the order. The error is logged, and the core
    gets a failed completion: an insert has handed its slots over by then and cannot be refused any
    more.
    """

    engine: TransferEngine
    pools: Pools
    _last_taken: dict[Direction, TransferId] = field(factory=dict, init=False)
    _not_taken: dict[TransferId, TransferId | None] = field(factory=dict, init=False)
    """Orders that the engine refused, each with the last order before it that the engine took."""
    _failed: list[TransferId] = field(factory=list, init=False)
    """Refused orders that the core has not polled yet."""

    def submit(
        self,
        transfer_id: TransferId,
        direction: int,
        moves: list[tuple[int, SlotArray, SlotArray]],
        after: object = None,
    ) -> None:
        """Submit an order to the engine. Raises: SpecViolation, if the engine does."""
        way = DIRECTIONS[direction]
        named = tuple(Move(COMPONENTS[number], *slots) for number, *slots in moves)
        try:
            self.engine.submit(page_order(transfer_id, way, named, self.pools, after))
        except SpecViolation:
            raise
        except Exception:
            logger.exception("the engine did not take %s %d", way, transfer_id)
            self._not_taken[transfer_id] = self._last_taken.get(way)
            self._failed.append(transfer_id)
        else:
            self._last_taken[way] = transfer_id

    def event_after(self, point: object) -> object:
        """Return what `submit` takes as `after`. Raises: BadArgument."""
        if not isinstance(self.engine, StreamEngine):
            raise BadArgument(
                "after", "is given, and the engine has no streams; leave it out for pools on a CPU"
            )
        return self.engine.event_after(point)

    def poll(self) -> list[tuple[TransferId, bool]]:
        """Return completions since the last call, and failures of refused orders."""
        completed = [(done.transfer_id, done.ok) for done in self.engine.poll()]
        completed += ((transfer_id, False) for transfer_id in self._failed)
        self._failed.clear()
        return completed

    def wait(self, transfer_id: TransferId) -> None:
        """Return once the order, and all before it in its direction, can be polled as complete."""
        taken = self._not_taken.get(transfer_id, transfer_id)
        if taken is not None:
            self.engine.wait(taken)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for a layer: True once it is there, False if it failed. Raises: BadArgument."""
        if not isinstance(self.engine, LayerwiseEngine):
            raise BadArgument("engine", "has no wait_layer; poll until the transfer has settled")
        # An engine answers True for orders that it does not know.
        return transfer_id not in self._not_taken and self.engine.wait_layer(transfer_id, layer)
