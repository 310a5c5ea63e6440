"""An engine that copies nothing, so that what is timed is the cache, and not its copies."""

from __future__ import annotations

from collections.abc import Callable

from attrs import Factory, define, field

from kvcanon.spec.transfer import Completion, TransferOrder
from kvcanon.spec.types import TransferId


@define
class InstantEngine:
    """Completes orders at once, without copying: what is timed is the cache.

    While `holds_back` is set orders stay open; an order fails if `fails` says so of its id.
    """

    holds_back: bool = False
    fails: Callable[[TransferId], bool] = lambda _: False
    open: list[TransferId] = Factory(list)
    taken: int = 0
    """How many orders there were."""
    _ended: list[Completion] = field(factory=list, init=False)

    def submit(self, order: TransferOrder) -> None:
        """Accept an order."""
        self.open.append(order.transfer_id)
        self.taken += 1

    def poll(self) -> tuple[Completion, ...]:
        """Return the completions that were made by `complete`, or now."""
        self.complete()
        ended, self._ended = self._ended, []
        return tuple(ended)

    def complete(self) -> None:
        """Make the completions of all orders, unless they are held back."""
        if self.open and not self.holds_back:
            self._ended += [Completion(each, not self.fails(each)) for each in self.open]
            self.open = []

    def wait(self, transfer_id: TransferId) -> None:
        """Let the next poll complete all orders."""
        self.holds_back = self.holds_back and transfer_id not in self.open
