"""Inserts: variations of what counts as a hit, whose slots stay, and which leaves are kept.

If a request and the tree hold the same page, either slot may be freed unless a request reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import variation
from kvcanon.lab.variants.wrapped_rules import Original, around, wrap, wrap_everywhere
from kvcanon.reference import cache, insert
from kvcanon.reference import match as matching
from kvcanon.reference.insert import _Incoming
from kvcanon.reference.slots import release
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import cut, remove_leaf, walk
from kvcanon.spec.operations import Inserted, Matched
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Key, Slots

Merge = Callable[[State, Node, _Incoming, int], None]
MergeWindow = Callable[[State, Node, int, _Incoming, int], None]
FillLeaf = Callable[[State, Node, _Incoming, int], Node]


@variation
def matches_count_hits(overrides: Overrides) -> None:
    """A match counts hits on the prefix that it finds, an insert none."""

    def wrapper(match: Original[Matched], state: State, key: Key) -> Matched:
        matched = match(state, key)
        for node, _ in walk(state, key):
            if node.start < matched.prefix_pages:
                node.hit_count += 1
        return matched

    wrap(overrides, cache, matching.match, wrapper)
    _count_from(overrides, lambda state, key, counted_pages: len(key))  # noqa: ARG005 # None do.


@variation
def unreachable_windows_dropped(overrides: Overrides) -> None:
    """Window slots that the key's end does not reach are freed."""

    def merge_wrapper(
        merge: MergeWindow, state: State, node: Node, begin: int, incoming: _Incoming, tick: int
    ) -> None:
        reached = max(begin, min(node.end, _reach(state, incoming)))
        if SWA in node.data and begin < reached and node.data[SWA].device is None:
            insert._free(state, SWA, incoming.swa(begin, reached), incoming)
            begin = reached
        merge(state, node, begin, incoming, tick)

    def fill_wrapper(
        fill: FillLeaf, state: State, leaf: Node, incoming: _Incoming, tick: int
    ) -> Node:
        begin = max(leaf.start, incoming.swa_from)
        dropped = incoming.swa(begin, max(begin, _reach(state, incoming)))
        if SWA in leaf.data and dropped:
            kept = incoming.slots.swa[begin - incoming.swa_from + len(dropped) :]
            incoming.slots = evolve(incoming.slots, swa=kept)
            incoming.swa_from = begin + len(dropped)
            insert._free(state, SWA, dropped, incoming)
        return fill(state, leaf, incoming, tick)

    wrap(overrides, insert, insert._merge_window, merge_wrapper)
    wrap(overrides, insert, insert._fill_leaf, fill_wrapper)


def _reach(state: State, incoming: _Incoming) -> int:
    """Return the first page whose window data the end of the inserted key needs."""
    end = incoming.full_from + len(incoming.slots.full)
    return window_start(end, state.config.window_tokens or 1, state.config.page_size)


@variation
def every_insert_hits(overrides: Overrides) -> None:
    """An insert counts a hit on all of its path."""
    _count_from(overrides, lambda state, key, counted_pages: 0)  # noqa: ARG005 # All begins there.


@variation
def idle_hits_uncounted(overrides: Overrides) -> None:
    """An insert counts no hit if no policy depends on hits."""
    _count_from(
        overrides,
        lambda state, key, counted_pages: counted_pages if state.config.goes_by_hits else len(key),
    )


def _count_from(overrides: Overrides, first: Callable[[State, Key, int], int]) -> None:
    """Let inserts count hits from another page on; passes a wrong `counted_pages` unchanged."""

    def wrapper(
        usual: Original[Inserted],
        state: State,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int,
        **more: object,
    ) -> Inserted:
        is_page = 0 <= counted_pages <= len(key)
        counted = first(state, key, counted_pages) if is_page else counted_pages
        return usual(state, key, start_pages, slots, counted_pages=counted, **more)

    wrap_everywhere(overrides, insert.insert, wrapper)


@variation
@around(insert._merge)
def new_slots_heal(merge: Merge, state: State, node: Node, incoming: _Incoming, tick: int) -> None:
    """A tombstone that nobody holds takes full slots with its window slots."""
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


@variation
@around(insert._fill_leaf)
def windowless_leaves_dropped(
    fill: FillLeaf, state: State, leaf: Node, incoming: _Incoming, tick: int
) -> Node:
    """A new leaf without window data is freed."""
    if SWA not in leaf.data or incoming.slots.swa:
        return fill(state, leaf, incoming, tick)
    insert._free(state, FULL, incoming.full(leaf.start, leaf.end), incoming)
    _keep_states(state, incoming, [page for page in incoming.state_pages if page <= leaf.start])
    parent = leaf.parent
    assert parent is not None
    remove_leaf(state, leaf)
    return parent


@variation
@around(insert._attach_states)
def one_state_a_path(
    attach: Original[None], state: State, end: Node, incoming: _Incoming, tick: int
) -> None:
    """An insert keeps the deepest of the mamba states that it is handed, and frees the others."""
    _keep_states(state, incoming, incoming.state_pages[-1:])
    attach(state, end, incoming, tick)


def _keep_states(state: State, incoming: _Incoming, pages: Sequence[int]) -> None:
    """Free the incoming states that are not at the end of one of these pages."""
    pairs = list(zip(incoming.state_pages, incoming.slots.mamba, strict=True))
    freed = tuple([slot for page, slot in pairs if page not in pages])
    kept = tuple([(page, slot) for page, slot in pairs if page in pages])
    if freed:
        insert._free(state, MAMBA, freed, incoming)
    incoming.state_pages = tuple([page for page, _ in kept])
    incoming.slots = evolve(incoming.slots, mamba=tuple([slot for _, slot in kept]))


def _is_tombstone(node: Node) -> bool:
    """Whether a node has unlocked full data on the device, and no window data there."""
    if SWA not in node.data or node.data[FULL].device is None or node.data[FULL].lock_refs:
        return False
    return node.data[SWA].device is None
