"""The courier: carries the tree's orders to an engine, and the engine's completions to the tree.

What readers get wrong: the tree does not know that there are bytes. It names slots; which bytes are
behind them, and who moves these, is settled here, once for each cache.
"""

from __future__ import annotations

from attrs import frozen

from kvcanon.optimized.orders import Move, PageOrder, SlotArray
from kvcanon.optimized.pools import Pools
from kvcanon.spec.transfer import Direction, TransferEngine
from kvcanon.spec.types import Component, TransferId

COMPONENTS = tuple(Component)
DIRECTIONS = tuple(Direction)


@frozen(eq=False)
class Courier:
    """An engine with the pools that it copies between, as the tree calls it."""

    engine: TransferEngine
    pools: Pools

    def submit(
        self,
        transfer_id: TransferId,
        direction: int,
        moves: list[tuple[int, SlotArray, SlotArray]],
    ) -> None:
        """Hand an order to the engine."""
        named = tuple(Move(COMPONENTS[number], *slots) for number, *slots in moves)
        self.engine.submit(PageOrder(transfer_id, DIRECTIONS[direction], named, self.pools))

    def poll(self) -> list[tuple[TransferId, bool]]:
        """What the engine completed since the last call."""
        return [(done.transfer_id, done.ok) for done in self.engine.poll()]

    def wait(self, transfer_id: TransferId) -> None:
        """Return once the order can be polled as complete."""
        self.engine.wait(transfer_id)
