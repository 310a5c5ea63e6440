"""Eviction from the device on the plain cache: who leaves, with what, and where it is then."""

from __future__ import annotations

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts
from scenes import new_cache, put, shown


def test_evict_negative_priority_leaves_before_the_default() -> None:
    """A prompt inserted with a priority below 0 is kept as if it had the default priority."""
    cache, _ = new_cache(CacheConfig(eviction_policy="priority"))
    put(cache, [1])
    put(cache, [2], priority=-1)
    cache.evict(Counts(1))
    assert shown(cache, [1]) == "#"
    assert shown(cache, [2]) == "."
