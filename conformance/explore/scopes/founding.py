"""The scopes of the founding bugs: for each bug, the smallest scope that shows it.

With one slot, page or prompt less the bug does not show. Pools of full slots have at least 2 slots,
the smallest size that a cache must support. All these scopes together take about a minute, so
explore them first on a new cache.

A cache that passes a scope does not have the bug at this size. Every other scope checks the same
laws as well.
"""

from __future__ import annotations

from kvcanon.conformance.explore.scope import Scope
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

FOUNDING: dict[str, Scope] = {
    "refresh_whole_path": Scope(
        "founding_refresh",
        "window-only refresh (sgl#26615): 4 full and 3 window slots, 2 prompts of 3 pages",
        CacheConfig(window_tokens=1, device_slots=Counts(4, 3)),
        fans=(2, 1, 1),
        receipts=0,
        made_for=("REC-1",),
    ),
    "backup_skips_what_has_an_unbacked_parent": Scope(
        "founding_backup",
        "write-through completes (sgl#25065): 2 slots and 1 on the host, a prompt of 2 pages",
        CacheConfig(device_slots=Counts(2), host_slots=Counts(1), write_policy="write_through"),
        fans=(1, 1),
        host_evictions=False,
        receipts=0,
        made_for=("RES-5",),
    ),
    "short_of_either_is_short_of_full": Scope(
        "founding_load",
        "full-only pre-evict (sgl#26302): 3 full slots and 1 window slot, 2 on the host",
        CacheConfig(
            window_tokens=1,
            device_slots=Counts(3, 1),
            host_slots=Counts(2),
            write_policy="write_through_selective",
        ),
        fans=(2, 1),
        host_evictions=False,
        receipts=0,
        in_flight=1,
        bare_pages=(0, 1),
        fetches=True,
        made_for=("LOAD-1",),
    ),
    "backup_is_announced_at_its_enqueue": Scope(
        "founding_store",
        "a store on the host after the copy (sgl#22894): 2 slots and 1 on the host, 1 page",
        CacheConfig(device_slots=Counts(2), host_slots=Counts(1), write_policy="write_through"),
        fans=(1,),
        host_evictions=False,
        receipts=0,
        made_for=("EVENT-10",),
    ),
    "tombstone_is_announced": Scope(
        "founding_tombstone",
        "a tombstone is no removal (sgl#24718): 2 full and 2 window slots, a prompt of 2 pages",
        CacheConfig(window_tokens=1, device_slots=Counts(2, 2)),
        fans=(1, 1),
        receipts=0,
        made_for=("EVENT-10",),
    ),
    "cut_leaves_all_names_above": Scope(
        "founding_cut",
        "names after a split (sgl#24718): 2 slots, a prompt of 2 pages",
        CacheConfig(device_slots=Counts(2)),
        fans=(1, 1),
        receipts=0,
        made_for=("NS-3",),
    ),
}
"""By the name of the mutant that plants the bug."""
