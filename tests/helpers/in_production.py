"""The guard in production around small caches, for its tests."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvcanon.conformance import ProductionGuard, production_guard
from kvcanon.reference import ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Counts, Key, make_key

CONFIG = CacheConfig(page_size=2, device_slots=Counts(full=16), events=True)
KEY, OTHER = make_key([1, 2, 3, 4], 2), make_key([1, 2, 9, 9], 2)


class Boasting(ReferenceCache):
    """Says of each match that all pages of the key are cached."""

    def match(self, key: Key) -> Matched:
        return evolve(super().match(key), prefix_pages=len(key))


def wrapped(cache: ReferenceCache, rate: float = 1.0, **how: Any) -> tuple[Any, ProductionGuard]:  # noqa: ANN401  # Options.
    """The guard of a cache, and the same as the cache that it stands for."""
    guarded = production_guard(cache, rate, **{"budget": None, **how})
    return guarded, guarded


def serve(cache: Cache, key: Key = KEY) -> None:
    """Serve one request, and make room for it first."""
    found = cache.match(key)
    receipt = cache.lock(key.prefix(found.device_pages))
    missing = len(key) - found.device_pages
    cache.evict(Counts(missing))
    cache.insert(key, found.device_pages, cache.allocate(Counts(missing)))
    cache.unlock(receipt)
    cache.take_events()


def is_clean(guarded: ProductionGuard) -> bool:
    """Whether nothing was accused, and no error of the judge was counted."""
    return (guarded.counts.violations, guarded.counts.errors) == ({}, 0)
