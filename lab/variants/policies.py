"""Policies: variations of a choice that a profile leaves to its cache as a whole.

Each is a design that is in production somewhere. The laws of soundness and of serving judge it.
"""

from __future__ import annotations

from kvcanon.lab.variants.registry import lone_variation
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, insert, lock, victims
from kvcanon.reference import match as matching
from kvcanon.reference.backup import back_up
from kvcanon.reference.evict import evict
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import path_to
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import Component, Counts, Key

BATCH = 4
"""An eviction in batches frees one slot of so many."""


@lone_variation
@around(evict, cache)
def evictions_in_batches(evict: Original[Counts], state: State, counts: Counts) -> Counts:
    """An eviction for any slots of a pool goes on until a quarter of the pool is free."""
    pools = state.config.device_slots
    batch = [max(counts[each], pools[each] // BATCH) if counts[each] else 0 for each in Component]
    return evict(state, Counts(*batch))


@lone_variation
@around(victims.rank)
def latest_first(rank: Original[tuple[int, int]], state: State, node: Node) -> tuple[int, int]:
    """An eviction takes the leaf that the policy of the configuration ranks last."""
    first, second = rank(state, node)
    return -first, -second


@lone_variation
@around(lock.lock, cache)
def recent_at_lock(lock: Original[Receipt], state: State, key: Key) -> Receipt:
    """A lock makes its prefix recent, too."""
    receipt = lock(state, key)
    matching.touch(state, state.holds[receipt.receipt_id].node, state.tick())
    return receipt


@lone_variation
@around(lock.unlock, cache)
def recent_at_release(unlock: Original[None], state: State, receipt: Receipt) -> None:
    """A prefix also becomes recent when its request releases it, as in vLLM's free queue."""
    held = state.holds.get(receipt.receipt_id)
    unlock(state, receipt)
    if held is not None:
        matching.touch(state, held.node, state.tick())


@lone_variation
@instead(insert._back_up_hit_nodes)
def backups_at_the_first_hit(state: State, end: Node) -> tuple[int, ...]:
    """An insert backs up each node of its path at the first hit, whatever the policy says."""
    hit = [node for node in path_to(end)[::-1] if node.hit_count]
    return back_up(state, hit[0]) if state.config.backup_hits is not None and hit else ()
