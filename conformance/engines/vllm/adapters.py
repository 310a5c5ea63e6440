"""The adapters of vLLM's KVCacheManager, and their offer.

Without a window it has one KV cache group with full attention; with one it has two groups, full and
sliding window, in one block pool. A cache that is used by requests shows nothing that a profile
describes, so the profile is the canon's.
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
