"""Faults of slots: leaks, double frees, and wrong mappings."""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import (
    cache,
    departures,
    evict,
    host,
    host_insert,
    insert,
    slots,
    snapshot,
)
from kvcanon.reference.state import Node, State, Transfer
from kvcanon.spec.errors import CacheError
from kvcanon.spec.snapshot import Usage
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    SWA,
    Component,
    Counts,
    Medium,
    Slot,
    Slots,
)


@mutant("ALLOC-8", "A28 sgl#7130")
def evicted_window_slots_leak(patch: Overrides) -> None:
    """The window slots of victims never return to the free list."""

    def leaking(state: State, node: Node, component: Component, medium: Medium) -> None:
        if component is SWA:
            slots.take(state, node, component, medium)
        else:
            slots.drop(state, node, component, medium)

    patch.setattr(departures, "drop", leaking)


@mutant("ALLOC-8", "A31 sgl#38355")
def duplicates_leak(patch: Overrides) -> None:
    """An insert reports the slots of present pages as freed, and does not free them."""

    def leaking(
        state: State, component: Component, some: tuple[Slot, ...], incoming: insert._Incoming
    ) -> None:
        incoming.freed[component] += len(some)

    patch.setattr(insert, "_free", leaking)


@mutant("ALLOC-4", "A14 sgl#27586")
def healing_keeps_the_old_mapping(patch: Overrides) -> None:
    """A tombstone gets a window slot, and the mapping does not lead to it."""
    place = slots.place

    def unpaired(
        state: State,
        node: Node,
        component: Component,
        medium: Medium,
        some: tuple[Slot, ...],
        *,
        filled_by: Transfer | None = None,
    ) -> None:
        pairs = dict(state.swa_of_full), dict(state.full_of_swa)
        place(state, node, component, medium, some, filled_by=filled_by)
        state.swa_of_full, state.full_of_swa = pairs

    patch.setattr(insert, "place", unpaired)


@mutant("ALLOC-6")
def refusal_evicts(patch: Overrides) -> None:
    """A call evicts before it is refused."""
    allocate = slots.allocate

    def eager(state: State, counts: Counts) -> object:
        if counts.full > state.pools[FULL, GPU].free_slots:
            evict.evict(state, Counts(full=1))
        return allocate(state, counts)

    patch.setattr(slots, "allocate", eager)


@mutant("ALLOC-6")
def refused_free_frees_what_precedes(patch: Overrides) -> None:
    """A free with a slot that is not held frees the slots before it, and is refused."""
    free = slots.free

    def one_by_one(state: State, given: Slots) -> None:
        for component, some in given:
            for slot in some:
                free(state, Slots(**{component.value: (slot,)}))

    patch.setattr(slots, "free", one_by_one)


@mutant("ALLOC-6")
def refused_insert_frees_what_precedes(patch: Overrides) -> None:
    """An insert with a slot that is not held frees the slots before it, and is refused."""
    require_held = slots.require_held

    def one_by_one(state: State, given: Slots) -> None:
        try:
            require_held(state, given)
        except CacheError:
            for component, some in given:
                for slot in some:
                    slots.free(state, Slots(**{component.value: (slot,)}))
            raise

    patch.setattr(insert, "require_held", one_by_one)


@mutant("ALLOC-6")
def refused_insert_takes_its_slots(patch: Overrides) -> None:
    """After a refused insert its slots have no owner: the request holds them no more."""
    require_held = slots.require_held

    def taking(state: State, given: Slots) -> None:
        try:
            require_held(state, given)
        except CacheError:
            slots.unhold(state, given)
            raise

    patch.setattr(insert, "require_held", taking)


@mutant("ALLOC-1", "A15 sgl#38269")
def window_segment_is_freed_with_its_first_slot_twice(patch: Overrides) -> None:
    """When several window slots are freed, the first one is freed twice."""
    release = slots.release

    def doubling(
        state: State, component: Component, medium: Medium, some: tuple[Slot, ...]
    ) -> None:
        release(state, component, medium, some)
        if component is SWA and len(some) > 1:
            state.pools[component, medium].give_back(some[:1])

    patch.setattr(slots, "release", doubling)


@mutant("ALLOC-1", "B11 sgl#13483")
def fetched_pages_come_free_too(patch: Overrides) -> None:
    """A host insert also frees the host slots in which it placed pages."""
    fill = host_insert._fill

    def freeing(
        state: State, node: Node, component: Component, payloads: tuple[bytes, ...], tick: int
    ) -> None:
        fill(state, node, component, payloads, tick)
        if node.children:
            state.pools[component, CPU].give_back(node.data[component].host or ())

    patch.setattr(host_insert, "_fill", freeing)


