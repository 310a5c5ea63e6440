"""The bridge: carries the tree's orders to an engine, and the engine's completions to the tree.

What readers get wrong: the tree does not know that there are bytes. It names slots; which bytes are
behind them, and who moves these, is settled here, once for each cache.
"""

from __future__ import annotations

import logging

from attrs import field, frozen

from kvcanon.optimized.codes import COMPONENTS, DIRECTIONS
from kvcanon.optimized.page_transfer import LayerwiseEngine, Move, SlotArray, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.errors import BadArgument, SpecViolation
from kvcanon.spec.transfer import Direction, TransferEngine
from kvcanon.spec.types import TransferId

logger = logging.getLogger(__name__)


@frozen(eq=False)
class TransferBridge:
    """An engine with the pools that it copies between, as the tree calls it.

    An engine that raises when it is given an order has not taken it. That is logged, and the tree
    hears of a copy that failed: by then an insert has handed its slots over, so that it cannot be
    refused any more.
    """

    engine: TransferEngine
    pools: Pools
    _last_taken: dict[Direction, TransferId] = field(factory=dict, init=False)
    _not_taken: dict[TransferId, TransferId | None] = field(factory=dict, init=False)
    """With the last order that the engine took before it in its direction; failures are few."""
    _failed: list[TransferId] = field(factory=list, init=False)
    """Those of which the tree has not heard yet."""

    def submit(
        self,
        transfer_id: TransferId,
        direction: int,
        moves: list[tuple[int, SlotArray, SlotArray]],
    ) -> None:
        """Hand an order to the engine. Raises: SpecViolation, if the engine does."""
        way = DIRECTIONS[direction]
        named = tuple(Move(COMPONENTS[number], *slots) for number, *slots in moves)
        try:
            self.engine.submit(page_order(transfer_id, way, named, self.pools))
        except SpecViolation:
            raise
        except Exception:
            logger.exception("the engine did not take %s %d", way, transfer_id)
            self._not_taken[transfer_id] = self._last_taken.get(way)
            self._failed.append(transfer_id)
        else:
            self._last_taken[way] = transfer_id

    def poll(self) -> list[tuple[TransferId, bool]]:
        """What the engine completed since the last call, and what it did not take."""
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
        """Return once a layer is there, or never will be: which of the two. Raises: BadArgument."""
        if not isinstance(self.engine, LayerwiseEngine):
            raise BadArgument("engine", "has no wait_layer; poll until the transfer has settled")
        # An engine takes an order of which it knows nothing for one that ended well.
        return transfer_id not in self._not_taken and self.engine.wait_layer(transfer_id, layer)
