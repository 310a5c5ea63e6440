"""Handmade states: makes a snapshot from a few nodes, and fills in what follows from them.

Tests of laws start from a sound state and break one thing with `attrs.evolve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.snapshot import (
    ComponentState,
    HoldState,
    NodeState,
    PoolState,
    Snapshot,
    TransferState,
    Usage,
)
from kvcanon.spec.types import (
    CPU,
    DEFAULT_NAMESPACE,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Namespace,
    NodeId,
    Slot,
    make_key,
)

ROOT = 0


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


def state_of(
    config: CacheConfig,
    *nodes: NodeState,
    holds: tuple[HoldState, ...] = (),
    transfers: tuple[TransferState, ...] = (),
    held: dict[Component, set[Slot]] | None = None,
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
                for m, by in ((t.source_medium, t.sources), (t.target_medium, t.targets))
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
    return Snapshot(config, ROOT, linked, recency, pools, usage, pairs, holds, transfers)


def _with_children(each: NodeState, nodes: Sequence[NodeState]) -> NodeState:
    ids = tuple(n.node_id for n in nodes if n.parent_id == each.node_id)
    return evolve(each, child_ids=ids)


def _slots_where(nodes: Sequence[NodeState], component: Component, *, locked: bool) -> int:
    return sum(
        len(n[component].device or ()) for n in nodes if (n[component].lock_refs > 0) is locked
    )
