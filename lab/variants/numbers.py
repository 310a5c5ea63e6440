"""Numbers: variations of the ids of slots, nodes, receipts and transfers.

Ids have no meaning: a smaller id is not older.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import variation
from kvcanon.lab.variants.wrapped_rules import wrap, wrap_everywhere
from kvcanon.reference import state as states
from kvcanon.reference import tree
from kvcanon.reference.state import Node, Pool, State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Slot

_PRIME = 65_521
_STRIDE = 48_271


@variation
def high_slots_first(overrides: Overrides) -> None:
    """The free slot with the highest number is taken first."""

    def wrapper(_: Callable[[Pool, int], tuple[Slot, ...]]) -> Callable[..., tuple[Slot, ...]]:
        def take_highest(self: Pool, count: int) -> tuple[Slot, ...]:
            free = sorted((*self.returned, *range(self.untouched, self.capacity)))
            kept = len(free) - count
            self.returned, self.untouched = free[:kept], self.capacity
            return tuple(reversed(free[kept:]))

        return take_highest

    wrap(overrides, Pool, Pool.take, wrapper)


@variation
def scattered_ids(overrides: Overrides) -> None:
    """Ids are large and in no order."""

    def id_wrapper(new_id: Callable[[State], int]) -> Callable[[State], int]:
        def scattered_id(self: State) -> int:
            return new_id(self) * _STRIDE % _PRIME

        return scattered_id

    def root_wrapper(fresh: Callable[[CacheConfig], Node]) -> Callable[[CacheConfig], Node]:
        def root_with_id(config: CacheConfig) -> Node:
            root = fresh(config)
            root.node_id = _PRIME
            return root

        return root_with_id

    wrap(overrides, State, State.new_id, id_wrapper)
    wrap(overrides, states, states._fresh_root, root_wrapper)


@variation
def upper_parts_keep_ids(overrides: Overrides) -> None:
    """When a node is cut, the upper part keeps the id, and the lower part gets a new one."""

    def wrapper(cut: Callable[[State, Node, int], Node]) -> Callable[[State, Node, int], Node]:
        def cut_and_swap(state: State, node: Node, at: int) -> Node:
            upper = cut(state, node, at)
            upper.node_id, node.node_id = node.node_id, upper.node_id
            state.nodes[upper.node_id], state.nodes[node.node_id] = upper, node
            return upper

        return cut_and_swap

    wrap_everywhere(overrides, tree.cut, wrapper)
