"""The engine of one rank, whose copies end at moments of their own."""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.transfer import TransferOrder
from kvcanon.spec.types import TransferId

Fails = Callable[[int, TransferId], bool]
"""Takes the place of an order among all of its rank, and its id: whether its copy fails there."""


class RankEngine(ManualEngine):
    """The engine of one rank: a copy that is waited for ends as it does on this rank."""

    def __init__(self, fails: Fails) -> None:
        super().__init__()
        self._fails = fails
        self.order: dict[TransferId, int] = {}
        """The place of each order among all of this rank."""

    def begin(self) -> None:
        """Begin an operation, before which nothing was asked of the engine."""
        self.orders.clear()
        self.waits.clear()

    def submit(self, order: TransferOrder) -> None:
        """Accept an order."""
        self.order[order.transfer_id] = len(self.order)
        super().submit(order)

    def end(self, transfer_id: TransferId) -> None:
        """Let an order end, unless it has."""
        if transfer_id in self.open_transfer_ids:
            (self.fail if self._fails(self.order[transfer_id], transfer_id) else self.acknowledge)(
                transfer_id
            )

    def wait(self, transfer_id: TransferId) -> None:
        """End the order, and all open orders before it in its direction."""
        self.waits.append(transfer_id)
        orders = {each.transfer_id: each for each in self.open_orders}
        last = orders.get(transfer_id)
        for each in orders.values() if last is not None else ():
            if last is not None and each.direction is last.direction:
                self.end(each.transfer_id)
            if each is last:
                return
