"""Faults of recency: wrong nodes become recent, and wrong nodes are evicted first.

Recency is not only a matter of speed: window data that is wrongly recent keeps unreachable data.
"""

from __future__ import annotations

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, host_insert, insert, match, tree, victims
from kvcanon.reference.state import Node, State
from kvcanon.spec.operations import Inserted
from kvcanon.spec.oracle.window import window_nodes
from kvcanon.spec.types import MAMBA, SWA, Component, Key, Slots


@mutant("REC-1", "A3 sgl#26615", founding=True)
def refresh_whole_path(patch: Overrides) -> None:
    """A use makes window data recent that is far before its end."""
    patch.setattr(match, "window_nodes", lambda lengths, *_: len(lengths))


@mutant("REC-1")
def refresh_last_node_only(patch: Overrides) -> None:
    """A use makes only the window data of its last node recent, not all of the window."""
    patch.setattr(match, "window_nodes", lambda *args: min(1, window_nodes(*args)))


@mutant("REC-1", "A3 sgl#26615")
def cushion_stays_behind(patch: Overrides) -> None:
    """A use does not refresh the page before the window, which the next token may need."""
    patch.setattr(
        match, "window_nodes", lambda lengths, window, _: window_nodes(lengths, window, 0)
    )


@mutant("REC-2", "A30 sgl#8931")
def match_refreshes_nothing(patch: Overrides) -> None:
    """A match makes nothing recent."""
    patch.setattr(match, "touch", lambda *_: None)


@mutant("REC-3")
def evict_most_recent_first(patch: Overrides) -> None:
    """An eviction takes the most recent leaf first, whatever the policy."""
    patch.setattr(victims, "rank", lambda state, node: (0, -node.last_access))


@mutant("REC-4", "B16 tokenspeed#248")
@instead(State.tick, State)
def two_uses_share_a_moment(state: State) -> int:
    """Two uses can have the same tick, so that chance decides which leaf is older."""
    state.clock += 1
    return state.clock // 2


@mutant("REC-5", "A25 sgl#31643")
@around(match.touch, match, insert)
def refresh_every_state_above(touch: Original[None], state: State, end: Node, tick: int) -> None:
    """A use makes all mamba states of its path recent, not only the one at its end."""
    touch(state, end, tick)
    if state.config.mamba:
        for node in tree.upwards(end):
            node.data[MAMBA].used = tick


@mutant("REC-6", "vllm#47802")
@around(insert.insert, cache)
def insert_ignores_priority(
    usual: Original[Inserted],
    state: State,
    key: Key,
    start_pages: int,
    some: Slots,
    **more: object,
) -> Inserted:
    """An insert ignores its priority."""
    return usual(state, key, start_pages, some, **more | {"priority": 0})


@mutant("REC-6")
@around(insert._merge_window)
def healed_windows_are_old(
    merge: Original[None],
    state: State,
    node: Node,
    begin: int,
    incoming: insert._Incoming,
    tick: int,
) -> None:
    """Window data that heals a tombstone is as old as its node."""
    was = node.data[SWA].used if SWA in node.data else 0
    merge(state, node, begin, incoming, was)


@mutant("REC-6")
@around(host_insert._fill)
def fetched_data_is_old(
    fill: Original[None],
    state: State,
    node: Node,
    component: Component,
    payloads: tuple[bytes, ...],
    _tick: int,
) -> None:
    """Fetched window data and states at present pages are as old as those pages."""
    fill(state, node, component, payloads, node.data[component].used)


@mutant("REC-6")
@around(insert._fill_leaf)
def cut_leaf_has_two_ages(
    fill_leaf: Original[Node], state: State, leaf: Node, incoming: insert._Incoming, tick: int
) -> Node:
    """A new leaf that is cut at its window has two ages, one for each part."""
    above = leaf.parent
    end = fill_leaf(state, leaf, incoming, tick)
    for node in tree.upwards(end):
        if node is above:
            break
        if node is not end:
            node.created = state.tick()
    return end
