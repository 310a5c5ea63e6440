"""Joining: merges a node with its only child, the reverse of a cut. The plain cache never joins.

They may be joined only if nothing distinguishes them: the same data, no lock, no copy in flight, no
receipt that ends between them.
"""

from __future__ import annotations

from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import edge
from kvcanon.spec.types import CPU, GPU, MAMBA, Component, TransferId


def join_all(state: State) -> None:
    """Join every node with its only child if nothing distinguishes them."""
    for node in list(state.nodes.values()):
        if node.parent is not None and may_join(state, node) and _same_age(node):
            join(state, node)


def may_join(state: State, upper: Node) -> bool:
    """Whether a node and its only child differ in nothing but their ages."""
    if len(upper.children) != 1:
        return False
    (lower,) = upper.children.values()
    if any(hold.node is upper for hold in state.holds.values()):
        return False
    if (upper.hit_count, upper.priority, upper.created) != (
        lower.hit_count,
        lower.priority,
        lower.created,
    ):
        return False
    for component, above in upper.data.items():
        below = lower.data[component]
        if component is MAMBA:
            if above.device is not None or above.host is not None or above.lock_refs:
                return False
        elif (
            (above.device is None) is not (below.device is None)
            or (above.host is None) is not (below.host is None)
            or above.lock_refs != below.lock_refs
            or _copies(state, upper, component) != _copies(state, lower, component)
        ):
            return False
    return True


def join(state: State, upper: Node) -> Node:
    """Join a node with its only child, under the child's id and with the age of the younger.

    Receipts and transfers of the child are then of the whole node.
    """
    (lower,) = upper.children.values()
    assert upper.parent is not None
    both_named = upper.hashes is not None and lower.hashes is not None
    lower.hashes = (*(upper.hashes or ()), *(lower.hashes or ())) if both_named else None
    lower.parent, lower.start = upper.parent, upper.start
    lower.pages = (*upper.pages, *lower.pages)
    lower.last_access = max(upper.last_access, lower.last_access)
    lower.hit_count = max(upper.hit_count, lower.hit_count)
    upper.parent.children[edge(upper.parent, lower.namespace, lower.pages[0])] = lower
    del state.nodes[upper.node_id]
    for component, above in upper.data.items():
        below = lower.data[component]
        for medium in (GPU, CPU):
            state.owners[component, medium].pop(upper, None)
        if component is MAMBA:
            continue
        below.used = max(above.used, below.used)
        if above.device is not None and below.device is not None:
            below.device = (*above.device, *below.device)
        if above.host is not None and below.host is not None:
            below.host = (*above.host, *below.host)
        for transfer_id in _copies(state, upper, component):
            state.transfers[transfer_id].parts.remove((upper, component))
    return lower


def _copies(state: State, node: Node, component: Component) -> list[TransferId]:
    """Return the copies in flight of a node's data, which may be usable already."""
    named = (node, component)
    return [each.transfer_id for each in state.transfers.values() if named in each.parts]


def _same_age(upper: Node) -> bool:
    (lower,) = upper.children.values()
    return upper.last_access == lower.last_access and all(
        component is MAMBA or above.used == lower.data[component].used
        for component, above in upper.data.items()
    )
