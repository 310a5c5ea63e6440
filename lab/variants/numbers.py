"""Numbers: variations of the ids of slots, nodes, receipts and transfers.

Ids have no meaning: a smaller id is not older.
"""

from __future__ import annotations

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import variation
from kvcanon.lab.variants.wrapped_rules import Original, around, everywhere, instead, wrap
from kvcanon.reference import state as states
from kvcanon.reference import tree
from kvcanon.reference.state import Node, Pool, State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Slot

_PRIME = 65_521
_STRIDE = 48_271


@variation
@instead(Pool.take, Pool)
def high_slots_first(self: Pool, count: int) -> tuple[Slot, ...]:
    """The free slot with the highest number is taken first."""
    free = sorted((*self.returned, *range(self.untouched, self.capacity)))
    kept = len(free) - count
    self.returned, self.untouched = free[:kept], self.capacity
    return tuple(reversed(free[kept:]))


@variation
def scattered_ids(overrides: Overrides) -> None:
    """Ids are large and in no order."""

    def id_wrapper(new_id: Original[int], self: State) -> int:
        return new_id(self) * _STRIDE % _PRIME

    def root_wrapper(fresh: Original[Node], config: CacheConfig) -> Node:
        root = fresh(config)
        root.node_id = _PRIME
        return root

    wrap(overrides, State, State.new_id, id_wrapper)
    wrap(overrides, states, states._fresh_root, root_wrapper)


@variation
@around(tree.cut, *everywhere(tree.cut))
def upper_parts_keep_ids(cut: Original[Node], state: State, node: Node, at: int) -> Node:
    """When a node is cut, the upper part keeps the id, and the lower part gets a new one."""
    upper = cut(state, node, at)
    upper.node_id, node.node_id = node.node_id, upper.node_id
    state.nodes[upper.node_id], state.nodes[node.node_id] = upper, node
    return upper
