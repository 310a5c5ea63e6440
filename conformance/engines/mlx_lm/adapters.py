"""The adapter of mlx-lm's LRUPromptCache, and its offer.

The cache emits no events. A request cache shows nothing that a profile describes, so the profile is
the canon's.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.engines.mlx_lm.layers import MLX
from kvcanon.conformance.engines.mlx_lm.request_cache import PromptCache
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer

MLX.version()

OFFER = evolve(
    FULL_ATTENTION,
    windows_tokens=Offer().windows_tokens,
    mamba=(False, True),
    events=(False,),
    most_slots=128,
)
"""Looking for free slots takes time that grows with the pool."""
MLX_LM = Adapter("mlx-lm", PromptCache, OFFER, kind=CacheKind.REQUEST)
