"""Faults of residency: pages whose parent is not on the same medium.

A resident page is not always reachable: it can be read only if all pages above it can be.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
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
from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.types import FULL, GPU, Component, Key, Medium, Slot, Slots


@mutant("RES-1", "D24 kvcached#362")
def evicted_leaf_stays_in_the_tree(patch: Overrides) -> None:
    """A leaf that was evicted stays in the tree without data."""
    patch.setattr(departures, "remove_leaf", lambda *_: None)


@mutant("RES-2", "A12 sgl#25068")
@around(departures.vacate, evict, departures)
def leaf_leaves_its_window_behind(
    vacate: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """An evicted leaf keeps its window data and its mamba state."""
    if medium is not GPU:
        return vacate(state, node, medium)
    events.emit_removed(state, node, medium)
    return slots.drop(state, node, FULL, medium)


@mutant("RES-3", "D18 trt#4596")
@around(victims.is_device_leaf)
def backed_nodes_leave_before_their_children(is_device_leaf: Original[bool], node: Node) -> bool:
    """A node with a host copy is evicted though a child of it is on the device."""
    full = node.data[FULL]
    backed = node.parent is not None and full.device is not None and full.host is not None
    return is_device_leaf(node) or (backed and not node.locked)


@mutant("RES-3", "B7 sgl#25088")
@around(load._parts)
def load_starts_below_its_anchor(
    parts_of: Original[list[tuple[Node, Component]]], state: State, end: Node
) -> list[tuple[Node, Component]]:
    """A load-back leaves out the uppermost node that it has to load."""
    parts = parts_of(state, end)
    nodes = {node.node_id for node, _ in parts}
    return [part for part in parts if len(nodes) == 1 or part[0] is not parts[0][0]]


@mutant("RES-4", "B5 sgl#31902")
@around(host_insert._refill)
def fetched_pages_hang_on_anything(
    refill: Original[Node | None], state: State, node: Node, fetched: host_insert._Fetched
) -> Node | None:
    """A host insert adds pages below a node that has no host copy."""
    refilled = refill(state, node, fetched)
    return node if refilled is None and node.data[FULL].host is None else refilled


@mutant("RES-5", "A2 sgl#25065", founding=True)
@instead(backup_chain, backup)
def backup_skips_what_has_an_unbacked_parent(
    backed: tuple[bool, ...], needs_backed_parents: bool
) -> tuple[int, ...]:
    """A node whose parent has no host copy is not backed up, and no answer reports it."""
    last = len(backed) - 1
    skipped = backed[last] or (last > 0 and not backed[last - 1])
    return () if skipped else (last,)


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
        state_pages: tuple[int, ...],
        **counts: dict[Component, int],
    ) -> insert._Incoming:
        begin = full_from if some.swa else swa_from
        return incoming_of(some, full_from, begin, state_pages, **counts)

    patch.setattr(insert, "_Incoming", forgetting)
    patch.setattr(slots, "pair", pair)


@mutant("RES-6", "B26 sgl#25991")
@around(host_insert._new_host_leaf)
def fetched_key_is_not_shortened(
    new_host_leaf: Original[Node],
    state: State,
    key: Key,
    parent: Node,
    fetched: host_insert._Fetched,
) -> Node:
    """If only a part of the fetched pages fits, the new node has all of them."""
    leaf = new_host_leaf(state, key, parent, fetched)
    if leaf is not parent:
        leaf.pages = key.pages[leaf.start :]
    return leaf


@mutant("RES-7", "B17 sgl#36647")
@around(insert.insert, cache)
def parts_of_a_request_count_no_hit(
    usual: Original[Inserted],
    state: State,
    key: Key,
    start_pages: int,
    some: Slots,
    **more: object,
) -> Inserted:
    """An insert that continues an earlier one counts no hit, not even at new nodes."""
    counted = len(key) if more["counted_pages"] else 0
    return usual(state, key, start_pages, some, **more | {"counted_pages": counted})


@mutant("RES-7")
@around(match.touch, insert)
def hits_count_twice(touch: Original[None], state: State, end: Node, tick: int) -> None:
    """An insert counts two hits at each node."""
    touch(state, end, tick)
    for node in tree.upwards(end):
        node.hit_count += 1


@mutant("RES-9", "B11 sgl#13483")
@instead(host_insert.insert_host, cache)
def present_pages_are_dropped_pages_too(
    state: State, key: Key, start: int, payload: HostPayload
) -> HostInserted:
    """A host insert reports present pages also as dropped."""
    told = host_insert.insert_host(state, key, start, payload)
    return evolve(told, dropped_pages=told.dropped_pages + told.present_pages)


@mutant("RES-9", "B18 sgl#39444")
@instead(host_insert.insert_host, cache)
def some_pages_placed_are_all_pages_placed(
    state: State, key: Key, start: int, payload: HostPayload
) -> HostInserted:
    """A host insert reports dropped pages as placed if it placed any."""
    told = host_insert.insert_host(state, key, start, payload)
    placed = told.placed_pages + (told.dropped_pages if told.placed_pages else 0)
    return evolve(
        told, placed_pages=placed, dropped_pages=0 if told.placed_pages else told.dropped_pages
    )


@mutant("RES-9", "B10 sgl#36382")
@around(tree.add_leaf, host_insert)
def fetched_pages_are_of_their_anchors_namespace(
    add_leaf: Original[Node], state: State, parent: Node, key: Key, tick: int
) -> Node:
    """A new host leaf gets the namespace of its parent, which for the root is the default."""
    return add_leaf(state, parent, Key(key.pages, parent.namespace), tick)


@mutant("RES-9", "D9 vllm#53498")
@around(host_insert._new_host_leaf)
def fetched_pages_are_not_registered(
    new_host_leaf: Original[Node],
    state: State,
    key: Key,
    parent: Node,
    fetched: host_insert._Fetched,
) -> Node:
    """A host insert places pages that no walk of the tree finds."""
    leaf = new_host_leaf(state, key, parent, fetched)
    if leaf is not parent:
        del parent.children[tree.edge(parent, leaf.namespace, leaf.pages[0])]
        del state.nodes[leaf.node_id]
    return parent
