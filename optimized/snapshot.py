"""Snapshots of the fast cache, and its events, as the types of kvcanon.spec.

Snapshots are for the judge and copy the whole state. A scheduler should use `stats` or
`free_slot_counts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from attrs import Factory, define

from kvcanon.optimized import _core, native_types
from kvcanon.optimized.codes import COMPONENTS, DIRECTIONS, MEDIA
from kvcanon.optimized.keys import key_of, pages_of
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.optimized.store_tier import StoreTier, TrackedOrder
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.snapshot import (
    ComponentState,
    HoldState,
    NodeState,
    Pool,
    PoolState,
    Snapshot,
    TransferState,
    Usage,
)
from kvcanon.spec.tier import OrderState, StoreState
from kvcanon.spec.types import FULL, Component, Medium, Namespace, NodeId, Slot


@define
class Shown:
    """The values of the last snapshot; the next one reuses most of them."""

    edition: int = 0
    """That of the events, as the tree counts."""
    batches: int = 0
    """How many of its events, which may be of several pages, were seen."""
    events: tuple[Event, ...] = ()
    pools: dict[Pool, PoolState] = Factory(dict)


def take_snapshot(cache: PrefixCache, shown: Shown | None = None) -> Snapshot:
    """The whole state; `shown` is that of the cache's last snapshot, and is brought up to date."""
    tree, config, shown = cache.tree, cache.config, shown or Shown()
    # Pending events first: reading them computes page hashes, which the nodes then show.
    events = _pending_events(cache, shown)
    listed = tree.nodes()
    pools = [(component, medium) for component in config.components for medium in MEDIA]
    shape = config.components, config.page_size, config.bigram
    return Snapshot(
        config=config,
        root_id=listed[0][0],
        nodes={each[0]: _node_state(each, cache.namespace_of(each[3]), *shape) for each in listed},
        recency={name: _least_recent_first(config, listed, name) for name in pools},
        pools={name: _pool_state(cache, name, shown) for name in pools},
        usage={c: Usage(*tree.usage(COMPONENTS.index(c))) for c in config.components},
        swa_of_full=tree.pairs(),
        holds=tuple(HoldState(*each) for each in tree.holds()),
        transfers=tuple(_transfer_state(each) for each in tree.transfers()),
        events=events,
        store=None if cache.store_tier is None else _store_state(cache, cache.store_tier),
    )


def _pending_events(cache: PrefixCache, shown: Shown) -> tuple[Event, ...]:
    edition, known, batches = cache.tree.pending_events_after(shown.edition, shown.batches)
    shown.edition, shown.batches = edition, known + len(batches)
    if batches or not known:
        shown.events = (shown.events if known else ()) + events_of(cache, batches)
    return shown.events


def events_of(cache: PrefixCache, batches: Iterable[_core.Event]) -> tuple[Event, ...]:
    """Events page by page, in the order in which they happened."""
    return tuple(event for batch in batches for event in _page_events(cache, batch))


def _page_events(cache: PrefixCache, batch: _core.Event) -> tuple[Event, ...]:
    if batch.kind == "cleared":
        return (AllBlocksCleared(),)
    medium = Medium(batch.medium)
    if batch.kind == "removed":
        return _removed_events(batch.hashes, medium)
    namespace, words = cache.namespace_of(batch.namespace), batch.tokens.tobytes()
    size, bigram = cache.config.page_size, cache.config.bigram
    stored = _StoredPages(batch.hashes, batch.parent_hash, words, size, bigram, medium, namespace)
    return _stored_events(stored)


@lru_cache(maxsize=1 << 14)
def _removed_events(hashes: bytes, medium: Medium) -> tuple[BlockRemoved, ...]:
    return tuple(BlockRemoved(each, medium) for each in _hashes(hashes))


class _StoredPages(NamedTuple):
    """The pages of an event that stored them."""

    hashes: bytes
    parent: bytes | None
    words: bytes
    page_size: int
    bigram: bool
    medium: Medium
    namespace: Namespace


