"""The adapters of vLLM's KVCacheManager, and their offer.

Without a window the manager has one KV cache group with full attention; with a window it has two
groups, full and sliding window, in one block pool. A request cache shows nothing that a profile
describes, so the profile is the canon's.
"""

from __future__ import annotations

from kvcanon.conformance.engines.vllm.factory import NAMES
from kvcanon.conformance.engines.vllm.request_cache import CountedCache, ManagedCache
from kvcanon.conformance.protocol.adapter import ONE_LOG, Adapter, CacheKind, Offer
from kvcanon.spec.types import EvictionPolicy, WritePolicy

OFFER = Offer(
    event_logs=ONE_LOG,
    mamba=(False,),
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
    eviction_policies=(EvictionPolicy.LRU,),
    load_back_thresholds_pages=(0,),
    events=(True,),
    most_slots=8_192,
    one_pool=True,
)
NAMES.version()

VLLM = Adapter("vllm", ManagedCache, OFFER, kind=CacheKind.REQUEST)
COUNTED = Adapter("vllm-counted", CountedCache, OFFER, kind=CacheKind.REQUEST)
"""The same cache with a listener that counts the blocks of each page. vLLM keeps a block per
request that computed the page, and emits events for each; the listener hides this, to show other
bugs."""
