"""Declared: what each release of SGLang is, and may be made as.

What readers get wrong: a profile excuses nothing.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.adapters.adapter import Adapter, Offer
from kvcanon.conformance.adapters.sglang.hosted import HostedCache
from kvcanon.conformance.adapters.sglang.installed import has, version
from kvcanon.conformance.adapters.sglang.making import make_world
from kvcanon.conformance.adapters.sglang.unified import tree_of
from kvcanon.spec.config import CacheConfig, MambaRefresh, Profile, StoreMoment
from kvcanon.spec.errors import BadArgument

FLAT = Profile(
    load_back_announced=StoreMoment.ENQUEUED,
    load_back_usable=StoreMoment.ENQUEUED,
    window_lock_exact=False,
    split_keeps_recency=False,
    mamba_refresh=MambaRefresh.PATH,
    hits_once_a_request=False,
    heals_in_place=False,
    tombstone_leaves=False,
    host_order_by_use=False,
)
"""Of releases whose cache is one object."""
CORED = evolve(
    FLAT,
    mamba_refresh=MambaRefresh.NODE,
    hits_once_a_request=True,
    tombstone_leaves=True,
    whole_nodes_on_host=False,
    locks_hold_host_copies=False,
)
"""Of releases whose tree is a core of its own, which the cache drives."""
PROFILE = CORED if has("UnifiedTreeCore") else FLAT
OFFER = Offer(
    bigram=(False,),
    namespaces=False,
)
version()


def make(config: CacheConfig) -> HostedCache:
    """A cache."""
    if config.mamba and config.page_size > 1:
        raise BadArgument("page_size", f"is {config.page_size}; with recurrent states it must be 1")
    world = make_world(config, "UnifiedRadixCache", {"tree_core_backend": "python"})
    return HostedCache(world, PROFILE, tree_of(world))


UNIFIED = Adapter("sglang", make, OFFER, PROFILE)
