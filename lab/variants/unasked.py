"""Unasked: variations that do something on their own, in a call that asked for something else.

Data expires, an allocation evicts, a match prefetches, a poll backs up or moves data. A profile
declares each, and the laws of steps then judge the call without it.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import lone_variation
from kvcanon.lab.variants.wrapped_rules import Original, around, wrap
from kvcanon.reference import cache, insert, slots
from kvcanon.reference import match as matching
from kvcanon.reference.departures import delete, delete_from_host
from kvcanon.reference.evict import evict
from kvcanon.reference.load import load_back
from kvcanon.reference.lock import lock, unlock
from kvcanon.reference.slots import drop, free_slot_counts, place
from kvcanon.reference.state import Node, State
from kvcanon.reference.transfer import settle
from kvcanon.reference.victims import is_device_leaf, is_host_leaf
from kvcanon.spec.operations import Matched, Settled
from kvcanon.spec.types import FULL, GPU, Component, Counts, Key, Slots, shortage

LEASE = 12
"""Ticks for which an unused leaf stays."""


@lone_variation
@around(matching.match, cache)
def unused_leaves_expire(match: Original[Matched], state: State, key: Key) -> Matched:
    """A leaf that was not used for a dozen uses leaves at the next match, from either medium."""
    for node in [each for each in state.nodes.values() if state.clock - each.last_access > LEASE]:
        if is_host_leaf(node) and not _in_flight(node):
            delete_from_host(state, node)
        elif is_device_leaf(node) and node.data[FULL].host is None and not node.children:
            delete(state, node)
    return match(state, key)


@lone_variation
@around(slots.allocate)
def allocations_evict(allocate: Original[Slots], state: State, counts: Counts) -> Slots:
    """An allocation evicts what it lacks, as in vLLM."""
    free = free_slot_counts(state, GPU)
    lacks = shortage(counts, free)
    if lacks and all(0 <= counts[c] <= free[c] + _idle_slots(state, c) for c in Component):
        evict(state, lacks)
    return allocate(state, counts)


def _idle_slots(state: State, component: Component) -> int:
    """How many device slots of a component an eviction could free."""
    data = [each.data[component] for each in state.owners.get((component, GPU), ())]
    return sum(len(each.device or ()) for each in data if not each.lock_refs)


@lone_variation
@around(matching.match, cache)
def prefetches(match: Original[Matched], state: State, key: Key) -> Matched:
    """A match that finds data on the host alone begins to load it."""
    found = match(state, key)
    if found.prefix_pages > found.device_pages and not found.pending:
        held = lock(state, key.prefix(found.device_pages))  # It keeps what it answered with.
        load_back(state, key.prefix(found.prefix_pages), None)
        unlock(state, held)
    return found


@lone_variation
def backups_at_the_next_poll(overrides: Overrides) -> None:
    """The backups of an insert begin at the next poll, as those of LMCache in a later call."""
    due: WeakKeyDictionary[State, list[Node]] = WeakKeyDictionary()

    def remember(_: Original[object], state: State, end: Node) -> tuple[int, ...]:
        due.setdefault(state, []).append(end)
        return ()

    def and_back_up(settle: Original[Settled], state: State) -> Settled:
        settled = settle(state)
        for end in due.pop(state, ()):
            if state.nodes.get(end.node_id) is end:
                insert._back_up_hit_nodes(state, end)
        return settled

    wrap(overrides, insert, insert._back_up_hit_nodes, remember)
    wrap(overrides, cache, settle, and_back_up)


@lone_variation
@around(settle, cache)
def compaction(settle: Original[Settled], state: State) -> Settled:
    """A poll first moves the data of an idle leaf to other slots of its pools, with its bytes."""
    idle = [each for each in state.nodes.values() if is_device_leaf(each) and not _in_flight(each)]
    if idle:
        _move(state, min(idle, key=lambda each: each.node_id))
    return settle(state)


def _in_flight(node: Node) -> bool:
    """Whether a copy reads or fills data of a node."""
    return any(each.loading is not None or each.backing is not None for each in node.data.values())


def _move(state: State, node: Node) -> None:
    """Give a node other device slots, if each of its pools has enough free."""
    there = {each: data.device for each, data in node.data.items() if data.device is not None}
    pools = {each: state.pools[each, GPU] for each in there}
    if any(pools[each].free_slots < len(slots) for each, slots in there.items()):
        return
    targets = {each: pools[each].take(len(olds)) for each, olds in there.items()}
    for each, olds in there.items():
        behind = pools[each].payloads
        behind.update(
            {
                new: behind[old]
                for old, new in zip(olds, targets[each], strict=True)
                if old in behind
            }
        )
        drop(state, node, each, GPU)
    for each in there:
        place(state, node, each, GPU, targets[each])
