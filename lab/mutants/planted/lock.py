"""Faults of locks: what they hold, for how long, and what an unlock releases.

A lock that holds too much is a fault too: data that is never unlocked leaks.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, departures, insert, lock, slots, transfer, tree, victims
from kvcanon.reference.state import Data, Hold, Node, State
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component


@mutant("LOCK-1", "A7 sgl#27038")
@around(lock._release_window)
def release_walks_to_the_root(release_window: Original[None], held: Hold) -> None:
    """A release lowers window lock refs up to the root, beyond the window that its lock covered."""
    if held.window_from is not None:
        held.window_from = 0
    release_window(held)


@mutant("LOCK-2", "A11 sgl#28161")
@instead(lock.unlock_window, cache)
def early_release_keeps_the_state(state: State, receipt: Receipt) -> None:
    """unlock_window releases the window data, and not the mamba state."""
    held = lock._open_hold(state, receipt)
    state_held, held.state_held = held.state_held, False
    lock._release_window(held)
    held.state_held = state_held


@mutant("LOCK-3", "A6 sgl#24153")
@around(tree._cut_data)
def cut_forgets_locks(cut_data: Original[Data], node: Node, component: Component, at: int) -> Data:
    """When a locked node is cut, its upper part is not locked."""
    upper = cut_data(node, component, at)
    upper.lock_refs = 0
    return upper


@mutant("LOCK-4", "D17 trt#12667")
def evict_locked_leaves(patch: Overrides) -> None:
    """An eviction takes leaves that a running request has locked."""

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
    patch.setattr(departures, "remove_leaf", unlink)


@mutant("LOCK-4", "A13 sgl#29352")
@around(insert._merge)
def healing_replaces_full_slots(
    merge: Original[None], state: State, node: Node, incoming: insert._Incoming, tick: int
) -> None:
    """An insert that brings window data for a tombstone also replaces its full slots."""
    healed = SWA in node.data and node.data[SWA].device is None
    brought = max(incoming.full_from, incoming.swa_from) <= node.start
    present = node.data[FULL].device is not None
    merge(state, node, incoming, tick)
    if present and healed and brought:
        _exchange_full(state, node, incoming)


def _exchange_full(state: State, node: Node, incoming: insert._Incoming) -> None:
    """Give a node the slots that an insert brought and has just freed, in place of its own."""
    fresh, pool = incoming.full(node.start, node.end), state.pools[FULL, GPU]
    pool.returned = [slot for slot in pool.returned if slot not in fresh]
    slots.drop(state, node, FULL, GPU)
    slots.place(state, node, FULL, GPU, fresh)
    slots.pair(state, fresh, node.data[SWA].device or ())


@mutant("LOCK-5", "B4 sgl#38480")
@around(tree._cut_data)
def cut_takes_the_copys_lock_down(
    cut_data: Original[Data], node: Node, component: Component, at: int
) -> Data:
    """When a node is cut during its copy, only the lower part keeps the copy's lock."""
    upper = cut_data(node, component, at)
    upper.lock_refs -= upper.backing is not None
    return upper


@mutant("LOCK-6", "A21 sgl#26919")
def lock_does_not_cut(patch: Overrides) -> None:
    """A lock does not cut the node where its window begins, and locks only the nodes after it."""
    patch.setattr(lock, "cut_path_at", lambda *_: None)


@mutant("LOCK-6", "A8 sgl#24972")
@around(lock._count_window)
def lock_skips_tombstones(count_window: Original[None], held: Hold, change: int) -> None:
    """A lock skips tombstones, and so does its release, though some may be healed by then."""
    count_window(held, change)
    if held.window_from is not None:
        for node in tree.upwards(held.node):
            if node.start >= held.window_from and node.data[SWA].device is None:
                node.data[SWA].lock_refs -= change


@mutant("LOCK-3", "D14 lmc#1756")
@instead(lock.release_hold)
def last_release_leaves_a_lock(state: State, held: Hold) -> None:
    """An unlock releases the window data and the state, and not the full data."""
    lock._release_window(held)
    del state.holds[held.receipt.receipt_id]


@mutant("LOCK-8")
def unlock_keeps_the_window(patch: Overrides) -> None:
    """An unlock releases the full data only."""
    patch.setattr(lock, "_release_window", lambda held: None)


@mutant("LOCK-8", "A9 sgl#36350")
def early_release_is_not_noted(patch: Overrides) -> None:
    """After unlock_window, unlock releases the window data again, which others may have locked."""
    patch.setattr(lock, "_release_window", lambda held: lock._count_window(held, -1))


@mutant("LOCK-8", "D13 lmc#4133")
@around(lock._open_hold)
def any_receipt_will_do(open_hold: Original[Hold], state: State, receipt: Receipt) -> Hold:
    """An unlock with a receipt that is closed releases the newest lock instead."""
    if receipt.receipt_id in state.holds or not state.holds:
        return open_hold(state, receipt)
    return next(reversed(state.holds.values()))


@mutant("LOCK-9", "A10 sgl#27147")
@around(lock._count_window)
def lock_skips_a_lost_state(count_window: Original[None], held: Hold, change: int) -> None:
    """A lock of a node without a mamba state does not lock the state that may come later."""
    if held.state_held and held.node.data[MAMBA].device is None and change > 0:
        held.state_held = False
    count_window(held, change)


@mutant("LOCK-10", "A8 sgl#36848")
@around(lock.release_hold, transfer)
def copy_releases_whoever_holds_its_node(
    release_hold: Original[None], state: State, held: Hold
) -> None:
    """When a copy is done, the oldest lock on its node is released, whose ever it is."""
    release_hold(state, next(each for each in state.holds.values() if each.node is held.node))
