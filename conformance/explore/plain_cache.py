"""Copies the plain cache, and reads its state that no snapshot shows.

An exploration mostly goes back to a state and tries another action. Replaying the path takes longer
the longer the path is; copying the few objects of a small plain cache does not.

A copy may share only immutable objects with its original. Nodes, holds and transfers point at each
other and at the state, and the engine's orders point at transfers; all of them are made anew.
"""

# ruff: noqa: SLF001  # Copying an object needs its private fields.

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attrs import frozen

from kvcanon.conformance.explore.stored import copied_below, traces_of_queue
from kvcanon.conformance.protocol.wrapped_cache import WrappedCache
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.reference.state import Data, Hold, Node, Pool, State, Transfer
from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.transfer import TransferOrder
from kvcanon.spec.types import Component, Medium, NodeId, Slot, TransferId


@frozen
class Hidden:
    """State of the plain cache that no snapshot shows, though its future depends on it."""

    used: Mapping[NodeId, tuple[int, ...]]
    """Ticks of the last use of each node's components, in their order."""
    arrived: Mapping[TransferId, bool]
    """Completed copies that wait for earlier ones to be settled; True if the copy succeeded."""
    payloads: Mapping[tuple[Component, Medium], Mapping[Slot, bytes]]
    """The bytes behind the slots that were written."""


def hidden_in(cache: object) -> Hidden | None:
    """The hidden state of a plain cache, or of one that wraps it; None for other caches."""
    while isinstance(cache, WrappedCache):
        cache = cache._cache
    if not isinstance(cache, ReferenceCache):
        return None
    state = cache._state
    return Hidden(
        {
            node_id: tuple([data.used for data in node.data.values()])
            for node_id, node in state.nodes.items()
        },
        state.arrived,
        {name: pool.payloads for name, pool in state.pools.items()},
    )


def completions_of(engine: ManualEngine) -> dict[TransferId, bool]:
    """The completions that no poll has reported yet, in order; True if the copy succeeded."""
    return {each.transfer_id: each.ok for each in engine._completions}


def performed_by(engine: ManualEngine) -> frozenset[TransferId]:
    """The copies whose bytes have moved, but whose completion the cache has not seen."""
    return frozenset(engine._performed)


def traces_of(
    cache: object, engine: object, queue: ManualQueue | None
) -> tuple[object, ...] | None:
    """The hidden state of a plain cache and its engine; None for other caches.

    Counters of ticks and ids are left out: no future step depends on them.
    """
    if type(cache) is not ReferenceCache or type(engine) is not ManualEngine:
        return None
    state = cache._state
    return (
        [data.used for node in state.nodes.values() for data in node.data.values()],
        dict(state.arrived),
        [dict(pool.payloads) for pool in state.pools.values()],
        list(engine._completions),
        list(engine._open),
        set(engine._performed),
        None if queue is None else traces_of_queue(queue),
    )


def copied(
    cache: object, engine: object
) -> tuple[ReferenceCache, ManualEngine, ManualQueue | None] | None:
    """Copy a plain cache, its engine and its store; returns None for other caches.

    An overridden cache may have state of its own, so it is not copied.
    """
    if type(cache) is not ReferenceCache or type(engine) is not ManualEngine:
        return None
    state, twin = cache._state, ManualEngine()
    # Skips the constructor: its work would be thrown away, and takes half of the time.
    new: State = object.__new__(State)
    new.config, new.engine, new.agree, new.holds = state.config, twin, state.agree, {}
    nodes = {node: _node(node) for node in (state.root, *state.nodes.values())}
    new.root = nodes[state.root]
    new.nodes = {node_id: nodes[node] for node_id, node in state.nodes.items()}
    for node, its_copy in nodes.items():
        its_copy.parent = None if node.parent is None else nodes[node.parent]
        its_copy.children = {edge: nodes[child] for edge, child in node.children.items()}
    transfers = {each: _transfer(each, nodes) for each in state.transfers.values()}
    _copy_holds(state, new, nodes, transfers)
    for node, its_copy in nodes.items():
        for component, data in node.data.items():
            if data.loading is not None:
                its_copy.data[component].loading = transfers[data.loading]
            if data.backing is not None:
                its_copy.data[component].backing = transfers[data.backing]
    new.transfers = {transfer_id: transfers[each] for transfer_id, each in state.transfers.items()}
    new.pools = {name: _pool(pool) for name, pool in state.pools.items()}
    new.owners = {
        name: {nodes[node]: None for node in owners} for name, owners in state.owners.items()
    }
    new.swa_of_full, new.full_of_swa = dict(state.swa_of_full), dict(state.full_of_swa)
    new.arrived, new.events = dict(state.arrived), list(state.events)
    new.events_given_up = state.events_given_up
    # Both are empty between two operations.
    new.departures, new.victims_copy = [], None
    new.tier, queue = None, None
    if state.tier is not None:
        new.tier, queue = copied_below(state.tier, new)
    new.clock, new.next_id = state.clock, state.next_id
    twin._open = {each: _order(order, new, transfers) for each, order in engine._open.items()}
    twin._performed, twin._completions = set(engine._performed), list(engine._completions)
    twin.ended = dict(engine.ended)
    clone: ReferenceCache = object.__new__(ReferenceCache)
    clone._state = new
    return clone, twin, queue


def _node(node: Node) -> Node:
    return Node(
        node.node_id,
        None,
        node.namespace,
        node.pages,
        node.start,
        {
            component: Data(data.device, data.host, data.lock_refs, data.used)
            for component, data in node.data.items()
        },
        node.created,
        node.last_access,
        {},
        node.hit_count,
        node.priority,
        node.hashes,
    )


def _transfer(transfer: Transfer, nodes: Mapping[Node, Node]) -> Transfer:
    return Transfer(
        transfer.transfer_id,
        transfer.direction,
        [(nodes[node], component) for node, component in transfer.parts],
        dict(transfer.sources),
        dict(transfer.targets),
        None,
        transfer.cancelled,
    )


def _copy_holds(
    state: State,
    new: State,
    nodes: Mapping[Node, Node],
    transfers: Mapping[Transfer, Transfer],
) -> None:
    for receipt_id, held in state.holds.items():
        transfer = None if held.transfer is None else transfers[held.transfer]
        twin = Hold(held.receipt, nodes[held.node], held.window_from, held.state_held, transfer)
        new.holds[receipt_id] = twin
        if transfer is not None:
            transfer.hold = twin


def _pool(pool: Pool) -> Pool:
    return Pool(
        pool.capacity, pool.untouched, list(pool.returned), set(pool.held), dict(pool.payloads)
    )


def _order(
    order: TransferOrder, state: State, transfers: Mapping[Transfer, Transfer]
) -> TransferOrder:
    """The order, bound to the copied cache's state and transfer."""
    perform = order.perform
    assert isinstance(perform, partial)  # noqa: S101  # It is the plain cache's own.
    _, transfer, copies = perform.args
    again = partial(perform.func, state, transfers[transfer], copies)
    return TransferOrder(order.transfer_id, order.direction, order.copies, again)
