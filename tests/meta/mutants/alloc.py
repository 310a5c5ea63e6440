"""Faults of slots: leaks, double frees, and wrong mappings."""

from __future__ import annotations

from kvcanon.conformance.variants.override import Overrides
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
from meta.mutants.entry import mutant


@mutant("ALLOC-8", "A28 sgl#7130")
def evicted_window_slots_leak(patch: Overrides) -> None:
    """Window slots of victims never come back."""

    def leaking(state: State, node: Node, component: Component, medium: Medium) -> None:
        if component is SWA:
            slots.take(state, node, component, medium)
        else:
            slots.drop(state, node, component, medium)

    patch.setattr(departures, "drop", leaking)


@mutant("ALLOC-8", "A31 sgl#38355")
def duplicates_leak(patch: Overrides) -> None:
    """Slots of what the tree has already are counted as freed, and are not."""

    def leaking(
        state: State, component: Component, some: tuple[Slot, ...], incoming: insert._Incoming
    ) -> None:
        incoming.freed[component] += len(some)

    patch.setattr(insert, "_free", leaking)


@mutant("ALLOC-4", "A14 sgl#27586")
def healing_keeps_the_old_mapping(patch: Overrides) -> None:
    """A node takes a window slot, and the mapping does not lead to it."""
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
    """A call that is refused has made room before."""
    allocate = slots.allocate

    def eager(state: State, counts: Counts) -> object:
        if counts.full > state.pools[FULL, GPU].free_slots:
            evict.evict(state, Counts(full=1))
        return allocate(state, counts)

    patch.setattr(slots, "allocate", eager)


@mutant("ALLOC-6")
def refused_free_frees_what_precedes(patch: Overrides) -> None:
    """Slots are given back one by one, up to one that is not held, at which the call is refused."""
    free = slots.free

    def one_by_one(state: State, given: Slots) -> None:
        for component, some in given:
            for slot in some:
                free(state, Slots(**{component.value: (slot,)}))

    patch.setattr(slots, "free", one_by_one)


@mutant("ALLOC-6")
def refused_insert_frees_what_precedes(patch: Overrides) -> None:
    """An insert that meets a slot that is not held gives back those before it, and is refused."""
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
    """The slots of a refused insert are not the request's any more, and nobody else's."""
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
    """The first slot of a stretch of window data comes free two times."""
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
    """Slots that fetched pages were placed in are given back, as if they had been dropped."""
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
    """Pages that two prompts share are counted as evictable for each of them."""
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
    """What has left the device for the host is still counted as room that can be made."""
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
    """What an eviction from the host freed is never added up."""

    def uncounted(state: State, counts: Counts) -> Counts:
        host.evict_host(state, counts)
        return Counts()

    patch.setattr(cache, "evict_host", uncounted)


@mutant("ALLOC-5", "D21 trt#13124")
def window_slots_are_taken_for_full_slots(patch: Overrides) -> None:
    """The mapping of what is allocated leads to the window slot with the full slot's number."""
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
    """A reset takes the slots of running requests along."""
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
    """Window data leaves a page, and the mapping still leads to its slot."""
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
    """With a full slot goes the mapping of the next one, which is another's."""
    release = slots.release

    def wide(state: State, component: Component, medium: Medium, some: tuple[Slot, ...]) -> None:
        release(state, component, medium, some)
        if component is FULL and medium is GPU and some:
            state.full_of_swa.pop(state.swa_of_full.pop(max(some) + 1, -1), None)

    patch.setattr(slots, "release", wide)


@mutant("ALLOC-10")
def reset_forgets_the_mapping_of_requests(patch: Overrides) -> None:
    """A reset clears the whole mapping, and running requests find no window data any more."""
    free_tree = slots.free_tree

    def clearing(state: State) -> None:
        free_tree(state)
        state.swa_of_full.clear()
        state.full_of_swa.clear()

    patch.setattr(slots, "free_tree", clearing)


@mutant("ALLOC-11", "B26 sgl#25991")
def slots_are_dealt_backwards(patch: Overrides) -> None:
    """A new leaf takes its full and window slots from the last page to the first."""
    fill_leaf = insert._fill_leaf

    def backwards(state: State, leaf: Node, incoming: insert._Incoming, tick: int) -> Node:
        begin, full, swa = leaf.start, incoming.slots.full, incoming.slots.swa
        if len(swa) in (0, len(full)):
            new = begin - incoming.full_from
            full, swa = full[:new] + full[new:][::-1], swa[:new] + swa[new:][::-1]
            incoming.slots = Slots(full, swa, incoming.slots.mamba)
        return fill_leaf(state, leaf, incoming, tick)

    patch.setattr(insert, "_fill_leaf", backwards)
