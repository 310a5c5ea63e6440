"""Inserts: what counts as a hit, whose slots stay, and what is worth a leaf.

What readers get wrong: what a request brings is no better than what is there. Where the two hold
the same page, either may be given up, as long as nobody reads it.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kvcanon.conformance.overriding import Overrides
from kvcanon.conformance.variants.rules import wrap, wrap_everywhere
from kvcanon.reference import insert
from kvcanon.reference.insert import _Incoming
from kvcanon.reference.slots import release
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import cut, remove_leaf
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Key, Slots

Merge = Callable[[State, Node, _Incoming, int], None]
FillLeaf = Callable[[State, Node, _Incoming, int], Node]


def every_insert_hits(overrides: Overrides) -> None:
    """An insert counts a hit on all of its path (`hits_once_a_request`)."""
    _count_from(overrides, lambda state, key, counted_pages: 0)  # noqa: ARG005 # All begins there.


def idle_hits_uncounted(overrides: Overrides) -> None:
    """An insert counts no hit where nothing goes by hits (`idle_hits_counted`)."""
    _count_from(
        overrides,
        lambda state, key, counted_pages: counted_pages if state.config.goes_by_hits else len(key),
    )


def _count_from(overrides: Overrides, first: Callable[[State, Key, int], int]) -> None:
    """Let inserts count hits from another page on; what is no page of the key is left as it is."""

    def wrapper(usual: Callable[..., Inserted]) -> Callable[..., Inserted]:
        def insert_anew(
            state: State,
            key: Key,
            start_pages: int,
            slots: Slots,
            *,
            counted_pages: int,
            priority: int,
        ) -> Inserted:
            is_page = 0 <= counted_pages <= len(key)
            counted = first(state, key, counted_pages) if is_page else counted_pages
            return usual(state, key, start_pages, slots, counted_pages=counted, priority=priority)

        return insert_anew

    wrap_everywhere(overrides, insert.insert, wrapper)


def new_slots_heal(overrides: Overrides) -> None:
    """A tombstone that nobody holds takes full slots with its window slots (`heals_in_place`)."""

    def wrapper(merge: Merge) -> Merge:
        def merge_anew(state: State, node: Node, incoming: _Incoming, tick: int) -> None:
            begin = max(node.start, incoming.full_from, incoming.swa_from)
            if not _is_tombstone(node) or begin >= node.end:
                merge(state, node, incoming, tick)
                return
            if begin > node.start:
                merge(state, cut(state, node, begin - node.start), incoming, tick)
            old = node.data[FULL].device or ()
            release(state, FULL, GPU, old)
            node.data[FULL].device = incoming.full(begin, node.end)
            incoming.freed[FULL] += len(old)
            insert._merge_window(state, node, begin, incoming, tick)

        return merge_anew

    wrap(overrides, insert, insert._merge, wrapper)


def windowless_leaves_dropped(overrides: Overrides) -> None:
    """What would be a leaf without window data is freed (`tombstone_leaves`)."""

    def wrapper(fill: FillLeaf) -> FillLeaf:
        def fill_or_drop(state: State, leaf: Node, incoming: _Incoming, tick: int) -> Node:
            if SWA not in leaf.data or incoming.slots.swa:
                return fill(state, leaf, incoming, tick)
            dropped = {
                FULL: incoming.full(leaf.start, leaf.end),
                MAMBA: incoming.slots.mamba,
            }
            for component, slots in dropped.items():
                if slots:
                    release(state, component, GPU, slots)
                    incoming.freed[component] += len(slots)
            incoming.slots = evolve(incoming.slots, mamba=())
            parent = leaf.parent
            assert parent is not None
            remove_leaf(state, leaf)
            return parent

        return fill_or_drop

    wrap(overrides, insert, insert._fill_leaf, wrapper)


def _is_tombstone(node: Node) -> bool:
    """Whether a node has full data on the device that nobody holds, and no window data there."""
    if SWA not in node.data or node.data[FULL].device is None or node.data[FULL].lock_refs:
        return False
    return node.data[SWA].device is None
