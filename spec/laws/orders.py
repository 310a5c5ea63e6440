"""REC, continued: the ranks of leaves, and who is named in an order of recency.

What readers get wrong: a rank is not a place in an order. It says who leaves first of two leaves,
and a node that is no leaf has one too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import MEDIA
from kvcanon.spec.oracle.eviction import policy_key
from kvcanon.spec.snapshot import NodeState, Snapshot, is_device_leaf, is_host_leaf
from kvcanon.spec.types import CPU, FULL, GPU, Component, Medium, NodeId

NEEDS = (Need.SNAPSHOT, Need.RECENCY)

LEAVES = ((GPU, is_device_leaf), (CPU, is_host_leaf))
"""What may leave each medium as a whole."""


def orders_follow(difference: Difference) -> bool:
    """Whether no leaf that a step touched has another's rank, and orders name whom they should."""
    if not difference.touched and difference.unchanged("recency"):
        return True
    components = difference.after.config.components
    return not _has_tie(difference) and all(
        _order_follows(difference, component, medium)
        for component in components
        for medium in MEDIA
    )


@law("REC-4", Kind.STATE, premises.TWO_LEAVES, needs=NEEDS, outlasts=orders_follow)
def ties_cannot_occur(state: Snapshot) -> Iterator[str]:
    """There is always exactly one next victim.

    No two leaves of a medium have the same rank under the policy, and every order of recency names
    exactly the nodes that have its data, each once. Where the profile says that the host has an
    order of its own, window data and states that are on the device too are not in it.

    Why: replicas must pick the same victim without talking. Where two are equal, one picks by
    address and another by chance, and the next collective waits for ever. A node that is in no
    order is never evicted; one that is there twice is freed twice.

    Seen broken: https://github.com/lightseekorg/tokenspeed/pull/248,
    https://github.com/sgl-project/sglang/issues/8931
    """
    for medium, is_leaf in LEAVES:
        ranked: dict[tuple[int, int], NodeState] = {}
        for node in state.below_root():
            if is_leaf(state, node):
                other = ranked.setdefault(_rank(state, node), node)
                if other is not node:
                    yield (
                        f"{state.describe(node)} and {state.describe(other)} are leaves on "
                        f"{medium} and have the same rank {_rank(state, node)}"
                    )
    for component in state.config.components:
        for medium in MEDIA:
            yield from _misnamed(state, component, medium)


def _rank(state: Snapshot, node: NodeState) -> tuple[int, int]:
    """The place of a leaf in the order of the policy; the smallest leaves first."""
    return policy_key(
        state.config.eviction_policy,
        node.hit_count,
        node.last_access,
        node.created,
        node.priority,
    )


def _misnamed(state: Snapshot, component: Component, medium: Medium) -> Iterator[str]:
    """Where an order of recency does not name exactly the nodes that have its data."""
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
    """Whether a leaf among the touched nodes, or above or below one, has the rank of another."""
    ids, state = {*difference.touched, *difference.family}, difference.after
    near = difference.nodes_after(ids)
    for _, is_leaf in LEAVES:
        leaves = [node for node in near if is_leaf(state, node)]
        ranks = {_rank(state, node) for node in leaves}
        if len(ranks) < len(leaves):
            return True
        # Of equal ranks the ticks are equal: few of the others need be ranked.
        ticks = {each for _, tick in ranks for each in (tick, -tick)}
        for node in state.below_root() if ticks else ():
            if node.last_access in ticks or node.created in ticks:
                is_other = node.node_id not in ids and is_leaf(state, node)
                if is_other and _rank(state, node) in ranks:
                    return True
    return False


def _order_follows(difference: Difference, component: Component, medium: Medium) -> bool:
    """Whether an order gained and lost the nodes that gained and lost its data, each once."""
    before, after, pool = difference.before, difference.after, (component, medium)
    was, now = before.recency.get(pool, ()), after.recency.get(pool, ())
    lost = _owners(before, difference.rebuilt_nodes_before(), component, medium)
    gained = _owners(after, difference.rebuilt_nodes(), component, medium)
    if lost == gained and was == now:
        return True
    named = set(now)
    return len(named) == len(now) and named == set(was) - lost | gained


def _owners(
    state: Snapshot, nodes: Iterable[NodeState], component: Component, medium: Medium
) -> set[NodeId]:
    """Those of some nodes whose data an order of recency has to name."""
    on_host_alone = medium is CPU and component is not FULL and not state.profile.host_order_by_use
    return {
        node.node_id
        for node in nodes
        if node[component].slots(medium) is not None
        and not (on_host_alone and node[component].device is not None)
    }
