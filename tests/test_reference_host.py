"""Eviction from the host on the plain cache: who may leave, in which order, and what stays."""

from __future__ import annotations

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, FULL, Counts
from scenes import new_cache, prompt, put, shown

WRITE_BACK = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_back")


@pytest.mark.parametrize("cuts", [(2, 4), (4, 2)])
def test_evict_host_of_duplicates_used_at_once_takes_the_upper_first(cuts: tuple[int, int]) -> None:
    """Of duplicates used at once that leaves which was copied first, not the upper."""
    cache, _ = new_cache(WRITE_BACK)
    tokens = [1, 2, 3, 4, 5, 6]
    put(cache, tokens)
    for cut in cuts:
        cache.match(prompt(cache, tokens[:cut]))
    for _ in range(3):
        cache.evict(Counts(2))
    cache.load_back(prompt(cache, tokens))
    cache.flush()
    cache.match(prompt(cache, tokens))
    left = []
    for _ in range(3):
        assert cache.evict_host(Counts(1)).freed == Counts(2)
        left.append(shown(cache, tokens, FULL, CPU))
    assert left == ["..####", "....##", "......"]
