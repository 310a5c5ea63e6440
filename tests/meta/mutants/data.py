"""Faults of bytes: what is in a slot is not what its key says.

What readers get wrong: that books in order mean bytes in order.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    load,
    lock,
    transfer,
    tree,
)
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import (
    Key,
)
from meta.mutants.entry import mutant


@mutant("DATA-2", "B1 sgl#27444")
def load_holds_nothing(patch: Overrides) -> None:
    """What a copy reads and writes may be evicted while it is in flight."""

    def elsewhere(state: State, end: Node, key: Key, window_from: int | None) -> Hold:
        if window_from is not None:
            tree.cut_path_at(state, end, window_from)
        return lock.hold(state, state.root, key, None)

    patch.setattr(load, "hold", elsewhere)


@mutant("DATA-1", "dynamo#15079")
def failure_counts_as_done(patch: Overrides) -> None:
    """A failed copy is taken for a good one."""
    settle_one = transfer._settle_one

    def blind(state: State, settling: Transfer, *, ok: bool) -> TransferStatus:
        return settle_one(state, settling, ok=True)

    patch.setattr(transfer, "_settle_one", blind)


@mutant("DATA-1", "D20 trt#8830")
def copy_moves_nothing(patch: Overrides) -> None:
    """A copy is acknowledged and no byte has moved."""
    patch.setattr(transfer, "_copy_slot", lambda *_: None)
