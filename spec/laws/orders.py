"""REC, continued: policy keys of leaves, and which nodes are in an LRU order.

A policy key decides which of two leaves is evicted first. It is not a position in an order; nodes
that are no leaves have one, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, LawClass, Need, law, nodes_premise
from kvcanon.spec.laws.comparison import MEDIA
from kvcanon.spec.oracle.eviction import policy_key
from kvcanon.spec.snapshot import NodeState, Snapshot, is_device_leaf, is_host_leaf
from kvcanon.spec.types import CPU, FULL, GPU, Component, Medium, NodeId

NEEDS = (Need.SNAPSHOT, Need.RECENCY)

LEAVES = ((GPU, is_device_leaf), (CPU, is_host_leaf))
"""The leaves of each medium."""


def orders_follow(difference: Difference) -> bool:
    """Whether no changed leaf has another's policy key, and orders follow data that moved."""
    if not difference.touched and difference.unchanged("recency"):
        return True
    if _has_tie(difference):
        return False
    moved = _moved(difference)
    return all(
        _order_follows(difference, component, medium, moved)
        for component in difference.after.config.components
        for medium in MEDIA
    )


@law(
    "REC-4",
    Kind.STATE,
    LawClass.POLICY,
    chosen_by="eviction",
    premise=nodes_premise("two leaves on one medium", is_device_leaf, is_host_leaf, enough=2),
    needs=NEEDS,
    follows=orders_follow,
)
def ties_cannot_occur(state: Snapshot) -> Iterator[str]:
    """There is always exactly one next victim.

    No two leaves of a medium have the same policy key, and every LRU order lists exactly the nodes
    with its data, each once. By profile, the host has its own order; then window data and
    mamba states that are also on the device are not in it.

    Why: replicas must pick the same victim without talking to each other. With a tie they pick
    different ones, and the next collective hangs. A node that is in no order is never evicted; one
    that is listed twice is freed twice.

    Seen broken: https://github.com/lightseekorg/tokenspeed/pull/248,
    https://github.com/sgl-project/sglang/issues/8931
    """
    for medium, is_leaf in LEAVES:
        by_key: dict[tuple[int, int], NodeState] = {}
        for node in state.below_root():
            if is_leaf(state, node):
                other = by_key.setdefault(_policy_key(state, node), node)
                if other is not node:
                    yield (
                        f"{state.describe(node)} and {state.describe(other)} are leaves on "
                        f"{medium} and have the same policy key {_policy_key(state, node)}"
                    )
    for component in state.config.components:
        for medium in MEDIA:
            yield from _misnamed(state, component, medium)


def _policy_key(state: Snapshot, node: NodeState) -> tuple[int, int]:
    """The policy key of a leaf; the leaf with the smallest one is evicted first."""
    return policy_key(
        state.config.eviction_policy,
        node.hit_count,
        node.last_access,
        node.created,
        node.priority,
    )


def _misnamed(state: Snapshot, component: Component, medium: Medium) -> Iterator[str]:
    """Where an LRU order does not list exactly the nodes that have its data."""
    name = f"the order of {component} on {medium}"
    owners = _owners(state, state.below_root(), component, medium)
    named = Counter(state.recency.get((component, medium), ()))
    for node_id in sorted(owners - named.keys()):
        yield f"{state.describe(state.nodes[node_id])} has {component} data and is not in {name}"
    for node_id, times in named.items():
        node = state.nodes.get(node_id)
        words = (
            f"node {node_id}, which is not in the tree," if node is None else state.describe(node)
        )
        if node_id not in owners:
            yield f"{words} is in {name} and has no {component} data there"
        if times > 1:
            yield f"{words} is in {name} {times} times"


def _has_tie(difference: Difference) -> bool:
    """Whether a leaf among the changed nodes, or next to one, has another leaf's policy key."""
    ids, state = {*difference.touched, *difference.family}, difference.after
    near = difference.nodes_after(ids)
    for _, is_leaf in LEAVES:
        leaves = [node for node in near if is_leaf(state, node)]
        if not leaves:
            continue
        ranks = {_policy_key(state, node) for node in leaves}
        if len(ranks) < len(leaves):
            return True
        # Equal ranks have equal ticks, so few of the other nodes need to be by_key.
        ticks = {each for _, tick in ranks for each in (tick, -tick)}
        for node in state.below_root():
            if node.last_access in ticks or node.created in ticks:
                is_other = node.node_id not in ids and is_leaf(state, node)
                if is_other and _policy_key(state, node) in ranks:
                    return True
    return False


def _moved(difference: Difference) -> tuple[list[NodeState], list[NodeState]]:
    """The nodes whose data of some component came to a medium or left it, before and after."""
    was = {node.node_id: node for node in difference.rebuilt_nodes_before}
    now = {node.node_id: node for node in difference.rebuilt_nodes}
    stay = [i for i in was.keys() & now.keys() if was[i].parts[:2] == now[i].parts[:2]]
    for node_id in stay:
        del was[node_id], now[node_id]
    return [*was.values()], [*now.values()]


def _order_follows(
    difference: Difference,
    component: Component,
    medium: Medium,
    moved: tuple[list[NodeState], list[NodeState]],
) -> bool:
    """Whether an order gained and lost exactly the nodes whose data came and left, each once."""
    before, after, pool = difference.before, difference.after, (component, medium)
    was, now = before.recency.get(pool, ()), after.recency.get(pool, ())
    left, came = moved
    lost = _owners(before, left, component, medium) if left else set[NodeId]()
    gained = _owners(after, came, component, medium) if came else set[NodeId]()
    if lost == gained and was == now:
        return True
    named = set(now)
    return len(named) == len(now) and named == set(was) - lost | gained


def _owners(
    state: Snapshot, nodes: Iterable[NodeState], component: Component, medium: Medium
) -> set[NodeId]:
    """Those of some nodes whose data an LRU order has to list."""
    on_host_alone = medium is CPU and component is not FULL and not state.profile.host_order_by_use
    return {
        node.node_id
        for node in nodes
        if component in (node.parts.device if medium is GPU else node.parts.host)
        and not (on_host_alone and component in node.parts.device)
    }
