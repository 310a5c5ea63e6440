"""Locks: protect data from eviction while a request or a transfer uses it.

A hold covers full data from a node up to the root, window data from a page on, and the mamba state
at the node. The path is cut where the window begins, so that exactly the window is held.

A release does not walk the tree again to decide what to release: it undoes what its hold recorded,
even if data was evicted, healed, loaded or cut since.
"""

from __future__ import annotations

from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.reference.tree import cut_path_at, node_ending_at, require, upwards
from kvcanon.spec.errors import ReceiptSpent
from kvcanon.spec.operations import Receipt
from kvcanon.spec.oracle.window import in_window, window_start
from kvcanon.spec.types import FULL, MAMBA, SWA, Key


def lock(state: State, key: Key) -> Receipt:
    """Hold a cached key for a request."""
    end = node_ending_at(state, require(state, key), len(key))
    return hold(state, end, key, held_window_start(state, end)).receipt


def unlock(state: State, receipt: Receipt) -> None:
    """Release all that a request's receipt still holds."""
    release_hold(state, _open_hold(state, receipt))


def unlock_window(state: State, receipt: Receipt) -> None:
    """Release window data and mamba state; full data stays held."""
    _release_window(_open_hold(state, receipt))


def held_window_start(state: State, end: Node) -> int | None:
    """The first page whose window data a hold on `end` covers; None without a window."""
    if state.config.window_tokens is None:
        return None
    return window_start(end.end, state.config.window_tokens, state.config.page_size)


def hold(
    state: State, end: Node, key: Key, window_from: int | None, transfer: Transfer | None = None
) -> Hold:
    """Open a hold on a node, with a receipt of its own."""
    if window_from is not None:
        cut_path_at(state, end, window_from)
    receipt = Receipt(state.new_id(), key)
    opened = Hold(receipt, end, window_from, state.config.mamba, transfer)
    _count(opened, 1)
    _count_window(opened, 1)
    state.holds[receipt.receipt_id] = opened
    return opened


def release_hold(state: State, held: Hold) -> None:
    """Release all that a hold still covers, and close its receipt."""
    _release_window(held)
    _count(held, -1)
    del state.holds[held.receipt.receipt_id]


def _open_hold(state: State, receipt: Receipt) -> Hold:
    held = state.holds.get(receipt.receipt_id)
    if held is None or held.transfer is not None or held.receipt != receipt:
        raise ReceiptSpent(receipt.receipt_id)
    return held


def _release_window(held: Hold) -> None:
    _count_window(held, -1)
    held.window_from, held.state_held = None, False


def _count(held: Hold, change: int) -> None:
    for node in upwards(held.node):
        node.data[FULL].lock_refs += change


def _count_window(held: Hold, change: int) -> None:
    if held.window_from is not None:
        for node in upwards(held.node):
            if not in_window(node.start, held.window_from):
                break
            node.data[SWA].lock_refs += change
    if held.state_held and held.node.parent is not None:
        held.node.data[MAMBA].lock_refs += change
