"""`lock_found`: a lock by what a match found, without a look at the tokens."""

from __future__ import annotations

import numpy as np
import pytest

from kvcanon.optimized import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.types import GPU, SWA, Counts

PROMPT = np.arange(40, dtype=np.uint32)
CONFIG = CacheConfig(
    page_size=4, window_tokens=8, mamba=True, device_slots=Counts(full=20, swa=20, mamba=4)
)
PLAIN = CacheConfig(page_size=4, device_slots=Counts(full=10))


def cached(config: CacheConfig = CONFIG) -> PrefixCache:
    """A cache with the prompt, in one node."""
    cache = PrefixCache(config)
    swa, states = (10 if config.window_tokens else 0), int(config.mamba)
    full, window, mamba = cache.allocate(10, swa, states)
    cache.insert(PROMPT, 0, full, window if swa else None, mamba if states else None)
    return cache


@pytest.mark.parametrize("pages", [None, 0, 1, 5, 9, 10])
def test_it_locks_what_a_lock_by_tokens_locks(pages: int | None) -> None:
    """Slots, nodes and cuts are the same, and so is what can be evicted then; unlocking ends it."""
    seen = []
    for is_by_tokens in (True, False):
        cache = cached()
        found = cache.match(PROMPT)
        receipt = cache.lock(PROMPT, 0, pages) if is_by_tokens else cache.lock_found(found, pages)
        stats = cache.stats()
        if pages in {None, 10}:
            assert stats.pools[SWA, GPU].protected_slots == CONFIG.window_pages
        first = stats.nodes, stats.receipts, stats.pools
        freed = cache.evict(20, 20, 4)
        cache.tree.check()
        cache.unlock_window(receipt)
        more = cache.evict(0, 20, 4)
        cache.unlock(receipt)
        seen.append((first, freed, more, cache.evict(20, 20, 4), cache.stats().nodes))
        cache.tree.check()
    assert seen[0] == seen[1]
    assert seen[0][-1] == 0
    assert (seen[0][1][0] == 0) == (pages in {None, 10})


def test_it_holds_after_cuts_of_the_prefix() -> None:
    """Other requests cut the node where the match ended; the receipt covers all its pages."""
    cache = cached(PLAIN)
    found = cache.match(PROMPT)
    for pages in (7, 3, 9):
        assert cache.match(PROMPT[: 4 * pages]).prefix_pages == pages
    receipt = cache.lock_found(found)
    assert cache.evict(10) == [0, 0, 0]
    cache.unlock(receipt)
    assert cache.evict(10) == [10, 0, 0]


def test_a_prefix_that_left_is_not_cached() -> None:
    """A match again is needed, also where other nodes have taken the place in memory."""
    cache = cached(PLAIN)
    found = cache.match(PROMPT)
    cache.evict(10)
    with pytest.raises(PrefixNotCached):
        cache.lock_found(found)
    full, _, _ = cache.allocate(10)
    cache.insert(PROMPT, 0, full)
    with pytest.raises(PrefixNotCached):
        cache.lock_found(found)
    again = cache.match(PROMPT)
    cache.reset()
    with pytest.raises(PrefixNotCached):
        cache.lock_found(again)
    # A match of nothing locks nothing, as a lock of no pages does.
    found = cache.match(PROMPT)
    cache.reset()
    cache.unlock(cache.lock_found(found))
    assert cache.stats().receipts == 0
    cache.tree.check()


@pytest.mark.parametrize(
    ("given", "pages", "words"),
    [
        ("here", 11, "pages: is 11; the match found 10 pages"),
        ("here", -1, "pages: is -1; the match found 10 pages"),
        ("here", "x", "pages: must be a whole number"),
        ("there", None, "found: is a match of another cache"),
        (None, None, "found: is no match; give what `match` returned"),
        (3, None, "found: is no match"),
    ],
)
def test_wrong_calls_are_refused(given: object, pages: object, words: str) -> None:
    """One line says what is wrong; nothing is locked."""
    cache, other = cached(PLAIN), cached(PLAIN)
    matches = {"here": cache.match(PROMPT), "there": other.match(PROMPT)}
    with pytest.raises(BadArgument, match=words):
        cache.lock_found(matches.get(given, given), pages)  # type: ignore[arg-type, call-overload]
    assert cache.stats().receipts == 0