@mutant("ALLOC-2", "A26 sgl#35270")
def shared_pages_count_twice(patch: Overrides) -> None:
    """A page that two prompts share counts twice as evictable."""
    usage = snapshot._usage

    def twice(state: State, component: Component) -> Usage:
        told = usage(state, component)
        shared = sum(
            len(node.data[component].device or ())
            for node in state.owners[component, GPU]
            if len(node.children) > 1 and not node.data[component].lock_refs
        )
        return Usage(told.evictable + shared, told.protected)

    patch.setattr(snapshot, "_usage", twice)


@mutant("ALLOC-2", "D16 trt#12834")
def demoted_pages_count_as_evictable(patch: Overrides) -> None:
    """Pages that are on the host alone still count as evictable on the device."""
    usage = snapshot._usage

    def stale(state: State, component: Component) -> Usage:
        told = usage(state, component)
        demoted = sum(
            len(node.data[component].host or ())
            for node in state.owners[component, CPU]
            if node.data[component].device is None
        )
        return Usage(told.evictable + demoted, told.protected)

    patch.setattr(snapshot, "_usage", stale)


@mutant("ALLOC-3", "B13 sgl#4987")
def host_eviction_counts_nothing(patch: Overrides) -> None:
    """An eviction from the host reports that it freed nothing."""

    def uncounted(state: State, counts: Counts) -> Counts:
        host.evict_host(state, counts)
        return Counts()

    patch.setattr(cache, "evict_host", uncounted)


@mutant("ALLOC-5", "D21 trt#13124")
def window_slots_are_taken_for_full_slots(patch: Overrides) -> None:
    """An allocation maps each full slot to the window slot with the same number."""
    allocate = slots.allocate

    def confused(state: State, counts: Counts) -> Slots:
        given = allocate(state, counts)
        if given.swa:
            paired = given.full[-len(given.swa) :]
            slots.pair(state, paired, paired)
        return given

    patch.setattr(slots, "allocate", confused)


@mutant("ALLOC-7")
def reset_frees_what_requests_hold(patch: Overrides) -> None:
    """A reset frees slots that running requests hold."""
    free_tree = slots.free_tree

    def all_of_it(state: State) -> None:
        free_tree(state)
        pool = state.pools[FULL, GPU]
        held = tuple(pool.held)
        pool.held.clear()
        slots.release(state, FULL, GPU, held)

    patch.setattr(slots, "free_tree", all_of_it)


@mutant("ALLOC-9", "A14 sgl#25834")
def tombstones_keep_their_mapping(patch: Overrides) -> None:
    """When a page loses its window data, the mapping still leads to the old window slot."""
    release = slots.release

    def forgetful(
        state: State, component: Component, medium: Medium, some: tuple[Slot, ...]
    ) -> None:
        pairs = dict(state.swa_of_full), dict(state.full_of_swa)
        release(state, component, medium, some)
        if component is SWA:
            state.swa_of_full, state.full_of_swa = pairs

    patch.setattr(slots, "release", forgetful)


@mutant("ALLOC-10", "A16 sgl#36457")
def freeing_a_neighbour_parts_a_pair(patch: Overrides) -> None:
    """When a full slot is freed, the mapping of the slot after it is removed too."""
    release = slots.release

    def wide(state: State, component: Component, medium: Medium, some: tuple[Slot, ...]) -> None:
        release(state, component, medium, some)
        if component is FULL and medium is GPU and some:
            state.full_of_swa.pop(state.swa_of_full.pop(max(some) + 1, -1), None)

    patch.setattr(slots, "release", wide)


@mutant("ALLOC-10")
def reset_forgets_the_mapping_of_requests(patch: Overrides) -> None:
    """A reset clears the whole mapping, also for slots that running requests hold."""
    free_tree = slots.free_tree

    def clearing(state: State) -> None:
        free_tree(state)
        state.swa_of_full.clear()
        state.full_of_swa.clear()

    patch.setattr(slots, "free_tree", clearing)


@mutant("ALLOC-11", "B26 sgl#25991")
def slots_are_dealt_backwards(patch: Overrides) -> None:
    """A new leaf assigns its slots to its pages in reverse order."""
    fill_leaf = insert._fill_leaf

    def backwards(state: State, leaf: Node, incoming: insert._Incoming, tick: int) -> Node:
        begin, full, swa = leaf.start, incoming.slots.full, incoming.slots.swa
        if len(swa) in (0, len(full)):
            new = begin - incoming.full_from
            full, swa = full[:new] + full[new:][::-1], swa[:new] + swa[new:][::-1]
            incoming.slots = Slots(full, swa, incoming.slots.mamba)
        return fill_leaf(state, leaf, incoming, tick)

    patch.setattr(insert, "_fill_leaf", backwards)
