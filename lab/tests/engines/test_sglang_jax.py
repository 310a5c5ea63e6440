"""sglang-jax's radix caches behind their adapters: what they break; planted faults are found."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest

from engine_here import adapter_here, broken_laws
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import FULL, GPU, SWA, Counts, Slots, make_key

RADIX, WINDOW = adapter_here("sglang-jax"), adapter_here("sglang-jax-window")
CASES = 100
KEY = make_key([1, 2, 3, 4], 2)
LONGER = make_key([1, 2, 3, 4, 5, 6], 2)


def caches() -> Any:  # noqa: ANN401 # sglang-jax's module.
    """Return the module of the cache with a window."""
    return import_module("sgl_jax.srt.mem_cache.swa_radix_cache")


def plain() -> Cache:
    """Make a cache with pages of two tokens and six slots."""
    return cast("Cache", RADIX.make(CacheConfig(page_size=2, device_slots=Counts(full=6))))


def with_window() -> Cache:
    """Make one with a window of a page."""
    config = CacheConfig(page_size=2, window_tokens=2, device_slots=Counts(full=8, swa=8))
    return cast("Cache", WINDOW.make(config))


def test_duplicates_are_freed() -> None:
    """An insert keeps the slots of the tree; the scheduler or the cache frees the others."""
    cache = plain()
    cache.insert(KEY, 0, cache.allocate(Counts(full=2)))
    answer = cache.insert(LONGER, 0, cache.allocate(Counts(full=3)))
    assert answer == Inserted(2, Counts(full=1), Counts(full=2))
    cache = with_window()
    cache.insert(KEY, 0, cache.allocate(Counts(full=2, swa=2)))
    answer = cache.insert(LONGER, 0, cache.allocate(Counts(full=3, swa=3)))
    assert answer == Inserted(2, Counts(full=1, swa=1), Counts(full=2, swa=2))


def test_window_slots_are_freed_before_their_full_slots() -> None:
    """A slide frees window slots alone; what was slid is inserted without them."""
    cache = with_window()
    slots = cache.allocate(Counts(full=3, swa=3))
    cache.free(Slots(swa=slots.swa[:1]))
    assert len(cache.free_slots(SWA, GPU)) == 6
    with pytest.raises(BadArgument):
        cache.free(Slots(slots.full[1:2]))
    cache.insert(LONGER, 0, Slots(slots.full, slots.swa[1:]))
    assert cache.match(LONGER).slots == Slots(slots.full, slots.swa[1:])
    assert cache.match(KEY.prefix(1)).device_pages == 0
    assert len(cache.free_slots(FULL, GPU)) == 5


def test_only_what_a_match_ends_at_is_locked() -> None:
    """A key that is not there, ends inside a node or has no whole window is refused."""
    cache = with_window()
    slots = cache.allocate(Counts(full=3, swa=1))
    cache.insert(LONGER, 0, slots)
    with pytest.raises(PrefixNotCached):
        cache.lock(make_key([1, 2, 3, 4, 5, 6, 7, 8], 2))
    with pytest.raises(BadArgument):
        cache.lock(KEY)
    cache.unlock(cache.lock(LONGER))


def test_plain_cache_breaks_no_law() -> None:
    """RadixCache as it is breaks no law."""
    assert broken_laws(RADIX, CASES) == set()


def test_count_of_an_eviction_is_wrong() -> None:
    """SWARadixCache counts no tokens of the nodes that leave with a leaf."""
    assert broken_laws(WINDOW, CASES) == {"ALLOC-3"}


def test_with_its_count_the_window_cache_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an eviction answers what came free, these cases find nothing."""
    count_what_comes_free(monkeypatch)
    assert broken_laws(WINDOW, CASES) == set()


def count_what_comes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mend the count of an eviction."""
    cache = caches().SWARadixCache
    original = cache.evict

    def evict(self: Any, params: object) -> Any:  # noqa: ANN401 # sglang-jax's.
        """Evict, and count what the allocator has more."""
        allocator = self.token_to_kv_pool_allocator
        before = allocator.full_available_size()
        answer = original(self, params)
        answer.num_tokens_evicted = allocator.full_available_size() - before
        return answer

    monkeypatch.setattr(cache, "evict", evict)


def test_split_that_loses_a_lock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose upper part is not locked any more leaves under a request."""
    cache = import_module("sgl_jax.srt.mem_cache.radix_cache").RadixCache
    original = cache._split_node

    def split(self: Any, *arguments: object) -> Any:  # noqa: ANN401 # sglang-jax's.
        """Split, and lock the lower part alone."""
        upper = original(self, *arguments)
        upper.lock_ref = 0
        return upper

    monkeypatch.setattr(cache, "_split_node", split)
    assert broken_laws(RADIX, CASES)


def test_leaf_that_frees_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots of a leaf that leaves and never come free are found."""
    allocators = import_module("sgl_jax.srt.mem_cache.allocator")
    monkeypatch.setattr(allocators.SWATokenToKVPoolAllocator, "free", lambda *_, **__: None)
    assert broken_laws(WINDOW, CASES) > {"ALLOC-3"}
