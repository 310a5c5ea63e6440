"""Policies: variations of a choice that a profile leaves to its cache as a whole.

Each is a design that is in production somewhere. The laws of soundness and of serving judge it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from attrs import evolve

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import lone_variation
from kvcanon.lab.variants.wrapped_rules import Original, around, instead, wrap
from kvcanon.reference import cache, lock, victims
from kvcanon.reference import insert as inserts
from kvcanon.reference import match as matching
from kvcanon.reference.backup import back_up
from kvcanon.reference.evict import evict
from kvcanon.reference.slots import free
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import path_to, walk
from kvcanon.spec.operations import Inserted, Receipt
from kvcanon.spec.types import FULL, GPU, Component, Counts, Key, Slots

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
    """An eviction takes the leaf that the policy of the configuration puts last."""
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
@instead(inserts._back_up_hit_nodes)
def backups_at_the_first_hit(state: State, end: Node) -> tuple[int, ...]:
    """An insert backs up each node of its path at the first hit, whatever the policy says."""
    hit = [node for node in path_to(end)[::-1] if node.hit_count]
    return back_up(state, hit[0]) if state.config.backup_hits is not None and hit else ()


@lone_variation
def seen_twice_is_admitted(overrides: Overrides) -> None:
    """An insert adds new pages at the second insert of their key only, as TinyLFU does."""
    seen: WeakKeyDictionary[State, set[Key]] = WeakKeyDictionary()

    def insert_or_free(
        insert: Original[Inserted],
        state: State,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int,
        priority: int,
        state_pages: tuple[int, ...],
    ) -> Inserted:
        known = seen.setdefault(state, set())
        inserts._check_call(state, key, start_pages, slots, counted_pages, state_pages=state_pages)
        walked = walk(state, key)
        inserts._check_path(walked, start_pages)
        there = max(start_pages, sum(shared for _, shared in walked))
        if key in known or there == len(key):
            return insert(
                state,
                key,
                start_pages,
                slots,
                counted_pages=counted_pages,
                priority=priority,
                state_pages=state_pages,
            )
        known.add(key)
        swa_from = len(key) - len(slots.swa)
        kept = Slots(slots.full[: there - start_pages], slots.swa[: max(0, there - swa_from)])
        rest = Slots(slots.full[len(kept.full) :], slots.swa[len(kept.swa) :], slots.mamba)
        free(state, rest)
        prefix, counted = key.prefix(there), min(counted_pages, there)
        done = insert(state, prefix, start_pages, kept, counted_pages=counted, priority=priority)
        freed = Counts(*[done.freed[each] + len(rest[each]) for each in Component])
        return evolve(done, freed=freed)

    wrap(overrides, cache, inserts.insert, insert_or_free)


@lone_variation
@around(State.__attrs_post_init__, State)
def padding_slot(begin: Original[None], state: State) -> None:
    """The first full slot is for padding, and never handed out, as in SGLang."""
    begin(state)
    pool = state.pools[FULL, GPU]
    pool.untouched = min(1, pool.capacity)
