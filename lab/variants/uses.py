"""Uses: variations of which data becomes recent, and which of equal victims is evicted first.

The laws leave some choices free, such as whether the page before a window becomes recent; a profile
may declare more.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from weakref import WeakKeyDictionary

from attrs import Factory, define

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import lone_variation, variation
from kvcanon.lab.variants.wrapped_rules import (
    Original,
    around,
    everywhere,
    instead,
    wrap_everywhere,
)
from kvcanon.reference import departures, host, tree, victims
from kvcanon.reference import match as matching
from kvcanon.reference.state import Node, State
from kvcanon.spec.oracle.window import window_nodes
from kvcanon.spec.types import CPU, FULL, MAMBA, Component, Medium, NodeId

Cut = Callable[[State, Node, int], Node]
Touch = Callable[[State, Node, int], None]
Order = Callable[[State, Component, Medium], list[Node]]


@variation
@around(tree.cut, *everywhere(tree.cut))
def recent_lower_parts(cut: Cut, state: State, node: Node, at: int) -> Node:
    """A cut makes the lower part most recent."""
    upper = cut(state, node, at)
    _move(state, node)
    return upper


@lone_variation
@around(tree.cut, *everywhere(tree.cut))
def recent_upper_parts(cut: Cut, state: State, node: Node, at: int) -> Node:
    """A cut makes the upper part most recent."""
    upper = cut(state, node, at)
    _move(state, upper)
    return upper


@variation
@around(matching.touch, *everywhere(matching.touch))
def states_on_the_path(touch: Touch, state: State, end: Node, tick: int) -> None:
    """A use makes every mamba state on its path recent."""
    touch(state, end, tick)
    for node in tree.upwards(end) if state.config.mamba else ():
        node.data[MAMBA].used = tick


@variation
def host_in_order_of_arrival(overrides: Overrides) -> None:
    """Host data is evicted in the order in which it left the device."""
    arrivals: WeakKeyDictionary[State, _Arrivals] = WeakKeyDictionary()

    def order_wrapper(
        order: Order, state: State, component: Component, medium: Medium
    ) -> list[Node]:
        usual = order(state, component, medium)
        if component is FULL or medium is not CPU:
            return usual
        alone = [node for node in usual if node.data[component].device is None]
        return arrivals.setdefault(state, _Arrivals()).ordered(alone, component)

    def cut_wrapper(cut: Cut, state: State, node: Node, at: int) -> Node:
        upper = cut(state, node, at)
        arrivals.setdefault(state, _Arrivals()).follow_cut(upper, node)
        return upper

    wrap_everywhere(overrides, victims.least_recent_first, order_wrapper)
    wrap_everywhere(overrides, tree.cut, cut_wrapper)


@variation
@around(window_nodes, matching)
def bare_windows(
    count: Original[int], lengths: tuple[int, ...], window_tokens: int, page_size: int
) -> int:
    """A use makes the nodes of its window recent, but not those of the page before it."""
    return count(lengths, window_tokens - page_size, page_size)


@variation
@instead(host._evict_duplicates)
def recent_duplicates_first(state: State, enough: int) -> None:
    """Under write_back, of duplicates on the host, the most recent is evicted first."""
    writes_back = state.config.host_tier and not state.config.backed_parents
    pool = state.pools[FULL, CPU]
    for node in reversed(victims.least_recent_first(state, FULL, CPU)):
        if writes_back and pool.free_slots < enough and host._is_duplicate(node):
            departures.vacate(state, node, CPU)


def _move(state: State, node: Node) -> None:
    """Move a node to the most recent end of every order; nothing else was used at that tick."""
    node.last_access = state.tick()
    for data in node.data.values():
        data.used = node.last_access


@define
class _Arrivals:
    """The order in which data became host-only."""

    places: dict[tuple[Component, NodeId], int] = Factory(dict)
    clock: count[int] = Factory(count)

    def ordered(self, alone: list[Node], component: Component) -> list[Node]:
        """Return the host-only nodes in the order in which they became so."""
        names = [(component, node.node_id) for node in alone]
        for name in [name for name in self.places if name[0] is component and name not in names]:
            del self.places[name]
        for name in names:
            self.places.setdefault(name, next(self.clock))
        return sorted(alone, key=lambda node: (self.places[component, node.node_id], node.start))

    def follow_cut(self, upper: Node, lower: Node) -> None:
        """Follow a cut: both parts became host-only together; the lower has the mamba state."""
        for component in upper.data:
            place = self.places.get((component, lower.node_id))
            if place is not None and component is not MAMBA:
                self.places[component, upper.node_id] = place
