"""Host insert on the plain cache: where fetched pages find a place, and where they are dropped."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, SWA, Counts
from scenes import cached_pages, fetch, new_cache, shown

WINDOW = CacheConfig(
    window_tokens=2,
    device_slots=Counts(16, 16),
    host_slots=Counts(16, 16),
    write_policy="write_through",
)


def test_host_insert_window_data_is_more_recent_than_all_before() -> None:
    """Window data that was just fetched is evicted before some that was used earlier."""
    cache, _ = new_cache(WINDOW)
    fetch(cache, [1, 2])
    fetch(cache, [5, 6, 7, 8], window_pages=2)
    assert cached_pages(cache, [5, 6, 7, 8]) == 4
    fetch(cache, [1, 2], window_pages=2)
    cache.evict_host(Counts(swa=1))
    assert cached_pages(cache, [1, 2]) == 2
    assert cached_pages(cache, [5, 6, 7, 8]) == 0


def test_host_insert_window_data_spares_its_own_window() -> None:
    """To place window data, that of the same window is evicted: then the prefix is of no use."""
    cache, _ = new_cache(evolve(WINDOW, window_tokens=4, host_slots=Counts(16, 4)))
    fetch(cache, [1, 2], window_pages=2)
    fetch(cache, [8, 9], window_pages=2)
    fetch(cache, [1, 2, 3, 4], window_pages=4)
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "####"
    assert cached_pages(cache, [1, 2, 3, 4]) == 4
