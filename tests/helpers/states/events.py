"""Two nodes with their events: the right stores and removes of the pages of a node."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.snapshot import ComponentState, NodeState, Snapshot
from kvcanon.spec.types import GPU, Counts, Medium, NodeId
from states.snapshots import node, on, state_of

PAGED = CacheConfig(page_size=2, device_slots=Counts(full=16))
THROUGH, BACK = (
    evolve(PAGED, host_slots=Counts(full=16), write_policy=f"write_{policy}")
    for policy in ("through", "back")
)
MUTE = evolve(PAGED, events=False)

UPPER, LOWER = (1, 2, 3, 4), (5, 6)


def paged(
    config: CacheConfig = PAGED,
    *,
    upper: ComponentState | None = on((0, 1)),  # noqa: B008  A frozen value.
    lower: ComponentState | None = on((2,)),  # noqa: B008  As above.
    profile: Profile = CANON,
) -> Snapshot:
    """Node 1 (two pages) and node 2 below it (one page), each with this full data, if any."""
    nodes = [
        node(node_id, node_id - 1, tokens, full=data, page_size=2)
        for node_id, tokens, data in ((1, UPPER, upper), (2, LOWER, lower))
        if data is not None
    ]
    return state_of(config, *nodes, profile=profile)


def names_of(state: Snapshot, node_id: NodeId) -> tuple[bytes, ...]:
    """The page hashes of a node, computed from its path."""
    node: NodeState | None = state.nodes[node_id]
    path: list[NodeState] = []
    while node is not None and node.parent_id is not None:
        path.append(node)
        node = state.parent(node)
    pages = [page for each in reversed(path) for page in each.pages]
    chain = page_hashes(namespace_seed(path[0].namespace), pages)
    return chain[len(chain) - len(path[0].pages) :]


def stores(state: Snapshot, node_id: NodeId, medium: Medium = GPU) -> tuple[BlockStored, ...]:
    """The right store events of a node's pages."""
    node = state.nodes[node_id]
    names = names_of(state, node_id)
    above = names_of(state, node.parent_id) if node.parent_id else ()
    parents = (above[-1] if above else None, *names[:-1])
    return tuple(
        BlockStored(name, parent, page, medium, node.namespace)
        for name, parent, page in zip(names, parents, node.pages, strict=True)
    )


def removes(state: Snapshot, node_id: NodeId, medium: Medium = GPU) -> tuple[BlockRemoved, ...]:
    """The right remove events of a node's pages, the last page first."""
    return tuple(BlockRemoved(name, medium) for name in reversed(names_of(state, node_id)))
