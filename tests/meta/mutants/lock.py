"""Faults of locks: what they hold, for how long, and what a release gives back.

What readers get wrong: that a lock which holds too much is safe: what is never given back is a
leak.
"""

from __future__ import annotations

from kvcanon.conformance.overriding import Overrides
from kvcanon.reference import (
    cache,
    evict,
    lock,
    transfer,
    tree,
    victims,
)
from kvcanon.reference.state import Data, Hold, Node, State
from kvcanon.spec.operations import Receipt
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    FULL,
    Component,
    TransferId,
)
from meta.mutants.entry import mutant


@mutant("LOCK-3", "A6 sgl#24153")
def cut_forgets_locks(patch: Overrides) -> None:
    """The upper part of a locked node is not locked."""
    cut_data = tree._cut_data

    def forgetting(node: Node, component: Component, at: int) -> Data:
        upper = cut_data(node, component, at)
        upper.lock_refs = 0
        return upper

    patch.setattr(tree, "_cut_data", forgetting)


@mutant("LOCK-8", "A9 sgl#36350")
def unlock_keeps_the_window(patch: Overrides) -> None:
    """A release gives back full data only."""
    patch.setattr(lock, "_release_window", lambda held: None)


@mutant("LOCK-6", "A21 sgl#26919")
def lock_does_not_cut(patch: Overrides) -> None:
    """The node in which the window begins is not cut: less than the window is held."""
    patch.setattr(lock, "cut_path_at", lambda *_: None)


@mutant("LOCK-4", "D17 trt#12667")
def evict_locked_leaves(patch: Overrides) -> None:
    """A leaf is evicted under a running request."""

    def careless(node: Node) -> bool:
        full = node.data[FULL]
        busy = any(data.loading or data.backing for data in node.data.values())
        parted = all(child.data[FULL].device is None for child in node.children.values())
        return node.parent is not None and full.device is not None and parted and not busy

    def unlink(state: State, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[tree.edge(node.parent, node.namespace, node.pages[0])]
        del state.nodes[node.node_id]

    patch.setattr(victims, "is_device_leaf", careless)
    patch.setattr(evict, "remove_leaf", unlink)


@mutant("LOCK-8", "A7 sgl#27038")
def any_receipt_will_do(patch: Overrides) -> None:
    """A receipt that was spent releases the newest hold instead."""
    open_hold = lock._open_hold

    def lenient(state: State, receipt: Receipt) -> Hold:
        if receipt.receipt_id in state.holds or not state.holds:
            return open_hold(state, receipt)
        return next(reversed(state.holds.values()))

    patch.setattr(lock, "_open_hold", lenient)


@mutant("LOCK-10", "A8 sgl#24972")
def poll_closes_a_receipt(patch: Overrides) -> None:
    """Taking acknowledgements releases a lock of a request."""

    def careless(
        state: State, direction: Direction | None = None
    ) -> tuple[tuple[TransferId, TransferStatus], ...]:
        settled = transfer.settle(state, direction)
        of_requests = [held for held in state.holds.values() if held.transfer is None]
        if of_requests:
            lock.release_hold(state, of_requests[0])
        return settled

    patch.setattr(cache, "settle", careless)
