"""What a cache has done since it was made, and what it holds now: numbers, all at once.

The native core counts as it goes; `PrefixCache.stats` reads what it counted. That is a few
microseconds and never waits, from any thread.

What readers get wrong: slots are not tokens. One slot of full or window data is a page; one mamba
slot is a recurrent state, however long its prefix is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from attrs import frozen

from kvcanon.optimized import _core
from kvcanon.optimized.codes import COMPONENTS, MEDIA
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, GPU, Component, Counts, Medium


@frozen
class PoolStats:
    """The slots of one pool. What is none of these waits for a cancelled copy to end."""

    capacity_slots: int
    free_slots: int
    held_slots: int
    """Of requests, which were given them and have not handed them over."""
    cached_slots: int
    """In the tree."""
    protected_slots: int
    """Of those in the tree, the ones that a lock keeps from being evicted."""


@frozen
class OperationStats:
    """The calls of one operation."""

    calls: int
    refused: int
    """Of the calls, those that were refused and changed nothing."""
    seconds: float
    """Spent in all of them, the engine's time included where a call waits for copies."""


@frozen
class Stats:
    """Everything is counted from the making of the cache, but what there is now."""

    matches: int
    asked_tokens: int
    """Of matches, in whole pages."""
    hit_tokens: Mapping[Medium, int]
    """Of matches: on the device those that could be used at once, on the host those that could be
    used after a load-back only."""
    inserts: int
    inserted_tokens: int
    """Whose full data the tree took."""
    duplicate_tokens: int
    """Whose full data was handed over, and was there already."""
    evicted_asked: Counts
    """Device slots that `evict` freed."""
    evicted_for_load: Counts
    """Device slots that were freed to make room for a load-back."""
    evicted_host: Counts
    """Host slots that were freed, by `evict_host` or to make room for copies and fetched pages."""
    backups: int
    load_backs: int
    """Transfers that were enqueued; a backup is of one node."""
    backup_bytes: int
    load_back_bytes: int
    """Moved by transfers that were done; 0 for a cache without pools."""
    declined_backup_pages: int
    """Pages that were to be backed up, and for which the host had no room."""
    transfers_done: int
    transfers_failed: int
    transfers_cancelled: int
    events: int
    transfers_in_flight: int
    """Now, as all that follow."""
    events_pending: int
    """That nobody has taken yet, each of a stretch of pages."""
    nodes: int
    receipts: int
    """Locks of requests, and one for each transfer in flight."""
    pools: Mapping[tuple[Component, Medium], PoolStats]
    operations: Mapping[str, OperationStats]
    """By the name of the method."""


def read_stats(tree: _core.Tree, config: CacheConfig, pools: Pools | None) -> Stats:
    """What a tree has counted, in tokens and bytes where it counts pages and slots."""
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
        transfers_in_flight=number("transfers_in_flight"),
        events_pending=number("pending_events"),
        nodes=number("nodes"),
        receipts=number("receipts"),
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
    )
