"""The variant: a cache that differs from the plain one wherever the laws allow it.

It is the plain cache with some of its rules replaced, and shows what the laws do *not* demand. An
author of a law tries it on the variant; an author of a cache reads here how far a cache may differ
from the plain one. These are the freedoms, each a variation that also works alone:

- *Where nodes are cut.* Neither in a match nor where a new leaf's window begins; or everywhere, so
  that each node is a page; or wherever a walk ended. Equal neighbors may be joined, and either part
  of a cut node may keep its id.
- *How much is evicted at once.* A victim is a node, and nodes are of any size: a long one frees
  more than was requested. Or only its tail is evicted, to the page. By profile, tombstones are
  evicted with the last page below them.
- *What a use makes recent.* A node that is used in part may become recent as a whole. By profile,
  cuts may make a part recent, a use may make every mamba state on its path recent or leave the page
  before its window alone, and the host may keep its own order.
- *What an insert keeps.* By profile, a tombstone may take the inserted full slots with its window
  slots; a leaf without window data may be dropped, and so may window data that the end of the key
  does not reach.
- *What counts as a hit.* By profile, every insert of a request, or its matches and no insert.
- *What is on the host.* By profile, window data and mamba states without full data; no data that a
  lock would keep there; no data that was loaded.
- *When a call is declined.* A load or a backup that cannot succeed may be declined before anything
  is evicted for it.
- *Which duplicate is evicted first.* Under write_back, of host copies that the device has, too.
- *How copies are bundled, and when they settle.* A node at a time, or a whole chain in one
  transfer; in the order of their enqueueing, or as they end, but after those that they build on.
- *When a load is usable and its stores are emitted, and how far a lock reaches.* By profile: at its
  enqueue, if removes follow when the copy fails; and over the whole node in which the window
  begins.
- *In which order pages are removed.* By profile, those of one node in any order.
- *What is refused, and why.* By profile, arguments that the cache does not support, such as a quota
  for a load. If several reasons hold, any of them may be given.
- *Numbers.* Any free slot may be allocated, and ids need be neither small nor in order.

Two differences are not freedoms. Victims of one rank cannot differ, because ticks make ranks unique
(REC-4); and no victim may be evicted once enough slots are free (EVICT-2), so that a cache that
evicts in batches, up to a watermark, departs from the canon.

A comparison of a variant with the plain cache differs at once; only the laws must all hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve, frozen

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.lab.variants import (
    cuts,
    declining,
    evictions,
    hosts,
    inserts,
    numbers,
    removes,
    tiers,
    uses,
)
from kvcanon.lab.variants.override import Overrides, Plant, overriding
from kvcanon.lab.variants.wrapped_rules import wrap
from kvcanon.reference import cache
from kvcanon.reference.snapshot import take_snapshot
from kvcanon.spec.config import CANON, Limit, MambaRefresh, Profile, StoreMoment


@frozen
class Variation:
    """One thing that a sound cache may do differently."""

    plant: Plant
    declared: Callable[[Profile], Profile] = lambda profile: profile
    """Changes the profile where the variation departs from the canon."""


def _free(*plants: Plant) -> dict[str, Variation]:
    """Make variations that need no entry in the profile."""
    return {plant.__name__: Variation(plant) for plant in plants}


VARIATIONS: dict[str, Variation] = {
    "recent_lower_parts": Variation(
        uses.recent_lower_parts, lambda profile: evolve(profile, split_keeps_recency=False)
    ),
    "recent_upper_parts": Variation(
        uses.recent_upper_parts, lambda profile: evolve(profile, split_keeps_recency=False)
    ),
    "states_on_the_path": Variation(
        uses.states_on_the_path, lambda profile: evolve(profile, mamba_refresh=MambaRefresh.PATH)
    ),
    "host_in_order_of_arrival": Variation(
        uses.host_in_order_of_arrival, lambda profile: evolve(profile, host_order_by_use=False)
    ),
    "loads_announced_early": Variation(
        tiers.loads_announced_early,
        lambda profile: evolve(profile, load_back_announced=StoreMoment.ENQUEUED),
    ),
    "loads_of_use_early": Variation(
        tiers.loads_of_use_early,
        lambda profile: evolve(
            profile,
            load_back_announced=StoreMoment.ENQUEUED,
            load_back_usable=StoreMoment.ENQUEUED,
        ),
    ),
    "loads_without_quota": Variation(
        tiers.loads_without_quota,
        lambda profile: evolve(profile, limits=frozenset({Limit.NO_QUOTA})),
    ),
    "whole_node_windows": Variation(
        tiers.whole_node_windows, lambda profile: evolve(profile, window_lock_exact=False)
    ),
    "parts_on_host": Variation(
        hosts.parts_on_host, lambda profile: evolve(profile, whole_nodes_on_host=False)
    ),
    "locks_of_the_device": Variation(
        hosts.locks_of_the_device, lambda profile: evolve(profile, locks_hold_host_copies=False)
    ),
    "every_insert_hits": Variation(
        inserts.every_insert_hits, lambda profile: evolve(profile, hits_once_a_request=False)
    ),
    "idle_hits_uncounted": Variation(
        inserts.idle_hits_uncounted, lambda profile: evolve(profile, idle_hits_counted=False)
    ),
    "new_slots_heal": Variation(
        inserts.new_slots_heal, lambda profile: evolve(profile, heals_in_place=False)
    ),
    "windowless_leaves_dropped": Variation(
        inserts.windowless_leaves_dropped, lambda profile: evolve(profile, tombstone_leaves=False)
    ),
    "uncovered_tombstones_leave": Variation(
        evictions.uncovered_tombstones_leave,
        lambda profile: evolve(profile, uncovered_tombstones_stay=False),
    ),
    "bare_windows": Variation(
        uses.bare_windows, lambda profile: evolve(profile, cushion_refreshed=False)
    ),
    "matches_count_hits": Variation(
        inserts.matches_count_hits, lambda profile: evolve(profile, hits_counted_at_match=True)
    ),
    "unreachable_windows_dropped": Variation(
        inserts.unreachable_windows_dropped,
        lambda profile: evolve(profile, unreachable_windows_kept=False),
    ),
    "exclusive_host": Variation(
        hosts.exclusive_host, lambda profile: evolve(profile, loads_keep_host_copies=False)
    ),
    "removes_front_to_back": Variation(
        removes.removes_front_to_back, lambda profile: evolve(profile, removes_end_first=False)
    ),
    **_free(
        uses.recent_duplicates_first,
        cuts.uncut_matches,
        cuts.whole_leaves,
        cuts.joined_chains,
        cuts.page_nodes,
        cuts.cuts_where_walks_end,
        cuts.halved_nodes,
        cuts.leaving_tails,
        declining.impossible_loads_declined_first,
        declining.impossible_backups_declined_first,
        declining.slots_are_checked_first,
        tiers.chains_in_one_copy,
        tiers.independent_copies_settle_early,
        numbers.high_slots_first,
        numbers.scattered_ids,
        numbers.upper_parts_keep_ids,
    ),
}
"""All variations by name."""

CHOSEN = (
    "recent_lower_parts",
    "states_on_the_path",
    "host_in_order_of_arrival",
    "loads_of_use_early",
    "loads_without_quota",
    "whole_node_windows",
    "parts_on_host",
    "locks_of_the_device",
    "matches_count_hits",
    "every_insert_hits",
    "idle_hits_uncounted",
    "new_slots_heal",
    "windowless_leaves_dropped",
    "unreachable_windows_dropped",
    "exclusive_host",
    "uncovered_tombstones_leave",
    "impossible_loads_declined_first",
    "impossible_backups_declined_first",
    "slots_are_checked_first",
    "removes_front_to_back",
    "bare_windows",
    "recent_duplicates_first",
    "uncut_matches",
    "whole_leaves",
    "independent_copies_settle_early",
    "joined_chains",
    "chains_in_one_copy",
    "high_slots_first",
    "scattered_ids",
    "upper_parts_keep_ids",
)
"""The variations of `variant`, which has larger nodes; the others would undo these."""


def varied(name: str, variations: Iterable[str]) -> Adapter:
    """Return the plain cache with some variations, whose profile declares its departures."""
    chosen = [VARIATIONS[each] for each in variations]
    profile = CANON
    for each in chosen:
        profile = each.declared(profile)

    def plant(overrides: Overrides) -> None:
        for each in chosen:
            each.plant(overrides)
        wrap(
            overrides,
            cache,
            take_snapshot,
            lambda take: lambda state: evolve(take(state), profile=profile),
        )

    return Adapter(name, overriding(plant), profile=profile)


VARIANT = varied("variant", CHOSEN)
