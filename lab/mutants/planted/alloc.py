"""Faults of slots: leaks, double frees, and wrong mappings."""

from __future__ import annotations

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, departures, evict, host, host_insert, insert, slots, snapshot
from kvcanon.reference.state import Node, State, Transfer
from kvcanon.spec.errors import CacheError
from kvcanon.spec.snapshot import Usage
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Component, Counts, Medium, Slot, Slots


@mutant("ALLOC-8", "A28 sgl#7130")
@instead(slots.drop, departures)
def evicted_window_slots_leak(
    state: State, node: Node, component: Component, medium: Medium
) -> None:
    """The window slots of victims never return to the free list."""
    if component is SWA:
        slots.take(state, node, component, medium)
    else:
        slots.drop(state, node, component, medium)


@mutant("ALLOC-8", "A31 sgl#38355")
@instead(insert._free)
def duplicates_leak(
    state: State, component: Component, some: tuple[Slot, ...], incoming: insert._Incoming
) -> None:
    """An insert reports the slots of present pages as freed, and does not free them."""
    incoming.freed[component] += len(some)


@mutant("ALLOC-4", "A14 sgl#27586")
@around(slots.place, insert)
def healing_keeps_the_old_mapping(
    place: Original[None],
    state: State,
    node: Node,
    component: Component,
    medium: Medium,
    some: tuple[Slot, ...],
    *,
    filled_by: Transfer | None = None,
) -> None:
    """A tombstone gets a window slot, and the mapping does not lead to it."""
    pairs = dict(state.swa_of_full), dict(state.full_of_swa)
    place(state, node, component, medium, some, filled_by=filled_by)
    state.swa_of_full, state.full_of_swa = pairs


@mutant("ALLOC-6")
@around(slots.allocate)
def refusal_evicts(allocate: Original[object], state: State, counts: Counts) -> object:
    """A call evicts before it is refused."""
    if counts.full > state.pools[FULL, GPU].free_slots:
        evict.evict(state, Counts(full=1))
    return allocate(state, counts)


@mutant("ALLOC-6")
@around(slots.free)
def refused_free_frees_what_precedes(free: Original[None], state: State, given: Slots) -> None:
    """A free with a slot that is not held frees the slots before it, and is refused."""
    for component, some in given:
        for slot in some:
            free(state, Slots(**{component.value: (slot,)}))


@mutant("ALLOC-6")
@around(slots.require_held, insert)
def refused_insert_frees_what_precedes(
    require_held: Original[None], state: State, given: Slots
) -> None:
    """An insert with a slot that is not held frees the slots before it, and is refused."""
    try:
        require_held(state, given)
    except CacheError:
        for component, some in given:
            for slot in some:
                slots.free(state, Slots(**{component.value: (slot,)}))
        raise


@mutant("ALLOC-6")
@around(slots.require_held, insert)
def refused_insert_takes_its_slots(
    require_held: Original[None], state: State, given: Slots
) -> None:
    """After a refused insert its slots have no owner: the request holds them no more."""
    try:
        require_held(state, given)
    except CacheError:
        slots.unhold(state, given)
        raise


@mutant("ALLOC-1", "A15 sgl#38269")
@around(slots.release)
def window_segment_is_freed_with_its_first_slot_twice(
    release: Original[None],
    state: State,
    component: Component,
    medium: Medium,
    some: tuple[Slot, ...],
) -> None:
    """When several window slots are freed, the first one is freed twice."""
    release(state, component, medium, some)
    if component is SWA and len(some) > 1:
        state.pools[component, medium].give_back(some[:1])


@mutant("ALLOC-1", "B11 sgl#13483")
@around(host_insert._fill)
def fetched_pages_come_free_too(
    fill: Original[None],
    state: State,
    node: Node,
    component: Component,
    payloads: tuple[bytes, ...],
    tick: int,
) -> None:
    """A host insert also frees the host slots in which it placed pages."""
    fill(state, node, component, payloads, tick)
    if node.children:
        state.pools[component, CPU].give_back(node.data[component].host or ())


@mutant("ALLOC-2", "A26 sgl#35270")
@around(snapshot._usage)
def shared_pages_count_twice(usage: Original[Usage], state: State, component: Component) -> Usage:
    """A page that two prompts share counts twice as evictable."""
    told = usage(state, component)
    shared = sum(
        len(node.data[component].device or ())
        for node in state.owners[component, GPU]
        if len(node.children) > 1 and not node.data[component].lock_refs
    )
    return Usage(told.evictable + shared, told.protected)


