"""Victims: the data that may be evicted, and in which order.

A whole node may be evicted only if it is a leaf; the policy orders the leaves. Window data and
mamba states may be evicted from any node, always least recently used first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from kvcanon.reference.state import Node, PoolName, State
from kvcanon.spec.oracle.eviction import (
    may_leave_device,
    may_leave_host,
    policy_key,
    pre_evict_need,
    victim_order,
)
from kvcanon.spec.types import CPU, FULL, Component, Medium, NodeId


def is_device_leaf(node: Node) -> bool:
    """Whether a whole node may be evicted from the device; children on the host do not matter."""
    return node.parent is not None and may_leave_device(
        node.data[FULL].device is not None,
        node.locked,
        any(child.data[FULL].device is not None for child in node.children.values()),
    )


def is_host_leaf(node: Node) -> bool:
    """Whether a whole node may be evicted from the host, and so leave the tree."""
    full = node.data[FULL]
    return may_leave_host(
        full.device is not None, full.host is not None, node.locked, bool(node.children)
    )


def leaves_in_turn(state: State, medium: Medium, enough: int) -> Iterator[Node]:
    """Leaves in the order of the policy, until a medium has `enough` free full slots.

    The caller must evict each leaf before it takes the next one: the parent may become a leaf.
    """
    is_leaf = is_host_leaf if medium is CPU else is_device_leaf
    pool, owners = state.pools[FULL, medium], state.owners[FULL, medium]
    if not pre_evict_need(enough, pool.free_slots):
        return
    leaves = [(rank(state, node), node.node_id) for node in owners if is_leaf(node)]
    heapq.heapify(leaves)
    while leaves and pre_evict_need(enough, pool.free_slots):
        node = state.nodes[heapq.heappop(leaves)[1]]
        parent = node.parent
        assert parent is not None  # The root has no data.
        yield node
        if is_leaf(parent):
            heapq.heappush(leaves, (rank(state, parent), parent.node_id))


def rank(state: State, node: Node) -> tuple[int, int]:
    """The policy key of a leaf; the leaf with the smallest is evicted first."""
    return policy_key(
        state.config.eviction_policy,
        node.hit_count,
        node.last_access,
        node.created,
        node.priority,
    )


def least_recent_first(state: State, component: Component, medium: Medium) -> list[Node]:
    """The nodes with a component's data on a medium, in LRU order.

    Of nodes that were used by one operation the upper one comes first.
    """
    owners = list(state.owners[component, medium])
    if len(owners) < 2:
        return owners
    if component is FULL:
        keys = tuple([(node.last_access, node.start) for node in owners])
    else:
        keys = tuple([(node.data[component].used, node.start) for node in owners])
    return [owners[at] for at in victim_order(keys)]


def recency_orders(state: State) -> dict[PoolName, tuple[NodeId, ...]]:
    """The LRU order of every pool, by the ids of nodes."""
    return {
        name: tuple([node.node_id for node in least_recent_first(state, *name)])
        for name in state.pools
    }
