"""Snapshots: the state of the cache as a value.

A snapshot copies what the cache has. It computes only the counts of evictable and protected slots,
which are those that the cache would report to an engine.

Most nodes, pools, holds and transfers are as they were at the snapshot before, and making new
values would take most of the time. So a value is made again only where a fact of it changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kvcanon.reference.events import pending_events
from kvcanon.reference.state import Hold, Node, OpenOrder, Pool, Shown, State, Tier, Transfer, Value
from kvcanon.reference.victims import recency_orders
from kvcanon.spec.snapshot import (
    ComponentState,
    HoldState,
    NodeState,
    PoolState,
    Snapshot,
    TransferState,
    Usage,
)
from kvcanon.spec.tier import OrderState, StoreState
from kvcanon.spec.types import GPU, Component


def take_snapshot(state: State) -> Snapshot:
    """The whole state."""
    return Snapshot(
        config=state.config,
        root_id=state.root.node_id,
        nodes={node_id: _node_state(node) for node_id, node in state.nodes.items()},
        recency=recency_orders(state),
        pools={name: _pool_state(pool) for name, pool in state.pools.items()},
        usage={component: _usage(state, component) for component in state.config.components},
        swa_of_full=dict(state.swa_of_full),
        holds=tuple([_hold_state(held) for held in state.holds.values()]),
        transfers=tuple([_transfer_state(each) for each in state.transfers.values()]),
        events=pending_events(state),
        store=None if state.tier is None else _store_state(state.tier),
    )


def _store_state(tier: Tier) -> StoreState:
    return StoreState(
        tier.queue.medium,
        tier.is_open,
        dict(tier.stored),
        tuple([_order_state(order) for order in tier.orders.values()]),
    )


def _order_state(order: OpenOrder) -> OrderState:
    return OrderState(
        order.order_id,
        order.kind,
        order.key,
        order.start,
        order.slots,
        order.pages,
        order.ended,
        order.cancelled,
    )


def _usage(state: State, component: Component) -> Usage:
    evictable = protected = 0
    for node in state.owners[component, GPU]:
        data = node.data[component]
        if data.lock_refs:
            protected += len(data.device or ())
        else:
            evictable += len(data.device or ())
    return Usage(evictable, protected)


class _Shows(Protocol[Value]):
    """An object of the cache that a snapshot shows as a value."""

    shown: Shown[Value]


def _as_value(
    shows: _Shows[Value], facts: tuple[object, ...], make: Callable[[Any], Value]
) -> Value:
    """An object as a value; the same one as before if these facts, all that it shows, are equal.

    Nodes are among the facts by their ids, which need not stay: a cut may give them anew.
    """
    if shows.shown is None or shows.shown[0] != facts:
        shows.shown = facts, make(shows)
    return shows.shown[1]


def _node_state(node: Node) -> NodeState:
    facts = (
        node.node_id,
        None if node.parent is None else node.parent.node_id,
        [child.node_id for child in node.children.values()],
        node.namespace,
        node.pages,
        node.hit_count,
        node.priority,
        node.created,
        node.last_access,
        node.hashes,
        [
            (data.device, data.host, data.lock_refs, data.loading, data.backing)
            for data in node.data.values()
        ],
    )
    return _as_value(node, facts, _new_node_state)


def _new_node_state(node: Node) -> NodeState:
    return NodeState(
        node_id=node.node_id,
        parent_id=None if node.parent is None else node.parent.node_id,
        child_ids=tuple([child.node_id for child in node.children.values()]),
        namespace=node.namespace,
        pages=node.pages,
        data={
            component: ComponentState(
                data.device,
                data.host,
                data.lock_refs,
                None if data.loading is None else data.loading.transfer_id,
                None if data.backing is None else data.backing.transfer_id,
            )
            for component, data in node.data.items()
        },
        hit_count=node.hit_count,
        priority=node.priority,
        created=node.created,
        last_access=node.last_access,
        hashes=node.hashes,
    )


def _pool_state(pool: Pool) -> PoolState:
    facts = (pool.capacity, pool.untouched, [*pool.returned], {*pool.held})
    return _as_value(pool, facts, _new_pool_state)


def _new_pool_state(pool: Pool) -> PoolState:
    free = (*pool.returned, *range(pool.untouched, pool.capacity))
    return PoolState(pool.capacity, free, frozenset(pool.held))


def _hold_state(held: Hold) -> HoldState:
    facts = (
        held.receipt,
        held.node.node_id,
        held.window_from,
        held.state_held,
        held.transfer,
    )
    return _as_value(held, facts, _new_hold_state)


def _new_hold_state(held: Hold) -> HoldState:
    return HoldState(
        receipt_id=held.receipt.receipt_id,
        node_id=held.node.node_id,
        window_from_pages=held.window_from,
        state_held=held.state_held,
        transfer_id=None if held.transfer is None else held.transfer.transfer_id,
    )


def _transfer_state(transfer: Transfer) -> TransferState:
    facts = (
        [(node.node_id, component) for node, component in transfer.parts],
        {**transfer.sources},
        {**transfer.targets},
        transfer.cancelled,
    )
    return _as_value(transfer, facts, _new_transfer_state)


def _new_transfer_state(transfer: Transfer) -> TransferState:
    return TransferState(
        transfer_id=transfer.transfer_id,
        direction=transfer.direction,
        parts=tuple([(node.node_id, component) for node, component in transfer.parts]),
        sources=dict(transfer.sources),
        targets=dict(transfer.targets),
        cancelled=transfer.cancelled,
    )