@mutant("ALLOC-2", "D16 trt#12834")
@around(snapshot._usage)
def demoted_pages_count_as_evictable(
    usage: Original[Usage], state: State, component: Component
) -> Usage:
    """Pages that are on the host alone still count as evictable on the device."""
    told = usage(state, component)
    demoted = sum(
        len(node.data[component].host or ())
        for node in state.owners[component, CPU]
        if node.data[component].device is None
    )
    return Usage(told.evictable + demoted, told.protected)


@mutant("ALLOC-3", "B13 sgl#4987")
@instead(host.evict_host, cache)
def host_eviction_counts_nothing(state: State, counts: Counts) -> Counts:
    """An eviction from the host reports that it freed nothing."""
    host.evict_host(state, counts)
    return Counts()


@mutant("ALLOC-5", "D21 trt#13124")
@around(slots.allocate)
def window_slots_are_taken_for_full_slots(
    allocate: Original[Slots], state: State, counts: Counts
) -> Slots:
    """An allocation maps each full slot to the window slot with the same number."""
    given = allocate(state, counts)
    if given.swa:
        paired = given.full[-len(given.swa) :]
        slots.pair(state, paired, paired)
    return given


@mutant("ALLOC-7")
@around(slots.free_tree)
def reset_frees_what_requests_hold(free_tree: Original[None], state: State) -> None:
    """A reset frees slots that running requests hold."""
    free_tree(state)
    pool = state.pools[FULL, GPU]
    held = tuple(pool.held)
    pool.held.clear()
    slots.release(state, FULL, GPU, held)


@mutant("ALLOC-9", "A14 sgl#25834")
@around(slots.release)
def tombstones_keep_their_mapping(
    release: Original[None],
    state: State,
    component: Component,
    medium: Medium,
    some: tuple[Slot, ...],
) -> None:
    """When a page loses its window data, the mapping still leads to the old window slot."""
    pairs = dict(state.swa_of_full), dict(state.full_of_swa)
    release(state, component, medium, some)
    if component is SWA:
        state.swa_of_full, state.full_of_swa = pairs


@mutant("ALLOC-10", "A16 sgl#36457")
@around(slots.release)
def freeing_a_neighbour_parts_a_pair(
    release: Original[None],
    state: State,
    component: Component,
    medium: Medium,
    some: tuple[Slot, ...],
) -> None:
    """When a full slot is freed, the mapping of the slot after it is removed too."""
    release(state, component, medium, some)
    if component is FULL and medium is GPU and some:
        state.full_of_swa.pop(state.swa_of_full.pop(max(some) + 1, -1), None)


@mutant("ALLOC-10")
@around(slots.free_tree)
def reset_forgets_the_mapping_of_requests(free_tree: Original[None], state: State) -> None:
    """A reset clears the whole mapping, also for slots that running requests hold."""
    free_tree(state)
    state.swa_of_full.clear()
    state.full_of_swa.clear()


@mutant("ALLOC-11", "B26 sgl#25991")
@around(insert._fill_leaf)
def slots_are_dealt_backwards(
    fill_leaf: Original[Node], state: State, leaf: Node, incoming: insert._Incoming, tick: int
) -> Node:
    """A new leaf assigns its slots to its pages in reverse order."""
    begin, full, swa = leaf.start, incoming.slots.full, incoming.slots.swa
    if len(swa) in (0, len(full)):
        new = begin - incoming.full_from
        full, swa = full[:new] + full[new:][::-1], swa[:new] + swa[new:][::-1]
        incoming.slots = Slots(full, swa, incoming.slots.mamba)
    return fill_leaf(state, leaf, incoming, tick)


@mutant("ALLOC-11")
@around(insert._attach_states)
def states_are_dealt_backwards(
    attach: Original[None], state: State, end: Node, incoming: insert._Incoming, tick: int
) -> None:
    """An insert assigns its mamba states to their pages in reverse order."""
    incoming.slots = evolve(incoming.slots, mamba=incoming.slots.mamba[::-1])
    attach(state, end, incoming, tick)
