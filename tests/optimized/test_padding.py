"""Padding slots: the first slots of a device pool, which the cache never gives out."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from array_api import array, unchanged
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots, SlotNotHeld
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, WritePolicy

CONFIG = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=Counts(8, 6, 3),
    host_slots=Counts(8, 8, 4),
    write_policy=WritePolicy.WRITE_THROUGH,
)
ONE_EACH = Counts(1, 1, 1)


def make_cache(padding: Counts = ONE_EACH) -> PrefixCache:
    """A cache whose first slots are padding."""
    pools = Pools(CONFIG, dict.fromkeys(CONFIG.components, PageLayout(1, (4,))))
    return PrefixCache(CONFIG, pools, padding_slots=padding)


def test_padding_slots_are_never_given_out() -> None:
    """All slots but the first are given out; padding is neither capacity nor held by requests."""
    cache = make_cache()
    pools = cache.stats().pools
    for component, usable in ((FULL, 7), (SWA, 5), (MAMBA, 2)):
        pool = pools[component, GPU]
        assert (pool.capacity_slots, pool.free_slots, pool.held_slots) == (usable, usable, 0)
    assert pools[FULL, CPU].capacity_slots == 8
    assert cache.free_slot_counts() == (7, 5, 2)
    given = [each.tolist() for each in cache.allocate(7, 5, 2)]
    assert given == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5], [1, 2]]
    with unchanged(cache, OutOfSlots, "full on GPU: 1 slots asked, 0 free"):
        cache.allocate(1)
    several = make_cache(Counts(full=3, swa=2)).allocate(2, 2, 1)
    assert [each.tolist() for each in several] == [[3, 4], [2, 3], [0]]


def test_padding_slots_cannot_be_freed_or_inserted() -> None:
    """A client does not hold the padding, so that it cannot give it away."""
    cache = make_cache()
    full, swa, mamba = cache.allocate(2, 2, 1)
    with unchanged(cache, SlotNotHeld, "slot 0 of full on GPU"):
        cache.free(array(0))
    with unchanged(cache, SlotNotHeld, "slot 0 of full on GPU"):
        cache.free(array(2, 1, 0))
    with unchanged(cache, SlotNotHeld, "slot 0 of swa on GPU"):
        cache.insert(np.arange(2, dtype=np.uint32), 0, full, array(0, 1), mamba)
    assert not cache.tree.holds_slot(0, 0)
    cache.insert(np.arange(2, dtype=np.uint32), 0, full, swa, mamba)


def test_padding_outlives_evictions_and_resets() -> None:
    """Whatever is evicted or forgotten, the padding stays out of the free list."""
    random = Random(4)
    with make_cache() as cache:
        for _ in range(200):
            prompt = np.array([random.randrange(3) for _ in range(4)], dtype=np.uint32)
            start = cache.match(prompt).device_pages
            cache.flush()
            needed = 4 - start
            full, swa, _ = (max(0, needed - free) for free in cache.free_slot_counts())
            cache.evict(full, swa, 1)
            slots = cache.allocate(needed, needed, int(needed > 0))
            assert 0 not in np.concatenate(slots)
            cache.insert(prompt, start, *slots)
            if random.random() < 0.05:
                cache.flush()
                cache.reset()
                assert cache.free_slot_counts() == (7, 5, 2)
        cache.tree.check()


def test_more_padding_than_slots_is_refused() -> None:
    """A pool has at least its padding; negative padding makes no sense."""
    with pytest.raises(BadArgument, match="padding_slots: is 9; it must be at most the pool's"):
        make_cache(Counts(full=9))
    with pytest.raises(BadArgument, match="padding_slots: is -1"):
        make_cache(Counts(full=-1))
    assert make_cache(Counts(full=8)).free_slot_counts() == (0, 6, 3)
