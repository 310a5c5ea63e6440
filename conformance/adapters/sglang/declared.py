"""Declared: what each release of SGLang is, and may be made as.

What readers get wrong: a profile excuses nothing.
"""

from __future__ import annotations

from kvcanon.conformance.adapters.adapter import Adapter, Offer
from kvcanon.conformance.adapters.sglang.installed import version
from kvcanon.conformance.adapters.sglang.making import make_world
from kvcanon.conformance.adapters.sglang.unified import UnifiedCache, make_unified
from kvcanon.spec.config import CacheConfig, MambaRefresh, Profile, StoreMoment
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import WritePolicy

PROFILE = Profile(
    load_back_announced=StoreMoment.ENQUEUED,
    window_lock_exact=False,
    split_keeps_recency=False,
    mamba_refresh=MambaRefresh.PATH,
    hits_once_a_request=False,
    heals_in_place=False,
    tombstone_leaves=False,
)
OFFER = Offer(
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
    namespaces=False,
)
version()


def make(config: CacheConfig) -> UnifiedCache:
    """A cache."""
    if config.mamba and config.page_size > 1:
        raise BadArgument("page_size", f"is {config.page_size}; with recurrent states it must be 1")
    return make_unified(make_world(config, "UnifiedRadixCache", {}), PROFILE)


UNIFIED = Adapter("sglang", make, OFFER, PROFILE)
