"""Faults of ageing: operations that refresh recency without using the data."""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.wrapped_rules import instead
from kvcanon.reference import cache, load, lock, match, tree
from kvcanon.reference.state import State
from kvcanon.spec.operations import LoadedBack, Receipt
from kvcanon.spec.types import SWA, Key


@mutant("REC-7")
@instead(load.load_back, cache)
def load_makes_recent(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
    """A load-back makes the nodes that it loads recent."""
    loaded = load.load_back(state, key, quota_pages)
    if loaded.transfer_id is not None:
        node = state.transfers[loaded.transfer_id].parts[-1][0]
        match.touch(state, node, state.tick())
    return loaded


@mutant("REC-7", "A3 sgl#26615")
@instead(lock.lock, cache)
def lock_makes_windows_recent(state: State, key: Key) -> Receipt:
    """A lock makes all window data of its path the most recent."""
    receipt = lock.lock(state, key)
    tick = state.tick()
    for node in tree.upwards(state.holds[receipt.receipt_id].node):
        if SWA in node.data:
            node.data[SWA].used = tick
    return receipt
