"""An engine whose copies end at random times on each rank, and of which some fail."""

from __future__ import annotations

from random import Random
from time import monotonic

from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import TransferId

DELAY_MS = 4.0
"""The mean time after which an ended copy is reported."""


class FlakyEngine:
    """Copies in threads; reports each end later, and some as failures, each rank for itself."""

    def __init__(self, seed: int, fail_share: float) -> None:
        self._engine = ThreadedEngine()
        self._random = Random(seed)
        self._fail_share = fail_share
        self._directions: dict[TransferId, Direction] = {}
        self._held: dict[TransferId, tuple[float, bool]] = {}
        """Copies that ended: when each is reported, and whether as done."""
        self.failed = 0

    def submit(self, order: TransferOrder) -> None:
        """Queue an order."""
        self._directions[order.transfer_id] = order.direction
        self._engine.submit(order)

    def poll(self) -> tuple[Completion, ...]:
        """The copies that ended a while ago."""
        self._take()
        now = monotonic()
        due = [each for each, (when, _) in self._held.items() if when <= now]
        return tuple(self._report(each) for each in due)

    def wait(self, transfer_id: TransferId) -> None:
        """Wait for an order and those before it in its direction; the next poll reports them."""
        self._engine.wait(transfer_id)
        self._take()
        direction = self._directions.get(transfer_id)
        for each, (_, ok) in list(self._held.items()):
            if self._directions[each] is direction and each <= transfer_id:
                self._held[each] = 0.0, ok

    def close(self) -> None:
        """End the threads."""
        self._engine.close()

    def _take(self) -> None:
        for each in self._engine.poll():
            ok = each.ok and self._random.random() >= self._fail_share
            later = self._random.expovariate(1000 / DELAY_MS)
            self._held[each.transfer_id] = monotonic() + later, ok

    def _report(self, transfer_id: TransferId) -> Completion:
        _, ok = self._held.pop(transfer_id)
        del self._directions[transfer_id]
        self.failed += not ok
        return Completion(transfer_id, ok)
