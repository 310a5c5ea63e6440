"""Faults of residency: pages whose parent is not on the same medium.

A resident page is not always reachable: it can be read only if all pages above it can be.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import (
    backup,
    cache,
    departures,
    events,
    evict,
    host_insert,
    insert,
    load,
    match,
    slots,
    tree,
    victims,
)
from kvcanon.reference.state import Node, State
from kvcanon.spec.operations import HostInserted, HostPayload, Inserted
from kvcanon.spec.types import (
    FULL,
    GPU,
    Component,
    Key,
    Medium,
    Slot,
    Slots,
)


@mutant("RES-1", "D24 kvcached#362")
def evicted_leaf_stays_in_the_tree(patch: Overrides) -> None:
    """A leaf that was evicted stays in the tree without data."""
    patch.setattr(departures, "remove_leaf", lambda *_: None)


@mutant("RES-2", "A12 sgl#25068")
def leaf_leaves_its_window_behind(patch: Overrides) -> None:
    """An evicted leaf keeps its window data and its mamba state."""
    vacate = departures.vacate

    def vacate_full(state: State, node: Node, medium: Medium) -> None:
        if medium is not GPU:
            return vacate(state, node, medium)
        events.emit_removed(state, node, medium)
        return slots.drop(state, node, FULL, medium)

    patch.setattr(evict, "vacate", vacate_full)
    patch.setattr(departures, "vacate", vacate_full)


@mutant("RES-3", "D18 trt#4596")
def backed_nodes_leave_before_their_children(patch: Overrides) -> None:
    """A node with a host copy is evicted though a child of it is on the device."""
    is_device_leaf = victims.is_device_leaf

    def careless(node: Node) -> bool:
        full = node.data[FULL]
        backed = node.parent is not None and full.device is not None and full.host is not None
        return is_device_leaf(node) or (backed and not node.locked)

    patch.setattr(victims, "is_device_leaf", careless)


@mutant("RES-3", "B7 sgl#25088")
def load_starts_below_its_anchor(patch: Overrides) -> None:
    """A load-back leaves out the uppermost node that it has to load."""
    parts_of = load._parts

    def below(state: State, end: Node) -> list[tuple[Node, Component]]:
        parts = parts_of(state, end)
        nodes = {node.node_id for node, _ in parts}
        return [part for part in parts if len(nodes) == 1 or part[0] is not parts[0][0]]

    patch.setattr(load, "_parts", below)


@mutant("RES-4", "B5 sgl#31902")
def fetched_pages_hang_on_anything(patch: Overrides) -> None:
    """A host insert adds pages below a node that has no host copy."""
    refill = host_insert._refill

    def attaching(state: State, node: Node, fetched: host_insert._Fetched) -> Node | None:
        refilled = refill(state, node, fetched)
        return node if refilled is None and node.data[FULL].host is None else refilled

    patch.setattr(host_insert, "_refill", attaching)


@mutant("RES-5", "A2 sgl#25065", founding=True)
def backup_skips_what_has_an_unbacked_parent(patch: Overrides) -> None:
    """A node whose parent has no host copy is not backed up, and no answer reports it."""

    def chain(backed: tuple[bool, ...], needs_backed_parents: bool) -> tuple[int, ...]:
        last = len(backed) - 1
        skipped = backed[last] or (last > 0 and not backed[last - 1])
        return () if skipped else (last,)

    patch.setattr(backup, "backup_chain", chain)


@mutant("RES-5", "B2 sgl#27108")
def backup_without_room_is_a_backup(patch: Overrides) -> None:
    """An insert does not report pages that found no host slots as declined."""
    patch.setattr(insert, "unbacked_pages", lambda *_: 0)


@mutant("RES-6", "A17 sgl#29350")
def freed_window_slots_are_taken_for_there(patch: Overrides) -> None:
    """An insert takes the window slots of its last pages for slots of all its pages."""
    incoming_of = insert._Incoming

    def pair(state: State, full: tuple[Slot, ...], swa: tuple[Slot, ...]) -> None:
        state.swa_of_full.update(zip(full, swa, strict=False))
        state.full_of_swa.update(zip(swa, full, strict=False))

    def forgetting(
        some: Slots,
        full_from: int,
        swa_from: int,
        adopted: dict[Component, int],
        freed: dict[Component, int],
    ) -> insert._Incoming:
        begin = full_from if some.swa else swa_from
        return incoming_of(some, full_from, begin, adopted, freed)

    patch.setattr(insert, "_Incoming", forgetting)
    patch.setattr(slots, "pair", pair)


@mutant("RES-6", "B26 sgl#25991")
def fetched_key_is_not_shortened(patch: Overrides) -> None:
    """If only a part of the fetched pages fits, the new node has all of them."""
    new_host_leaf = host_insert._new_host_leaf

    def whole(state: State, key: Key, parent: Node, fetched: host_insert._Fetched) -> Node:
        leaf = new_host_leaf(state, key, parent, fetched)
        if leaf is not parent:
            leaf.pages = key.pages[leaf.start :]
        return leaf

    patch.setattr(host_insert, "_new_host_leaf", whole)


@mutant("RES-7", "B17 sgl#36647")
def parts_of_a_request_count_no_hit(patch: Overrides) -> None:
    """An insert that continues an earlier one counts no hit, not even at new nodes."""

    def uncounted(
        state: State, key: Key, start_pages: int, some: Slots, *, counted_pages: int, priority: int
    ) -> Inserted:
        counted = len(key) if counted_pages else 0
        return insert.insert(
            state, key, start_pages, some, counted_pages=counted, priority=priority
        )

    patch.setattr(cache, "insert", uncounted)


@mutant("RES-7")
def hits_count_twice(patch: Overrides) -> None:
    """An insert counts two hits at each node."""
    touch = match.touch

    def counting(state: State, end: Node, tick: int) -> None:
        touch(state, end, tick)
        for node in tree.upwards(end):
            node.hit_count += 1

    patch.setattr(insert, "touch", counting)


@mutant("RES-9", "B11 sgl#13483")
def present_pages_are_dropped_pages_too(patch: Overrides) -> None:
    """A host insert reports present pages also as dropped."""

    def telling(state: State, key: Key, start: int, payload: HostPayload) -> HostInserted:
        told = host_insert.insert_host(state, key, start, payload)
        return evolve(told, dropped_pages=told.dropped_pages + told.present_pages)

    patch.setattr(cache, "insert_host", telling)


@mutant("RES-9", "B18 sgl#39444")
def some_pages_placed_are_all_pages_placed(patch: Overrides) -> None:
    """A host insert reports dropped pages as placed if it placed any."""

    def telling(state: State, key: Key, start: int, payload: HostPayload) -> HostInserted:
        told = host_insert.insert_host(state, key, start, payload)
        placed = told.placed_pages + (told.dropped_pages if told.placed_pages else 0)
        return evolve(
            told,
            placed_pages=placed,
            dropped_pages=0 if told.placed_pages else told.dropped_pages,
        )

    patch.setattr(cache, "insert_host", telling)


@mutant("RES-9", "B10 sgl#36382")
def fetched_pages_are_of_their_anchors_namespace(patch: Overrides) -> None:
    """A new host leaf gets the namespace of its parent, which for the root is the default."""
    add_leaf = tree.add_leaf

    def anchored(state: State, parent: Node, key: Key, tick: int) -> Node:
        return add_leaf(state, parent, Key(key.pages, parent.namespace), tick)

    patch.setattr(host_insert, "add_leaf", anchored)


@mutant("RES-9", "D9 vllm#53498")
def fetched_pages_are_not_registered(patch: Overrides) -> None:
    """A host insert places pages that no walk of the tree finds."""
    new_host_leaf = host_insert._new_host_leaf

    def lost(state: State, key: Key, parent: Node, fetched: host_insert._Fetched) -> Node:
        leaf = new_host_leaf(state, key, parent, fetched)
        if leaf is not parent:
            del parent.children[tree.edge(parent, leaf.namespace, leaf.pages[0])]
            del state.nodes[leaf.node_id]
        return parent

    patch.setattr(host_insert, "_new_host_leaf", lost)
