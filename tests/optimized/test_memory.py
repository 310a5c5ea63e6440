"""Memory of the native core: what cuts share, and what evictions and resets give back."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve

from array_api import counted, insert, new_cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import page_hashes
from kvcanon.spec.types import Counts

PLAIN = CacheConfig(device_slots=Counts(full=64), events=False)

LONG = np.arange(1 << 16, dtype=np.uint32)
LARGE = CacheConfig(device_slots=Counts(full=LONG.size), events=False)


@pytest.fixture
def growth() -> Callable[[], int]:
    """By how many bytes the tokens and hashes of all trees have grown in this test."""
    gc.collect()
    idle = new_cache(PLAIN)
    before = counted(idle, "span_bytes")
    return lambda: counted(idle, "span_bytes") - before


def test_cuts_share_their_tokens(growth: Callable[[], int]) -> None:
    """A cut copies no tokens."""
    cache = new_cache(LARGE)
    insert(cache, LONG)
    assert growth() == LONG.nbytes
    for pages in range(1, 100):
        cache.match(LONG[:-pages])
    assert counted(cache, "nodes") == 100
    assert growth() == LONG.nbytes
    cache.tree.check()


@pytest.mark.parametrize("events", [False, True])
def test_tail_that_was_evicted_is_given_back(growth: Callable[[], int], events: bool) -> None:
    """Evicting the tail of a prompt frees the memory of its tokens and hashes."""
    page_bytes = 4 + (32 if events else 0)
    cache = new_cache(evolve(LARGE, events=events))
    insert(cache, LONG)
    cache.take_events()
    assert growth() == LONG.size * page_bytes
    cache.match(LONG[:16])
    cache.match(LONG[:8])
    cache.evict(LONG.size - 16)
    cache.take_events()
    assert counted(cache, "nodes") == 2
    assert cache.match(LONG).device_pages == 16
    assert growth() == 16 * page_bytes
    # What comes in the place of what left is a stretch of its own.
    insert(cache, LONG[:24])
    cache.take_events()
    assert growth() == 24 * page_bytes
    cache.evict(24)
    cache.take_events()
    assert growth() == 0
    cache.tree.check()


def test_events_keep_their_pages_until_they_are_taken(growth: Callable[[], int]) -> None:
    """Events keep the memory of their pages until they are collected, and no longer."""
    cache = new_cache(evolve(LARGE, events=True))
    cache.take_events()
    insert(cache, LONG)
    cache.match(LONG[:16])
    cache.evict(LONG.size - 16)
    assert growth() == LONG.size * 4
    stored, removed = cache.take_events()
    assert growth() == LONG.size * 36  # With 32 bytes of name for each.
    assert (stored.kind, removed.kind) == ("stored", "removed")
    assert np.array_equal(stored.tokens.reshape(-1), LONG)
    assert np.array_equal(removed.tokens.reshape(-1), LONG[16:])
    del stored
    assert removed.hashes[-32:] == page_hashes(b"", [(token,) for token in range(17)])[-1]
    assert growth() == LONG.size * 36
    del removed
    assert growth() == 16 * 36
    assert cache.match(LONG).device_pages == 16


def test_events_outlive_their_cache() -> None:
    """Events that were taken stay valid after their cache is gone."""
    cache = new_cache(evolve(PLAIN, events=True))
    for prompt in (np.arange(20, dtype=np.uint32), np.arange(40, dtype=np.uint32)):
        insert(cache, prompt)
    events = cache.take_events()
    del cache
    gc.collect()
    assert [each.kind for each in events] == ["cleared", "stored", "stored"]
    assert events[2].tokens.reshape(-1).tolist() == list(range(20, 40))
    assert events[2].parent_hash == events[1].hashes[-32:]


def test_nodes_are_used_again() -> None:
    """Nodes are reused after evictions and resets, so the arena does not grow with inserts."""
    cache = new_cache(PLAIN)
    for first in range(2000):
        insert(cache, np.arange(first, first + 8, dtype=np.uint32))
        cache.evict(8)
    assert counted(cache, "nodes") == 0
    assert counted(cache, "arena_nodes") <= 4
    cache.tree.check()
    for _ in range(50):
        for first in range(8):
            insert(cache, np.arange(first, first + 8, dtype=np.uint32))
        cache.reset()
        cache.tree.check()
    assert counted(cache, "arena_nodes") <= 16
