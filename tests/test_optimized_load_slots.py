"""What a load-back answers: where a layer can be read while the others still come."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy

Tokens = npt.NDArray[np.int32]


def make_cache(*, mamba: bool) -> PrefixCache:
    """A window of three pages and a host tier; copies wait until somebody waits for them."""
    config = CacheConfig(
        page_size=2,
        window_tokens=6,
        mamba=mamba,
        device_slots=Counts(full=64, swa=48, mamba=16),
        host_slots=Counts(full=64, swa=64, mamba=32),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
    pools = Pools(config, dict.fromkeys(config.components, PageLayout(1, (1,))))
    return PrefixCache(config, pools, ManualEngine())


def prompt(*stretches: int) -> Tokens:
    """Four pages for each number."""
    return np.concatenate([np.arange(8, dtype=np.int32) + 100 * number for number in stretches])


def insert(cache: PrefixCache, tokens: Tokens) -> None:
    """Insert all of a prompt, its state included, and back it up."""
    pages = len(tokens) // 2
    cache.insert(tokens, 0, *cache.allocate(pages, pages, int(cache.config.mamba)))
    cache.flush()


def slots_of(answer: object) -> list[list[int]]:
    """The three lists of slots of a match or a load-back."""
    return [getattr(answer, name).tolist() for name in ("full", "swa", "mamba")]


def test_slots_are_those_of_the_match_that_follows() -> None:
    """What is computed on during a load is read from other slots than after it."""
    loads, gaps, states = 0, 0, 0
    for seed in range(200):
        drawn = random.Random(seed)
        cache = make_cache(mamba=seed % 2 == 0)
        for stretches in ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)):
            insert(cache, prompt(*stretches))
        cache.evict(drawn.choice((0, 0, 4, 8)), drawn.randrange(16), seed % 4)

        tokens = prompt(1, 2, 3, 4)[: 2 * drawn.randrange(17)]
        usable = cache.match(tokens).prefix_pages
        loaded = cache.load_back(tokens[: 2 * usable])
        before = slots_of(loaded)
        if loaded.transfer_id is None:
            assert before == [[], [], []]
            continue
        cache.flush()
        found = cache.match(tokens)
        assert found.device_pages == usable
        assert slots_of(found) == before
        loads += 1
        gaps += 0 < loaded.loading[1] < 3  # Of the window of three pages some were there.
        states += loaded.loading[2]
    assert min(loads, gaps, states) >= 10


def test_slots_of_an_earlier_load_are_named_too() -> None:
    """The second of two loads on a path hides where the first one puts its pages."""
    cache = make_cache(mamba=True)
    insert(cache, prompt(1))
    insert(cache, prompt(1, 2))
    cache.evict(8)
    tokens = prompt(1, 2)
    first = cache.load_back(tokens[:8])
    second = cache.load_back(tokens)
    assert cache.match(tokens).pending == (first.transfer_id, second.transfer_id)
    assert first.loading[0] == second.loading[0] == 4
    before = slots_of(second)
    assert before[0][:4] == first.full.tolist()
    cache.flush()
    assert slots_of(cache.match(tokens)) == before
