"""Corrupts states at random places."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from attrs import evolve, fields

from kvcanon.spec.snapshot import (
    ComponentState,
    HoldState,
    NodeState,
    PoolState,
    Snapshot,
    TransferState,
    Usage,
)
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Namespace, NodeId

OTHER = Namespace(extra_key="another")
ABSENT = 9_999
"""A number that no node, slot, receipt or transfer has."""


def corrupted(state: Snapshot, random: Random) -> Snapshot:
    """The state with one to three random changes, which sometimes cancel out."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        state = random.choice(CORRUPTIONS)(state, random)
    return state


def _in_node(state: Snapshot, random: Random) -> Snapshot:
    """Change a node's field to another node's value, or to a value that no node should have."""
    node, other = _any(state, random), _any(state, random)
    name = random.choice(
        [each.name for each in fields(NodeState) if each.init and each.name != "node_id"]
    )
    strange: dict[str, list[Any]] = {
        "parent_id": [None, ABSENT, node.node_id],
        "child_ids": [(*node.child_ids, other.node_id), node.child_ids[1:], node.child_ids * 2],
        "namespace": [OTHER],
        "pages": [(), node.pages[:-1], node.pages * 2],
        "data": [{}, dict(list(node.data.items())[:1])],
        "hashes": [None, (node.hashes or ())[::-1], (b"?" * 32,) * len(node.pages)],
    }
    values = [getattr(other, name), *strange.get(name, [0, -1])]
    return _with(state, evolve(node, **{name: random.choice(values)}))


def _in_data(state: Snapshot, random: Random) -> Snapshot:
    """Change a field of a node's component in the same way."""
    node, other = _any(state, random), _any(state, random)
    component = random.choice([*node.data, FULL])
    data, theirs = node[component], other[component]
    name = random.choice([field.name for field in fields(ComponentState)])
    slots: list[Any] = [None, (), (ABSENT,), (-1,), (0,) * len(node.pages)]
    slots.append((data.device or ())[::-1])
    strange: dict[str, list[Any]] = {
        "device": slots,
        "host": slots,
        "lock_refs": [0, 1, -1, data.lock_refs + 1],
    }
    values: list[Any] = [getattr(theirs, name), *strange.get(name, [None, ABSENT])]
    changed = evolve(data, **{name: random.choice(values)})
    return _with(state, evolve(node, data={**node.data, component: changed}))


def _in_links(state: Snapshot, random: Random) -> Snapshot:
    """Remove, duplicate or move a node, with or without correct links."""
    node, other = _any(state, random), _any(state, random)
    match random.randrange(4):
        case 0:
            left = {each: here for each, here in state.nodes.items() if each != node.node_id}
            return evolve(state, nodes=left or state.nodes)
        case 1:
            twin = evolve(node, node_id=max(state.nodes) + 1, child_ids=())
            return _with(state, twin)
        case 2:
            twin = evolve(node, node_id=max(state.nodes) + 1, child_ids=())
            return _hung(_with(state, twin), twin.node_id, other.node_id)
        case _:
            return _hung(state, node.node_id, other.node_id)


def _in_orders(state: Snapshot, random: Random) -> Snapshot:
    pool = random.choice(list(state.recency))
    order, other = list(state.recency[pool]), list(state.recency[random.choice([*state.recency])])
    random.shuffle(other)
    values = [order[::-1], order[1:], [*order, *other[:1]], [*order, ABSENT], other, []]
    return evolve(state, recency={**state.recency, pool: tuple(random.choice(values))})


def _in_pools(state: Snapshot, random: Random) -> Snapshot:
    name = random.choice(list(state.pools))
    pool: PoolState = state.pools[name]
    slot = random.choice([0, 1, 2, -1, pool.capacity, *pool.free, *pool.held])
    free, held = pool.free, pool.held
    pools = [
        evolve(pool, free=free[1:]),
        evolve(pool, free=(*free, slot)),
        evolve(pool, free=free[::-1]),
        evolve(pool, held=held | {slot}),
        evolve(pool, held=held - {slot}),
        evolve(pool, free=tuple(each for each in free if each != slot), held=held | {slot}),
        evolve(pool, capacity=pool.capacity + 1),
    ]
    return evolve(state, pools={**state.pools, name: random.choice(pools)})


