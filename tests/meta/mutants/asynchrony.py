"""Faults of copies in flight: their order, their failures, and what they hold.

What readers get wrong: that a copy is done when it is enqueued.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    cache,
    transfer,
    tree,
)
from kvcanon.reference.state import Data, Node, State
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    CPU,
    GPU,
    Component,
    TransferId,
)
from meta.mutants.entry import mutant


@mutant("ASYNC-3", "B3 sgl#16946")
def cut_forgets_copies_in_flight(patch: Overrides) -> None:
    """The upper part of a node that is being copied is not a part of the copy."""

    def careless(state: State, upper: Node, lower: Node, component: Component, data: Data) -> None:
        for medium in (GPU, CPU):
            if data.slots(medium) is not None:
                state.owners[component, medium][upper] = None

    patch.setattr(tree, "_follow_cut", careless)


@mutant("ASYNC-1")
def settle_as_they_come(patch: Overrides) -> None:
    """Acknowledgements are taken in the order in which they arrive."""

    def hasty(
        state: State, direction: Direction | None = None
    ) -> tuple[tuple[TransferId, TransferStatus], ...]:
        settled = []
        for completion in state.engine.poll():
            arrived = state.transfers[completion.transfer_id]
            status = transfer._settle_one(state, arrived, ok=completion.ok)
            settled.append((completion.transfer_id, status))
        return tuple(settled)

    patch.setattr(cache, "settle", hasty)


@mutant("ASYNC-5", "B2 sgl#27108")
def failure_cancels_nothing(patch: Overrides) -> None:
    """Copies that build on a failed one go on."""
    patch.setattr(transfer, "_builds_on", lambda later, failed: False)
