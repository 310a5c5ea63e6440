"""Victims: who may leave, and in which order.

What readers get wrong: a whole node may leave only as a leaf, but window data and states may leave
from anywhere. The first are ranked by the policy, the others always by their last use.
"""

from __future__ import annotations

from kvcanon.reference.state import Node, State
from kvcanon.spec.oracle.eviction import policy_key
from kvcanon.spec.types import FULL, Component, Medium


def is_device_leaf(node: Node) -> bool:
    """Whether a node may leave the device as a whole: children on the host alone do not matter."""
    return (
        node.parent is not None
        and node.data[FULL].device is not None
        and not node.locked
        and all(child.data[FULL].device is None for child in node.children.values())
    )


def rank(state: State, node: Node) -> tuple[int, int]:
    """The node's place in the order of the policy; the smallest leaves first."""
    return policy_key(
        state.config.eviction_policy,
        node.hit_count,
        node.last_access,
        node.created,
        node.priority,
    )


def least_recent_first(state: State, component: Component, medium: Medium) -> list[Node]:
    """The nodes with a component's data on a medium; of those used at once the upper first."""
    owners = state.owners[component, medium]
    if component is FULL:
        return sorted(owners, key=lambda node: (node.last_access, node.start, node.node_id))
    return sorted(owners, key=lambda node: (node.data[component].used, node.start, node.node_id))
