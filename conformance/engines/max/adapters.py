"""The adapters of MAX's two cache managers, and their offers.

Neither manager emits events. A request cache shows nothing that a profile describes, so the profile
is the canon's.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.engines.max.factory import MAX
from kvcanon.conformance.engines.max.request_cache import jenga_cache, paged_cache
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.spec.types import EvictionPolicy, WritePolicy

MAX.version()

_PLAIN = Offer(
    windows_tokens=(None,),
    mamba=(False,),
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
    eviction_policies=(EvictionPolicy.LRU,),
    load_back_thresholds_pages=(0,),
    events=(False,),
)
PAGED = Adapter("max", paged_cache, _PLAIN, kind=CacheKind.REQUEST)
_MIXED = evolve(_PLAIN, windows_tokens=Offer().windows_tokens, mamba=(False, True), one_pool=True)
JENGA = Adapter("max-jenga", jenga_cache, _MIXED, kind=CacheKind.REQUEST)
