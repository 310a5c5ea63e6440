"""Engines that perform copies in plain Python: at the next poll, or when the caller says so.

An engine may complete its orders in any order. The cache settles them in the order in which it
enqueued them.
"""

from __future__ import annotations

from enum import StrEnum

from kvcanon.spec.errors import BadArgument, EngineRaised
from kvcanon.spec.transfer import Completion, TransferOrder
from kvcanon.spec.types import TransferId


class WaitEnd(StrEnum):
    """How a wait of a cache for its engine ends."""

    DONE = "done"
    FAILED = "failed"
    """The copy that is waited for fails."""
    BROKEN_OFF = "broken_off"
    """The engine raises, and the copy is still open."""


class ManualEngine:
    """Performs, acknowledges or fails each copy when the caller says so.

    If the cache waits for an order that is still open, it is performed and acknowledged then.
    """

    def __init__(self) -> None:
        self._open: dict[TransferId, TransferOrder] = {}
        self._performed: set[TransferId] = set()
        self._completions: list[Completion] = []
        self.ended: dict[TransferId, bool] = {}
        """How each order ended: True if it was performed."""
        self.orders: list[TransferOrder] = []
        """The orders that were submitted, until somebody clears the list."""
        self.waits: list[TransferId] = []
        """The orders that the cache waited for, likewise."""
        self.broke_off: TransferId | None = None
        """The order whose wait was broken off last, until somebody clears it."""
        self.wait_end = WaitEnd.DONE
        """How the next wait for an open order ends."""

    @property
    def open_orders(self) -> tuple[TransferOrder, ...]:
        """Orders that neither completed nor failed, in the order in which they were submitted."""
        return tuple(self._open.values())

    @property
    def open_transfer_ids(self) -> tuple[TransferId, ...]:
        """The ids of the open orders."""
        return tuple(self._open)

    def perform(self, transfer_id: TransferId) -> None:
        """Copy the bytes now, without an acknowledgement. Raises: BadArgument."""
        order = self._order(transfer_id)
        if transfer_id not in self._performed:
            order.perform()
            self._performed.add(transfer_id)

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Perform the copy, and let the next poll report it as done. Raises: BadArgument."""
        self.perform(transfer_id)
        self._complete(transfer_id, ok=True)

    def fail(self, transfer_id: TransferId) -> None:
        """Let the next poll report that the copy failed. Raises: BadArgument."""
        self._order(transfer_id)
        self._complete(transfer_id, ok=False)

    def next_wait(self, end: str) -> None:
        """Say how the next wait for an open order ends; one of `WaitEnd`."""
        self.wait_end = WaitEnd(end)

    def submit(self, order: TransferOrder) -> None:
        """Accept an order; nothing happens yet."""
        self.orders.append(order)
        self._open[order.transfer_id] = order
        self.ended.pop(order.transfer_id, None)

    def poll(self) -> tuple[Completion, ...]:
        """The completions since the last poll, in the order in which the caller caused them."""
        completions, self._completions = tuple(self._completions), []
        return completions

    def wait(self, transfer_id: TransferId) -> None:
        """Acknowledge the order, and all open orders before it in its direction.

        Raises: EngineRaised: `next_wait` said so; then all stay open.
        """
        self.waits.append(transfer_id)
        order = self._open.get(transfer_id)
        if order is None:
            return
        end, self.wait_end = self.wait_end, WaitEnd.DONE
        if end is WaitEnd.BROKEN_OFF:
            self.broke_off = transfer_id
            raise EngineRaised("the engine broke off a wait")
        for each in self.open_orders:
            if each is order and end is WaitEnd.FAILED:
                self.fail(each.transfer_id)
            elif each.direction is order.direction:
                self.acknowledge(each.transfer_id)
            if each is order:
                return

    def _order(self, transfer_id: TransferId) -> TransferOrder:
        if transfer_id not in self._open:
            raise BadArgument("transfer_id", f"is {transfer_id}, which is no open order")
        return self._open[transfer_id]

    def _complete(self, transfer_id: TransferId, *, ok: bool) -> None:
        del self._open[transfer_id]
        self._performed.discard(transfer_id)
        self._completions.append(Completion(transfer_id, ok))
        self.ended[transfer_id] = ok


class InlineEngine:
    """Performs every copy at the next poll; copies do not overlap with anything."""

    def __init__(self) -> None:
        self._open: list[TransferOrder] = []

    def submit(self, order: TransferOrder) -> None:
        """Accept an order."""
        self._open.append(order)

    def poll(self) -> tuple[Completion, ...]:
        """Perform and complete all orders."""
        orders, self._open = self._open, []
        for order in orders:
            order.perform()
        return tuple(Completion(order.transfer_id, ok=True) for order in orders)

    def wait(self, transfer_id: TransferId) -> None:
        """Nothing to wait for: the next poll completes every order."""
