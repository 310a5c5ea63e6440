"""Offers: what most caches of full attention can be made with."""

from __future__ import annotations

from kvcanon.conformance.protocol.adapter import ONE_LOG, Offer
from kvcanon.spec.types import EvictionPolicy, WritePolicy

FULL_ATTENTION = Offer(
    windows_tokens=(None,),
    mamba=(False,),
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
    eviction_policies=(EvictionPolicy.LRU,),
    load_back_thresholds_pages=(0,),
    event_logs=ONE_LOG,
)
"""No window, no mamba states, no bigrams, no host tier, LRU eviction; all page sizes, namespaces,
events on or off. `attrs.evolve(FULL_ATTENTION, namespaces=False)` offers less."""
