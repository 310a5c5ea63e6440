"""Evictions: variations of what is evicted along with the chosen victim.

Everything that is evicted must be counted in the eviction's answer and emitted as events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import variation
from kvcanon.lab.variants.wrapped_rules import Original, wrap
from kvcanon.reference import departures, evict, victims
from kvcanon.reference.state import Node, State
from kvcanon.spec.types import SWA, Medium

Leaves = Callable[[State, Medium, int], Iterator[Node]]


@variation
def uncovered_tombstones_leave(overrides: Overrides) -> None:
    """Evicting a leaf evicts tombstones that become leaves, too."""

    def evict_wrapper(evict_leaf: Original[None], state: State, leaf: Node) -> None:
        above = leaf.parent
        evict_leaf(state, leaf)
        while above is not None and _is_bare_leaf(above):
            leaf, above = above, above.parent
            if departures.is_departing(state, leaf):
                # Its window leaves before the rest of it.
                departures.end_departures(state)
            evict_leaf(state, leaf)

    def turns_wrapper(
        leaves_in_turn: Leaves, state: State, medium: Medium, enough: int
    ) -> Iterator[Node]:
        # After several evictions in a row the leaves have changed.
        while (leaf := next(leaves_in_turn(state, medium, enough), None)) is not None:
            yield leaf

    wrap(overrides, evict, evict._evict_leaf, evict_wrapper)
    wrap(overrides, evict, victims.leaves_in_turn, turns_wrapper)


def _is_bare_leaf(node: Node) -> bool:
    """Whether a node is a leaf that may be evicted and has no window data on the device."""
    return SWA in node.data and node.data[SWA].device is None and victims.is_device_leaf(node)
