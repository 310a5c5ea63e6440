"""LMDeploy's block trie behind its adapter: what it breaks, and what the adapter does not hide."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest

from engine_here import adapter_here, broken_laws
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import Counts, Key, make_key

TRIE, FINE = adapter_here("lmdeploy-trie"), adapter_here("lmdeploy-trie-fine")
TRIE_MODULE = "lmdeploy.pytorch.paging.block_trie."
CASES = 40


def made() -> Cache:
    """Make a cache with pages of one token, six blocks, and fine times."""
    return cast("Cache", FINE.make(CacheConfig(device_slots=Counts(full=6))))


def insert(cache: Cache, *tokens: int) -> Key:
    """Insert a prompt."""
    key = make_key(tokens, 1)
    cache.insert(key, 0, cache.allocate(Counts(full=len(key))))
    return key


def test_only_the_order_of_eviction_is_wrong() -> None:
    """Times in whole seconds break one law, and times in fractions none."""
    assert broken_laws(TRIE, CASES) == {"REC-3"}
    assert broken_laws(FINE, CASES) == set()


def test_duplicates_are_freed() -> None:
    """An insert keeps the blocks that the trie has."""
    cache = made()
    key = insert(cache, 1, 2)
    kept = cache.match(key).slots
    longer = make_key([1, 2, 3], 1)
    answer = cache.insert(longer, 0, cache.allocate(Counts(full=3)))
    assert answer == Inserted(2, Counts(full=1), Counts(full=2))
    assert cache.match(longer).slots.full[:2] == kept.full


def test_lock_and_refused_lock_leave_recency_alone() -> None:
    """The older prompt stays the next victim, though it was locked and unlocked last."""
    cache = made()
    old, new = insert(cache, 1), insert(cache, 2)
    cache.unlock(cache.lock(old))
    with pytest.raises(PrefixNotCached):
        cache.lock(make_key([1, 5], 1))
    cache.evict(Counts(full=1))
    assert (cache.match(old).prefix_pages, cache.match(new).prefix_pages) == (0, 1)


def test_locked_blocks_that_are_evicted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eviction that ignores the references of sequences is found."""
    allocator: Any = import_module(
        "lmdeploy.pytorch.paging.block_manager.base_block_manager"
    ).LogicalAllocator
    original = allocator.get_ref_count
    monkeypatch.setattr(
        allocator, "get_ref_count", lambda self, blocks: original(self, blocks).clip(0, 1)
    )
    # The blocks leave the trie, and are not free: their sequences have them still.
    assert {"LOCK-4", "ALLOC-3"} & broken_laws(FINE, CASES)


def test_match_that_refreshes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times that the adapter puts back are not those of a match."""
    allocator: Any = import_module(
        "lmdeploy.pytorch.paging.block_manager.base_block_manager"
    ).LogicalAllocator
    original = allocator.free

    def free(self: Any, blocks: Any) -> None:  # noqa: ANN401 # LMDeploy's.
        """Free without a new time."""
        times = self._log_mem.access_time.copy()
        original(self, blocks)
        self._log_mem.access_time[:] = times

    monkeypatch.setattr(allocator, "free", free)
    trie: Any = import_module(f"{TRIE_MODULE}trie").BlockTrie
    match = trie.match

    def stale(self: Any, sequence: Any) -> None:  # noqa: ANN401 # LMDeploy's.
        """Match without a new time."""
        times = self.allocator._log_mem.access_time.copy()
        match(self, sequence)
        self.allocator._log_mem.access_time[:] = times

    monkeypatch.setattr(trie, "match", stale)
    assert "REC-3" in broken_laws(FINE, CASES)
