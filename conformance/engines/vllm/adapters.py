"""Declared: what vLLM's prefix cache is, and may be made as.

Without a window it has one group of layers with full attention; with one it has two groups, full
and sliding window, in one pool.

What readers get wrong: nothing that a profile speaks of can be seen of a cache that is used by
requests. So the profile is the canon's, and says nothing.
"""

from __future__ import annotations

from kvcanon.conformance.engines.vllm.release import version
from kvcanon.conformance.engines.vllm.request_cache import CountedCache, ManagedCache
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.spec.types import EvictionPolicy, WritePolicy

OFFER = Offer(
    mamba=(False,),
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
    eviction_policies=(EvictionPolicy.LRU,),
    load_back_thresholds_pages=(0,),
    events=(True,),
    one_pool=True,
)
version()

VLLM = Adapter("vllm", ManagedCache, OFFER, kind=CacheKind.REQUEST)
COUNTED = Adapter("vllm-counted", CountedCache, OFFER, kind=CacheKind.REQUEST)
"""The same cache before a listener that counts the blocks of a page. vLLM keeps several of a page
that several requests computed, and tells of each; what else is wrong is seen behind that."""
