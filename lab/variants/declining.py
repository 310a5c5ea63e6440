"""Declining: variations that refuse calls early or for another reason, or take less of a store.

The plain cache evicts first and then checks whether that freed enough. A cache may also check
first, and so keep more. Both are lawful, as no page is promised to stay.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kvcanon.lab.variants.registry import lone_variation, variation
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.reference import backup, cache, evict, host, insert, load, tier
from kvcanon.reference.lock import held_window_start, hold, release_hold
from kvcanon.reference.slots import free_slot_counts
from kvcanon.reference.state import OpenOrder, State
from kvcanon.reference.tree import node_ending_at, require, walk, walked_pages
from kvcanon.spec.errors import SlotNotHeld
from kvcanon.spec.operations import Inserted, LoadDecision, LoadedBack
from kvcanon.spec.types import CPU, GPU, Component, Counts, Key, Slot, Slots, shortage

Evict = Callable[[State, Counts], Counts]
MakeRoom = Callable[[State, Counts], bool]
LoadBack = Callable[[State, Key, int | None], LoadedBack]


@variation
@around(evict.evict, load)
def impossible_loads_declined_first(usual: Evict, state: State, short: Counts) -> Counts:
    """A load that would not fit even if everything unlocked were evicted evicts nothing."""
    components = state.config.components
    helps = all(short[each] <= _unlocked_slots(state, each) for each in components)
    return usual(state, short) if helps else Counts()


# By itself: what it needs to know before it loads, other variations change.
@lone_variation
@around(load.load_back, cache)
def leading_pages_loaded(usual: LoadBack, state: State, key: Key, quota: int | None) -> LoadedBack:
    """A load for whose key there is no room loads the leading pages that fit."""
    needed = load._needed(state, require(state, key), len(key))
    if load._decide(state, needed, quota) or _there_can_be_room(state, key):
        return usual(state, key, quota)
    for pages in range(len(key) - 1, 0, -1):
        if _there_can_be_room(state, key.prefix(pages)):
            part = usual(state, key.prefix(pages), quota)
            if part.decision is LoadDecision.ENQUEUED:
                return evolve(part, pages=pages)
            break  # Fewer pages are worth less.
    return LoadedBack(LoadDecision.NO_ROOM)


def _there_can_be_room(state: State, key: Key) -> bool:
    """Whether a load of a key fits once everything that it does not need itself is evicted."""
    walked = require(state, key)
    needed = load._needed(state, walked, len(key))
    end = node_ending_at(state, walked, len(key))
    held = hold(state, end, key, held_window_start(state, end))
    short = shortage(needed, free_slot_counts(state, GPU))
    fits = all(short[each] <= _unlocked_slots(state, each) for each in state.config.components)
    release_hold(state, held)
    return fits


@variation
@around(insert.insert, cache)
def slots_are_checked_first(
    usual: Original[Inserted], state: State, key: Key, start_pages: int, given: Slots, **others: int
) -> Inserted:
    """If an insert has several faults, a slot that is not held is reported first."""
    for component, some in given:
        pool = state.pools.get((component, GPU))
        for slot in some:
            if pool is not None and slot not in pool.held:
                raise SlotNotHeld(f"{component} on GPU", slot)
    return usual(state, key, start_pages, given, **others)


def _unlocked_slots(state: State, component: Component) -> int:
    """Return how many device slots of a component evictions could free."""
    nodes = state.owners[component, GPU]
    return sum(
        len(node.data[component].device or ())
        for node in nodes
        if not node.data[component].lock_refs
    )


@variation
@around(host.ensure_host_slots, backup)
def impossible_backups_declined_first(usual: MakeRoom, state: State, needed: Counts) -> bool:
    """A backup that is larger than the whole host pool evicts nothing from it."""
    config = state.config
    fits = all(needed[each] <= config.capacity(each, CPU) for each in config.components)
    return fits and usual(state, needed)


@variation
@around(tier._accept)
def fetches_end_at_host_pages(
    usual: Original[bool],
    state: State,
    order: OpenOrder,
    slots: tuple[Slot, ...],
    page: int,
    record: bytes,
) -> bool:
    """A prefetch ends at a page that is on the host by now (`fetches_all_pages`)."""
    key = order.key.prefix(order.start + page + 1)
    walked = walk(state, key)
    is_there = walked_pages(walked) == len(key) and tier._on_host(walked[-1][0])
    return not is_there and usual(state, order, slots, page, record)
