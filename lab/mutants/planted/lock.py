"""Faults of locks: what they hold, for how long, and what an unlock releases.

A lock that holds too much is a fault too: data that is never unlocked leaks.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import cache, departures, insert, lock, slots, transfer, tree, victims
from kvcanon.reference.state import Data, Hold, Node, State
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component


@mutant("LOCK-1", "A7 sgl#27038")
def release_walks_to_the_root(patch: Overrides) -> None:
    """A release lowers window lock refs up to the root, beyond the window that its lock covered."""
    release_window = lock._release_window

    def walking(held: Hold) -> None:
        if held.window_from is not None:
            held.window_from = 0
        release_window(held)

    patch.setattr(lock, "_release_window", walking)


@mutant("LOCK-2", "A11 sgl#28161")
def early_release_keeps_the_state(patch: Overrides) -> None:
    """unlock_window releases the window data, and not the mamba state."""

    def keeping(state: State, receipt: Receipt) -> None:
        held = lock._open_hold(state, receipt)
        state_held, held.state_held = held.state_held, False
        lock._release_window(held)
        held.state_held = state_held

    patch.setattr(cache, "unlock_window", keeping)


@mutant("LOCK-3", "A6 sgl#24153")
def cut_forgets_locks(patch: Overrides) -> None:
    """When a locked node is cut, its upper part is not locked."""
    cut_data = tree._cut_data

    def forgetting(node: Node, component: Component, at: int) -> Data:
        upper = cut_data(node, component, at)
        upper.lock_refs = 0
        return upper

    patch.setattr(tree, "_cut_data", forgetting)


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
def healing_replaces_full_slots(patch: Overrides) -> None:
    """An insert that brings window data for a tombstone also replaces its full slots."""
    merge = insert._merge

    def replacing(state: State, node: Node, incoming: insert._Incoming, tick: int) -> None:
        healed = SWA in node.data and node.data[SWA].device is None
        brought = max(incoming.full_from, incoming.swa_from) <= node.start
        present = node.data[FULL].device is not None
        merge(state, node, incoming, tick)
        if present and healed and brought:
            _exchange_full(state, node, incoming)

    patch.setattr(insert, "_merge", replacing)


def _exchange_full(state: State, node: Node, incoming: insert._Incoming) -> None:
    """Give a node the slots that an insert brought and has just freed, in place of its own."""
    fresh, pool = incoming.full(node.start, node.end), state.pools[FULL, GPU]
    pool.returned = [slot for slot in pool.returned if slot not in fresh]
    slots.drop(state, node, FULL, GPU)
    slots.place(state, node, FULL, GPU, fresh)
    slots.pair(state, fresh, node.data[SWA].device or ())


@mutant("LOCK-5", "B4 sgl#38480")
def cut_takes_the_copys_lock_down(patch: Overrides) -> None:
    """When a node is cut during its copy, only the lower part keeps the copy's lock."""
    cut_data = tree._cut_data

    def forgetting(node: Node, component: Component, at: int) -> Data:
        upper = cut_data(node, component, at)
        upper.lock_refs -= upper.backing is not None
        return upper

    patch.setattr(tree, "_cut_data", forgetting)


@mutant("LOCK-6", "A21 sgl#26919")
def lock_does_not_cut(patch: Overrides) -> None:
    """A lock does not cut the node where its window begins, and locks only the nodes after it."""
    patch.setattr(lock, "cut_path_at", lambda *_: None)


@mutant("LOCK-6", "A8 sgl#24972")
def lock_skips_tombstones(patch: Overrides) -> None:
    """A lock skips tombstones, and so does its release, though some may be healed by then."""
    count_window = lock._count_window

    def skipping(held: Hold, change: int) -> None:
        count_window(held, change)
        if held.window_from is not None:
            for node in tree.upwards(held.node):
                if node.start >= held.window_from and node.data[SWA].device is None:
                    node.data[SWA].lock_refs -= change

    patch.setattr(lock, "_count_window", skipping)


@mutant("LOCK-3", "D14 lmc#1756")
def last_release_leaves_a_lock(patch: Overrides) -> None:
    """An unlock releases the window data and the state, and not the full data."""

    def leaking(state: State, held: Hold) -> None:
        lock._release_window(held)
        del state.holds[held.receipt.receipt_id]

    patch.setattr(lock, "release_hold", leaking)


@mutant("LOCK-8")
def unlock_keeps_the_window(patch: Overrides) -> None:
    """An unlock releases the full data only."""
    patch.setattr(lock, "_release_window", lambda held: None)


@mutant("LOCK-8", "A9 sgl#36350")
def early_release_is_not_noted(patch: Overrides) -> None:
    """After unlock_window, unlock releases the window data again, which others may have locked."""
    patch.setattr(lock, "_release_window", lambda held: lock._count_window(held, -1))


@mutant("LOCK-8", "D13 lmc#4133")
def any_receipt_will_do(patch: Overrides) -> None:
    """An unlock with a receipt that is closed releases the newest lock instead."""
    open_hold = lock._open_hold

    def lenient(state: State, receipt: Receipt) -> Hold:
        if receipt.receipt_id in state.holds or not state.holds:
            return open_hold(state, receipt)
        return next(reversed(state.holds.values()))

    patch.setattr(lock, "_open_hold", lenient)


@mutant("LOCK-9", "A10 sgl#27147")
def lock_skips_a_lost_state(patch: Overrides) -> None:
    """A lock of a node without a mamba state does not lock the state that may come later."""
    count_window = lock._count_window

    def skipping(held: Hold, change: int) -> None:
        if held.state_held and held.node.data[MAMBA].device is None and change > 0:
            held.state_held = False
        count_window(held, change)

    patch.setattr(lock, "_count_window", skipping)


@mutant("LOCK-10", "A8 sgl#36848")
def copy_releases_whoever_holds_its_node(patch: Overrides) -> None:
    """When a copy is done, the oldest lock on its node is released, whose ever it is."""
    release_hold = lock.release_hold

    def by_node(state: State, held: Hold) -> None:
        release_hold(state, next(each for each in state.holds.values() if each.node is held.node))

    patch.setattr(transfer, "release_hold", by_node)
