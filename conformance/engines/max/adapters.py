"""The adapters of MAX's two cache managers, and their offers.

Neither manager emits events. A request cache shows nothing that a profile describes, so the profile
is the canon's.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.engines.max.factory import MAX
from kvcanon.conformance.engines.max.request_cache import jenga_cache, paged_cache
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer

MAX.version()

_PLAIN = evolve(FULL_ATTENTION, events=(False,))
PAGED = Adapter("max", paged_cache, _PLAIN, kind=CacheKind.REQUEST)
_MIXED = evolve(
    _PLAIN,
    windows_tokens=Offer().windows_tokens,
    mamba=(False, True),
    one_pool=True,
    most_slots=8_192,
)
"""A table of all pages of three leaves takes time."""
JENGA = Adapter("max-jenga", jenga_cache, _MIXED, kind=CacheKind.REQUEST)