def _in_counts(state: Snapshot, random: Random) -> Snapshot:
    component: Component = random.choice(list(state.usage))
    usage: Usage = state.usage[component]
    by = random.choice((-1, 1))
    moved = evolve(usage, evictable=usage.evictable + by, protected=usage.protected - by)
    more = evolve(usage, evictable=usage.evictable + by)
    return evolve(state, usage={**state.usage, component: random.choice((moved, more))})


def _in_mapping(state: Snapshot, random: Random) -> Snapshot:
    full, swa = random.randrange(20), random.randrange(14)
    keys = list(state.swa_of_full) or [full]
    mapped = dict(state.swa_of_full)
    match random.randrange(3):
        case 0:
            mapped[full] = swa
        case 1:
            mapped.pop(random.choice(keys), None)
        case _:
            mapped[random.choice(keys)] = random.choice([swa, *mapped.values()])
    return evolve(state, swa_of_full=mapped)


def _in_holds(state: Snapshot, random: Random) -> Snapshot:
    if not state.holds:
        hold = HoldState(ABSENT, _any(state, random).node_id, None, state_held=False)
        return evolve(state, holds=(hold,))
    at = random.randrange(len(state.holds))
    hold = state.holds[at]
    instead = random.choice(
        [
            (),
            (hold, hold),
            (evolve(hold, node_id=random.choice([ABSENT, _any(state, random).node_id])),),
            (evolve(hold, window_from_pages=random.choice([None, 0, 1, 2])),),
            (evolve(hold, state_held=not hold.state_held),),
            (evolve(hold, window_gaps=((0, 1),)),),
        ]
    )
    return evolve(state, holds=(*state.holds[:at], *instead, *state.holds[at + 1 :]))


def _in_transfers(state: Snapshot, random: Random) -> Snapshot:
    if not state.transfers:
        return _in_data(state, random)
    at = random.randrange(len(state.transfers))
    copy: TransferState = state.transfers[at]
    node_id = random.choice([ABSENT, _any(state, random).node_id])
    component = random.choice((FULL, SWA, MAMBA))
    instead = random.choice(
        [
            (),
            (evolve(copy, cancelled=not copy.cancelled),),
            (evolve(copy, transfer_id=ABSENT),),
            (evolve(copy, parts=copy.parts[::-1]),),
            (evolve(copy, parts=copy.parts[1:]),),
            (evolve(copy, parts=(*copy.parts, (node_id, component))),),
            (evolve(copy, targets={**copy.targets, component: (0, 1)}),),
            (evolve(copy, sources={**copy.sources, component: (0, 1)}),),
        ]
    )
    return evolve(state, transfers=(*state.transfers[:at], *instead, *state.transfers[at + 1 :]))


CORRUPTIONS: tuple[Callable[[Snapshot, Random], Snapshot], ...] = (
    *(_in_node, _in_node, _in_data, _in_data, _in_links, _in_orders, _in_pools),
    *(_in_counts, _in_mapping, _in_holds, _in_transfers),
)


def _any(state: Snapshot, random: Random) -> NodeState:
    """A random node; it may be the root."""
    return random.choice(list(state.nodes.values()))


def _with(state: Snapshot, node: NodeState) -> Snapshot:
    return evolve(state, nodes={**state.nodes, node.node_id: node})


def _hung(state: Snapshot, node_id: NodeId, parent_id: NodeId) -> Snapshot:
    """The state with a node moved below another, with correct links."""
    node, parent = state.nodes[node_id], state.nodes[parent_id]
    old = state.nodes.get(node.parent_id) if node.parent_id is not None else None
    if old is not None:
        left = tuple(each for each in old.child_ids if each != node_id)
        state = _with(state, evolve(old, child_ids=left))
    parent = state.nodes[parent_id]
    state = _with(state, evolve(parent, child_ids=(*parent.child_ids, node_id)))
    return _with(state, evolve(state.nodes[node_id], parent_id=parent_id))
