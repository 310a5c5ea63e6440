"""Cuts: variations of where nodes begin and end.

The plain cache cuts a node where a usable prefix, a key or a window ends in it, and never joins
nodes. Other caches cut less and evict more at once, or cut more, down to one node per page. A cache
that does not cut a node that is used in part makes the whole node recent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from kvcanon.lab.variants.joining import join, join_all, may_join
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import lone_variation, variation
from kvcanon.lab.variants.wrapped_rules import Original, around, wrap
from kvcanon.reference import (
    cache,
    evict,
    host,
    host_insert,
    insert,
    load,
    lock,
    transfer,
    tree,
    victims,
)
from kvcanon.reference import match as matching
from kvcanon.reference.state import Node, State
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import FULL, Key, Medium

Answer = TypeVar("Answer")


@variation
@around(matching.match, cache)
def uncut_matches(match: Original[Matched], state: State, key: Key) -> Matched:
    """A match that ends inside a node does not cut it, and makes all of it recent."""
    before = set(state.nodes.values())
    matched = match(state, key)
    for node in set(state.nodes.values()) - before:
        join(state, node)
    return matched


@variation
@around(insert._fill_leaf)
def whole_leaves(fill: Original[Node], state: State, *args: object, **kwargs: object) -> Node:
    """A new leaf is not cut where its window begins, and is evicted whole."""
    before = set(state.nodes.values())
    end = fill(state, *args, **kwargs)
    above = end.parent
    if above is not None and above not in before and may_join(state, above):
        join(state, above)
    return end


@variation
def joined_chains(overrides: Overrides) -> None:
    """After every operation, a node and its only child are joined if nothing distinguishes them."""
    for rule in (
        matching.match,
        insert.insert,
        lock.lock,
        lock.unlock,
        lock.unlock_window,
        evict.evict,
        host.evict_host,
        host_insert.insert_host,
        load.load_back,
        transfer.settle,
        transfer.flush,
    ):
        wrap(overrides, cache, rule, _joining)


@lone_variation
def page_nodes(overrides: Overrides) -> None:
    """Every node has one page, as in a pool of hashed blocks."""

    def wrapper(make: Original[Node], state: State, *args: object, **kwargs: object) -> Node:
        end = make(state, *args, **kwargs)
        for node in tree.path_to(end):
            while len(node.pages) > 1:
                tree.cut(state, node, 1)
        return end

    wrap(overrides, insert, insert._fill_leaf, wrapper)
    wrap(overrides, host_insert, host_insert._new_host_leaf, wrapper)


@lone_variation
@around(matching.match, cache)
def cuts_where_walks_end(match: Original[Matched], state: State, key: Key) -> Matched:
    """A match cuts where the walk ended, though the usable prefix may end before."""
    stops = tree.walk(state, key)
    tree.node_ending_at(state, stops, tree.walked_pages(stops))
    return match(state, key)


@lone_variation
def halved_nodes(overrides: Overrides) -> None:
    """Before a match, and before copies settle, the longest node is cut in two, wherever it is."""

    def wrapper(rule: Original[Answer], state: State, *args: object, **kwargs: object) -> Answer:
        longest = max(state.nodes.values(), key=lambda node: len(node.pages))
        if len(longest.pages) > 1:
            tree.cut(state, longest, len(longest.pages) // 2)
        return rule(state, *args, **kwargs)

    for rule in (matching.match, transfer.settle, transfer.flush):
        wrap(overrides, cache, rule, wrapper)


@lone_variation
@around(victims.leaves_in_turn, evict)
def leaving_tails(
    leaves_in_turn: Original[Iterator[Node]], state: State, medium: Medium, enough: int
) -> Iterator[Node]:
    """Of the last victim, only as many pages as are still needed are evicted, from its end."""
    for leaf in leaves_in_turn(state, medium, enough):
        kept = len(leaf.pages) - (enough - state.pools[FULL, medium].free_slots)
        if kept > 0:
            tree.cut(state, leaf, kept)
        yield leaf


def _joining(rule: Original[Answer], state: State, /, *args: object, **kwargs: object) -> Answer:
    """Wrap a rule: after it, join all nodes that may be joined."""
    answer = rule(state, *args, **kwargs)
    join_all(state)
    return answer
