"""Makes a sound snapshot from a few nodes, and fills in what follows from them.

A test of a law starts from a sound state and breaks one thing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.snapshot import (
    ComponentState,
    HoldState,
    NodeState,
    PoolState,
    Snapshot,
    TransferState,
    Usage,
)
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import (
    CPU,
    DEFAULT_NAMESPACE,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Medium,
    Namespace,
    NodeId,
    Slot,
    TransferId,
    make_key,
)

ROOT = 0

POOLS = Counts(full=16, swa=16, mamba=4)

EVERYTHING = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=POOLS,
    host_slots=POOLS,
    write_policy="write_through",
)
"""Every component, a window of two pages and a host tier."""


def node(
    node_id: NodeId,
    parent_id: NodeId,
    tokens: Sequence[int],
    *,
    full: ComponentState,
    swa: ComponentState | None = None,
    mamba: ComponentState | None = None,
    page_size: int = 1,
    namespace: Namespace = DEFAULT_NAMESPACE,
    hit_count: int = 0,
    last_access: int = 0,
) -> NodeState:
    """A node whose children are filled in by `state_of`."""
    given = {FULL: full, SWA: swa, MAMBA: mamba}
    return NodeState(
        node_id=node_id,
        parent_id=parent_id,
        child_ids=(),
        namespace=namespace,
        pages=make_key(tokens, page_size).pages,
        data={component: data for component, data in given.items() if data is not None},
        hit_count=hit_count,
        created=node_id,
        last_access=last_access or node_id,
    )


def on(
    device: Iterable[Slot] | None = None,
    host: Iterable[Slot] | None = None,
    *,
    lock_refs: int = 0,
    loading: int | None = None,
    backing: int | None = None,
) -> ComponentState:
    """A component's data in these slots."""
    return ComponentState(
        None if device is None else tuple(device),
        None if host is None else tuple(host),
        lock_refs,
        loading,
        backing,
    )


def having(
    old: NodeState,
    full: ComponentState | None = None,
    swa: ComponentState | None = None,
    mamba: ComponentState | None = None,
) -> NodeState:
    """A node with other data of these components."""
    given = {FULL: full, SWA: swa, MAMBA: mamba}
    changed = {component: data for component, data in given.items() if data is not None}
    return evolve(old, data={**old.data, **changed})


def without(old: NodeState, medium: Medium, *components: Component) -> NodeState:
    """A node without these components' data on a medium."""
    had = {component: old[component] for component in components}
    gone = {
        component: evolve(data, device=None) if medium is GPU else evolve(data, host=None)
        for component, data in had.items()
    }
    return evolve(old, data={**old.data, **gone})


def state_of(
    config: CacheConfig,
    *nodes: NodeState,
    holds: tuple[HoldState, ...] = (),
    transfers: tuple[TransferState, ...] = (),
    held: Mapping[Component, Collection[Slot]] | None = None,
    profile: Profile = CANON,
) -> Snapshot:
    """A sound snapshot of these nodes: links, pools, recency by last access, usage, mapping."""
    root = NodeState(ROOT, None, (), DEFAULT_NAMESPACE, (), {})
    linked = {each.node_id: _with_children(each, nodes) for each in (root, *nodes)}
    holders = held or {}
    pools, recency, usage = {}, {}, {}
    for component in config.components:
        for medium in (GPU, CPU):
            owned = [n for n in nodes if n[component].slots(medium) is not None]
            used = {slot for n in owned for slot in n[component].slots(medium) or ()}
            in_flight = {
                slot
                for t in transfers
                for m, by in ((t.direction.source, t.sources), (t.direction.target, t.targets))
                if m is medium
                for slot in by.get(component, ())
            }
            mine = frozenset(holders.get(component, set())) if medium is GPU else frozenset()
            capacity = config.capacity(component, medium)
            taken = used | in_flight | mine
            free = tuple(slot for slot in range(capacity) if slot not in taken)
            pools[component, medium] = PoolState(capacity, free, mine)
            recency[component, medium] = tuple(
                n.node_id for n in sorted(owned, key=lambda n: n.last_access)
            )
        usage[component] = Usage(
            evictable=_slots_where(nodes, component, locked=False),
            protected=_slots_where(nodes, component, locked=True),
        )
    pairs = {
        full: swa
        for n in nodes
        if n[FULL].device is not None and n[SWA].device is not None
        for full, swa in zip(n[FULL].device or (), n[SWA].device or (), strict=True)
    }
    return Snapshot(
        config, ROOT, linked, recency, pools, usage, pairs, holds, transfers, profile=profile
    )


def _with_children(each: NodeState, nodes: Sequence[NodeState]) -> NodeState:
    ids = tuple(n.node_id for n in nodes if n.parent_id == each.node_id)
    return evolve(each, child_ids=ids)


def _slots_where(nodes: Sequence[NodeState], component: Component, *, locked: bool) -> int:
    return sum(
        len(n[component].device or ()) for n in nodes if (n[component].lock_refs > 0) is locked
    )


def with_node(state: Snapshot, changed: NodeState) -> Snapshot:
    """A state in which one node is replaced, and nothing follows from that."""
    return evolve(state, nodes={**state.nodes, changed.node_id: changed})


def with_pool(
    state: Snapshot,
    component: Component,
    medium: Medium = GPU,
    *,
    free: Collection[Slot] | None = None,
    held: Collection[Slot] | None = None,
) -> Snapshot:
    """A state in which a pool has other free or held slots."""
    old = state.pools[component, medium]
    changed = PoolState(
        old.capacity,
        old.free if free is None else tuple(free),
        old.held if held is None else frozenset(held),
    )
    return evolve(state, pools={**state.pools, (component, medium): changed})


def copy(
    transfer_id: TransferId,
    direction: Direction,
    sources: tuple[Slot, ...],
    targets: tuple[Slot, ...],
    *node_ids: NodeId,
    component: Component = FULL,
    cancelled: bool = False,
) -> TransferState:
    """A transfer of one component."""
    parts = tuple((node_id, component) for node_id in node_ids)
    return TransferState(
        transfer_id, direction, parts, {component: sources}, {component: targets}, cancelled
    )
