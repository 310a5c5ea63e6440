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

from collections.abc import Iterable
from importlib import import_module

from attrs import evolve

from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.lab.variants.override import Overrides, overriding
from kvcanon.lab.variants.registry import VARIATIONS
from kvcanon.lab.variants.wrapped_rules import wrap
from kvcanon.reference import cache
from kvcanon.reference.snapshot import take_snapshot
from kvcanon.spec.config import CANON

__all__ = ["CHOSEN", "VARIANT", "VARIATIONS", "varied"]

# Importing a module lists its variations; where two replace one rule, the later wraps the earlier.
for _module in [
    "uses",
    "tiers",
    "hosts",
    "inserts",
    "evictions",
    "declining",
    "removes",
    "cuts",
    "numbers",
    "policies",
    "unasked",
]:
    import_module(f"kvcanon.lab.variants.{_module}")

CHOSEN = tuple(name for name, each in VARIATIONS.items() if each.chosen)
"""The variations of `variant`."""


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
            lambda take, state: evolve(take(state), profile=profile),
        )

    return Adapter(name, overriding(plant), Offer(states_within=True, stores=True), profile)


VARIANT = varied("variant", CHOSEN)
