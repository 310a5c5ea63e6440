"""Statistics: counters since a cache was made, and its present sizes.

The native core counts during each call; `PrefixCache.stats` reads the counters in a few
microseconds, never waits, and may be called from any thread.

Slots are not tokens. One full or window slot is a page; one mamba slot is a mamba state, however
long its prefix is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from attrs import frozen

from kvcanon.optimized import _core
from kvcanon.optimized.codes import COMPONENTS, MEDIA
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.store_stats import StoreStats
from kvcanon.spec.types import CPU, GPU, Component, Counts, Medium


class CacheShape(Protocol):
    """What statistics need of a configuration."""

    @property
    def page_size(self) -> int:
        """Tokens a page."""

    @property
    def components(self) -> tuple[Component, ...]:
        """The components that the cache has."""

    @property
    def host_tier(self) -> bool:
        """Whether there is a host tier."""


@frozen
class PoolStats:
    """The slots of one pool. Slots in none of these states wait for a cancelled copy to end."""

    capacity_slots: int
    free_slots: int
    held_slots: int
    """Allocated by requests, and neither inserted nor freed yet."""
    cached_slots: int
    """In the tree."""
    protected_slots: int
    """Slots in the tree that a lock protects from eviction."""


@frozen
class OperationStats:
    """The calls of one operation."""

    calls: int
    refused: int
    """Calls that were refused and changed nothing."""
    seconds: float
    """Time in all calls, including time in the engine where a call waits for copies."""


@frozen
class Stats:
    """Counters since the cache was made, and present sizes."""

    matches: int
    asked_tokens: int
    """Of matches, in whole pages."""
    hit_tokens: Mapping[Medium, int]
    """Prefix hits of matches: GPU counts tokens that were usable at once, CPU those that need a
    load-back."""
    inserts: int
    inserted_tokens: int
    """Tokens whose full data the tree adopted."""
    duplicate_tokens: int
    """Tokens whose full data was inserted though the tree had it already."""
    evicted_asked: Counts
    """Device slots that `evict` freed."""
    evicted_for_load: Counts
    """Device slots that were evicted for load-backs."""
    evicted_host: Counts
    """Host slots that were evicted, by `evict_host` or for backups and fetched pages."""
    backups: int
    load_backs: int
    """Transfers that were enqueued; a backup is of one node."""
    backup_bytes: int
    load_back_bytes: int
    """Bytes that completed transfers moved; 0 for a cache without pools."""
    declined_backup_pages: int
    """Pages that were not backed up, because the host had too few free slots."""
    transfers_done: int
    transfers_failed: int
    transfers_cancelled: int
    events: int
    events_dropped: int
    """Events of single pages that were dropped because too many waited."""
    transfers_in_flight: int
    """A present size, as all fields below."""
    events_pending: int
    """Events that were not taken yet; each is of one or more consecutive pages."""
    nodes: int
    receipts: int
    """Open receipts of requests, and one for each transfer in flight."""
    namespaces: int
    """Namespaces that have pages or events, or that were used a short time ago."""
    pools: Mapping[tuple[Component, Medium], PoolStats]
    operations: Mapping[str, OperationStats]
    """By the name of the method."""
    staging_bytes: Mapping[Medium, int]
    """Bytes that the engine of copies holds beside the pools."""
    store: StoreStats | None
    """Of the store below the host; None without one, or if its queue counts nothing."""


def read_stats(
    tree: _core.Tree,
    config: CacheShape,
    pools: Pools | None,
    staging_bytes: Mapping[Medium, int],
    store: StoreStats | None = None,
) -> Stats:
    """Read the counters of a tree, with pages as tokens and slots as bytes where that says more."""
    counters = tree.counters()

    def number(name: str) -> int:
        return cast("int", counters[name])

    def slots(name: str) -> Counts:
        return Counts(*cast("tuple[int, int, int]", counters[name]))

    def tokens(name: str) -> int:
        return number(name) * config.page_size

    def moved_bytes(name: str) -> int:
        if pools is None:
            return 0
        return sum(slots(name)[c] * layout.page_bytes for c, layout in pools.layouts.items())

    evicted, for_load = slots("evicted_device_slots"), slots("evicted_for_load_slots")
    return Stats(
        matches=number("matches"),
        asked_tokens=tokens("asked_pages"),
        hit_tokens={GPU: tokens("matched_device_pages"), CPU: tokens("matched_host_pages")},
        inserts=number("inserts"),
        inserted_tokens=tokens("inserted_pages"),
        duplicate_tokens=tokens("duplicate_pages"),
        evicted_asked=Counts(*(evicted[c] - for_load[c] for c in COMPONENTS)),
        evicted_for_load=for_load,
        evicted_host=slots("evicted_host_slots"),
        backups=number("backups"),
        load_backs=number("load_backs"),
        backup_bytes=moved_bytes("backup_slots"),
        load_back_bytes=moved_bytes("load_back_slots"),
        declined_backup_pages=number("declined_backup_pages"),
        transfers_done=number("transfers_done"),
        transfers_failed=number("transfers_failed"),
        transfers_cancelled=number("transfers_cancelled"),
        events=number("events"),
        events_dropped=number("dropped_events"),
        transfers_in_flight=number("transfers_in_flight"),
        events_pending=number("pending_events"),
        nodes=number("nodes"),
        receipts=number("receipts"),
        namespaces=number("namespaces"),
        pools={
            (component, medium): PoolStats(
                *tree.pool_counts(COMPONENTS.index(component), MEDIA.index(medium))
            )
            for component in config.components
            for medium in (MEDIA if config.host_tier else (GPU,))
        },
        operations={
            name: OperationStats(calls, refused, nanoseconds / 1e9)
            for name, (calls, refused, nanoseconds) in tree.calls().items()
        },
        staging_bytes={GPU: 0, CPU: 0, **staging_bytes},
        store=store,
    )
