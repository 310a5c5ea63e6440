"""The engine of one rank, whose copies end at moments of their own."""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.reference.engine import ManualEngine, WaitEnd
from kvcanon.spec.errors import EngineRaised
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
        """Begin an operation, with no engine calls noted yet."""
        self.orders.clear()
        self.waits.clear()
        self.broke_off = None

    def submit(self, order: TransferOrder) -> None:
        """Accept an order."""
        self.order[order.transfer_id] = len(self.order)
        super().submit(order)

    def end(self, transfer_id: TransferId) -> None:
        """Let an order end, unless it has ended."""
        if transfer_id in self.open_transfer_ids:
            (self.fail if self._fails(self.order[transfer_id], transfer_id) else self.acknowledge)(
                transfer_id
            )

    def wait(self, transfer_id: TransferId) -> None:
        """End the order, and all open orders before it in its direction.

        An order of this operation is open on every rank: so `next_wait` is about these, and one
        wait is broken off, or one copy fails, on all ranks or on none. Raises: EngineRaised.
        """
        self.waits.append(transfer_id)
        last = next((each for each in self.open_orders if each.transfer_id == transfer_id), None)
        if last is None:
            return
        end = WaitEnd.DONE
        if last in self.orders:
            end, self.wait_end = self.wait_end, WaitEnd.DONE
        if end is WaitEnd.BROKEN_OFF:
            self.broke_off = transfer_id
            raise EngineRaised("the engine broke off a wait")
        for each in self.open_orders:
            if each is last and end is WaitEnd.FAILED:
                self.fail(transfer_id)
            elif each.direction is last.direction:
                self.end(each.transfer_id)
            if each is last:
                return
