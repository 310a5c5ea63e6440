"""The scopes with a store below the host tier, and as little as can be above it.

The store is late, fails in the middle of an order, and loses pages at any time. The cache is reset
with it, as by a restart, and without it, for new weights. What a tree does without a store, other
scopes show.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.explore.scope import Scope
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import DISK, EXTERNAL, Counts

_OF_ONE_PAGE = tuple(f"TIER-{number}" for number in (*range(1, 13), 15))
_OF_TWO_PAGES = (*_OF_ONE_PAGE, "TIER-13", "TIER-14")

_PAGES = Scope(
    "store_pages",
    "a store that loses, changes and mixes up pages: a slot on the device and one on the host "
    "under write-through, 2 prompts of a page, one order at a time",
    CacheConfig(device_slots=Counts(1), host_slots=Counts(1), write_policy="write_through"),
    fans=(2,),
    receipts=0,
    in_flight=1,
    store=EXTERNAL,
    made_for=_OF_ONE_PAGE,
)
_ORDERS = evolve(
    _PAGES,
    name="store_orders",
    words="a store with two orders at a time: a slot on the device and 2 on the host under "
    "write-through, a prompt of a page, and pages that are lost",
    config=evolve(_PAGES.config, host_slots=Counts(2)),
    fans=(1,),
    damage=False,
    orders=2,
)
_CHAIN = evolve(
    _PAGES,
    name="store_chain",
    words="pages that follow each other in a store that loses some: 2 slots on the device and 2 on "
    "the host under write-through, a prompt of 2 pages, one order at a time",
    config=evolve(_PAGES.config, device_slots=Counts(2), host_slots=Counts(2)),
    fans=(1, 1),
    damage=False,
    store=DISK,
    made_for=_OF_TWO_PAGES,
)
_WRITE_BACK = evolve(
    _CHAIN,
    name="store_write_back",
    words="a store that loses pages: 2 slots on the device and 2 on the host under write-back, a "
    "prompt of 2 pages, one order at a time",
    config=evolve(_CHAIN.config, write_policy="write_back"),
)

STORED = (_PAGES, _ORDERS, _CHAIN, _WRITE_BACK)