@lru_cache(maxsize=1 << 14)
def _stored_events(stored: _StoredPages) -> tuple[BlockStored, ...]:
    hashes = _hashes(stored.hashes)
    parents = (stored.parent, *hashes[:-1])
    pages = pages_of(stored.words, stored.page_size, stored.bigram)
    return tuple(
        BlockStored(each, parent, page, stored.medium, stored.namespace)
        for each, parent, page in zip(hashes, parents, pages, strict=True)
    )


@lru_cache(maxsize=1 << 14)
def _node_state(
    node: native_types.NodeTuple,
    namespace: Namespace,
    components: tuple[Component, ...],
    page_size: int,
    bigram: bool,
) -> NodeState:
    """A node as a value; kept, as most are met again and again."""
    node_id, parent_id, child_ids, _, words, _, data, hits, priority, created, used, hashes = node
    return NodeState(
        node_id=node_id,
        parent_id=parent_id,
        child_ids=child_ids,
        namespace=namespace,
        pages=pages_of(words, page_size, bigram),
        data=dict(zip(components, map(_component_state, data), strict=True)),
        hit_count=hits,
        priority=priority,
        created=created,
        last_access=used,
        hashes=None if hashes is None else _hashes(hashes),
    )


def _component_state(data: native_types.DataTuple) -> ComponentState:
    device, host, lock_refs, loading, backing, _ = data
    return ComponentState(device, host, lock_refs, loading, backing)


def _least_recent_first(
    config: CacheConfig, nodes: Iterable[native_types.NodeTuple], pool: Pool
) -> tuple[NodeId, ...]:
    """The nodes with a component's data on a medium in LRU order; on a tie the upper node first."""
    component, medium = pool
    at, side = config.components.index(component), MEDIA.index(medium)
    keys = []
    for node in nodes:
        node_id, start, data, last_access = node[0], node[5], node[6][at], node[10]
        if data[side] is not None:
            keys.append((last_access if component is FULL else data[5], start, node_id))
    return tuple(node_id for _, _, node_id in sorted(keys))


def _pool_state(cache: PrefixCache, pool: Pool, shown: Shown) -> PoolState:
    component, medium = pool
    capacity, free, held = cache.tree.pool(COMPONENTS.index(component), MEDIA.index(medium))
    state = shown.pools.get(pool)
    if state is None or state.free != free or len(state.held) != len(held) or state.held != {*held}:
        state = shown.pools[pool] = PoolState(capacity, free, frozenset(held))
    return state


def _store_state(cache: PrefixCache, tier: StoreTier) -> StoreState:
    stored = [
        event for event in events_of(cache, cache.tree.stored()) if isinstance(event, BlockStored)
    ]
    return StoreState(
        tier.queue.medium,
        tier.is_open,
        {event.block_hash: event for event in stored},
        tuple(_order_state(cache.config, its) for its in tier.orders.values() if its.is_open),
    )


def _order_state(config: CacheConfig, its: TrackedOrder) -> OrderState:
    order = its.order
    return OrderState(
        order.order_id,
        order.kind,
        key_of(config, order.words.tobytes(), order.namespace),
        order.run.start_pages,
        tuple(its.reserved.tolist()),
        its.pages,
        its.ended,
        its.cancelled,
    )


def _transfer_state(transfer: native_types.TransferTuple) -> TransferState:
    transfer_id, direction, parts, sources, targets, cancelled = transfer
    return TransferState(
        transfer_id=transfer_id,
        direction=DIRECTIONS[direction],
        parts=tuple((node_id, COMPONENTS[number]) for node_id, number in parts),
        sources=_by_component(sources),
        targets=_by_component(targets),
        cancelled=cancelled,
    )


def _by_component(
    slots: tuple[tuple[Slot, ...] | None, ...],
) -> Mapping[Component, tuple[Slot, ...]]:
    return {c: some for c, some in zip(COMPONENTS, slots, strict=True) if some is not None}


def _hashes(joined: bytes) -> tuple[bytes, ...]:
    return tuple(
        joined[at : at + _core.HASH_BYTES] for at in range(0, len(joined), _core.HASH_BYTES)
    )
