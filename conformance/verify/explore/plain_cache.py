"""The plain cache from inside: how it is copied, and what it knows that no snapshot shows.

Most of an exploration is going back to a state and trying something else. To play the way there
again takes longer the longer it is; to copy the few objects of a small plain cache does not.

What readers get wrong: a copy that shares one object with its original is no copy. Nodes, holds and
transfers point at each other and at the state, and the engine's orders point at transfers; all of
them are made anew, and only what is immutable is shared.
"""

# ruff: noqa: SLF001  # Whoever copies an object has to know all of it.

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attrs import frozen

from kvcanon.conformance.variants.override import OverriddenCache
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.reference.state import Data, Hold, Node, Pool, State, Transfer
from kvcanon.spec.transfer import TransferOrder
from kvcanon.spec.types import Component, Medium, NodeId, Slot, TransferId


@frozen
class Hidden:
    """What the plain cache knows and no snapshot shows, though it decides what comes next."""

    used: Mapping[NodeId, tuple[int, ...]]
    """Ticks of the last use of each node's components, in their order."""
    arrived: Mapping[TransferId, bool]
    """Copies that wait for those before them to be settled, and whether they went well."""
    payloads: Mapping[tuple[Component, Medium], Mapping[Slot, bytes]]
    """The bytes behind slots, where somebody wrote."""


def hidden_in(cache: object) -> Hidden | None:
    """What a cache hides, if it is a plain one or has one inside; None where nobody can know."""
    while isinstance(cache, OverriddenCache):
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
    """What an engine was told of copies and no poll has reported, in order: whether all is well."""
    return {each.transfer_id: each.ok for each in engine._completions}


def performed_by(engine: ManualEngine) -> frozenset[TransferId]:
    """The copies whose bytes have moved, though the cache was not told."""
    return frozenset(engine._performed)


def traces_of(cache: object, engine: object) -> tuple[object, ...] | None:
    """What a plain cache and its engine hide, as it is now; None of anything else.

    Ticks and numbers that are yet to be given are left out: what comes next depends on none.
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
    )


def copied(cache: object, engine: object) -> tuple[ReferenceCache, ManualEngine] | None:
    """A copy of a plain cache and its engine; None of anything else.

    An overridden cache may keep things where nobody sees them, so that it is none of these.
    """
    if type(cache) is not ReferenceCache or type(engine) is not ManualEngine:
        return None
    state, twin = cache._state, ManualEngine()
    # What its constructor makes would all be made again: it takes as long as all the rest.
    new: State = object.__new__(State)
    new.config, new.engine, new.holds = state.config, twin, {}
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
    new.clock, new.next_id = state.clock, state.next_id
    twin._open = {each: _order(order, new, transfers) for each, order in engine._open.items()}
    twin._performed, twin._completions = set(engine._performed), list(engine._completions)
    twin.ended = dict(engine.ended)
    clone: ReferenceCache = object.__new__(ReferenceCache)
    clone._state = new
    return clone, twin


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
    """The same order of the copied cache: what it performs names the state and the transfer."""
    perform = order.perform
    assert isinstance(perform, partial)  # noqa: S101  # It is the plain cache's own.
    _, transfer, copies = perform.args
    again = partial(perform.func, state, transfers[transfer], copies)
    return TransferOrder(order.transfer_id, order.direction, order.copies, again)
