"""Uses: what becomes recent beside what must, and which of equals goes first.

What readers get wrong: recency is evidence, and the book says of what. Where it leaves a choice, as
with the page before a window, either is lawful; where a profile widens it, only as far as it says.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.overriding import Overrides
from kvcanon.conformance.variants.rules import wrap, wrap_everywhere
from kvcanon.reference import host, tree, victims
from kvcanon.reference import match as matching
from kvcanon.reference.state import Node, State
from kvcanon.spec.oracle.window import window_nodes
from kvcanon.spec.types import CPU, FULL, MAMBA

Cut = Callable[[State, Node, int], Node]
Touch = Callable[[State, Node, int], None]


def recent_lower_parts(overrides: Overrides) -> None:
    """A cut moves what lies below it to the most recent end (`split_keeps_recency`)."""

    def wrapper(cut: Cut) -> Cut:
        def cut_and_move(state: State, node: Node, at: int) -> Node:
            upper = cut(state, node, at)
            _move(state, node)
            return upper

        return cut_and_move

    wrap_everywhere(overrides, tree.cut, wrapper)


def recent_upper_parts(overrides: Overrides) -> None:
    """A cut moves what lies above it to the most recent end (`split_keeps_recency`)."""

    def wrapper(cut: Cut) -> Cut:
        def cut_and_move(state: State, node: Node, at: int) -> Node:
            upper = cut(state, node, at)
            _move(state, upper)
            return upper

        return cut_and_move

    wrap_everywhere(overrides, tree.cut, wrapper)


def states_on_the_path(overrides: Overrides) -> None:
    """A use makes every recurrent state on its path recent (`mamba_refresh`)."""

    def wrapper(touch: Touch) -> Touch:
        def touch_states(state: State, end: Node, tick: int) -> None:
            touch(state, end, tick)
            for node in tree.upwards(end) if state.config.mamba else ():
                node.data[MAMBA].used = tick

        return touch_states

    wrap_everywhere(overrides, matching.touch, wrapper)


def bare_windows(overrides: Overrides) -> None:
    """A use makes recent the nodes of its window, and not those of the page before it."""

    def wrapper(
        count: Callable[[tuple[int, ...], int, int], int],
    ) -> Callable[[tuple[int, ...], int, int], int]:
        def count_bare(lengths: tuple[int, ...], window_tokens: int, page_size: int) -> int:
            return count(lengths, window_tokens - page_size, page_size)

        return count_bare

    wrap(overrides, matching, window_nodes, wrapper)


def recent_duplicates_first(overrides: Overrides) -> None:
    """Under write_back, of host copies that the device has too the most recent one goes first."""

    def wrapper(_: Callable[[State, int], None]) -> Callable[[State, int], None]:
        def evict_recent_duplicates(state: State, enough: int) -> None:
            writes_back = state.config.host_tier and not state.config.backed_parents
            pool = state.pools[FULL, CPU]
            for node in reversed(victims.least_recent_first(state, FULL, CPU)):
                if writes_back and pool.free_slots < enough and host._is_duplicate(node):
                    victims.vacate(state, node, CPU)

        return evict_recent_duplicates

    wrap(overrides, host, host._evict_duplicates, wrapper)


def _move(state: State, node: Node) -> None:
    """Put a node to the most recent end of every order: no other was used at that tick."""
    node.last_access = state.tick()
    for data in node.data.values():
        data.used = node.last_access
