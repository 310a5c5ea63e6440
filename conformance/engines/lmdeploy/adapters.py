"""The adapters of LMDeploy's scheduler and of its block trie, and their offers.

LMDeploy keeps prompts apart by the LoRA adapter's name alone; the adapter puts the whole namespace
there. LMDeploy has one policy, LRU, and emits no events.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.engines.lmdeploy.factory import LMDEPLOY
from kvcanon.conformance.engines.lmdeploy.scheduled_cache import ScheduledCache
from kvcanon.conformance.engines.lmdeploy.trie_cache import FineTrieCache, TrieCache
from kvcanon.conformance.protocol.adapter import ONE_LOG, Adapter, CacheKind, Offer
from kvcanon.spec.types import EvictionPolicy, WritePolicy

OFFER = Offer(
    event_logs=ONE_LOG,
    windows_tokens=(None,),
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
    eviction_policies=(EvictionPolicy.LRU,),
    load_back_thresholds_pages=(0,),
)
TRIE_OFFER = evolve(OFFER, mamba=(False,))
LMDEPLOY.version()

SCHEDULED = Adapter("lmdeploy", ScheduledCache, OFFER, kind=CacheKind.REQUEST)
TRIE = Adapter("lmdeploy-trie", TrieCache, TRIE_OFFER)
FINE = Adapter("lmdeploy-trie-fine", FineTrieCache, TRIE_OFFER)
"""The same trie with times of use in fractions of seconds, to show other bugs."""
