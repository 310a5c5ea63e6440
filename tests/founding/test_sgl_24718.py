"""sgl#24718, events of a tree with window data: its rules, its edge cases and its two tests."""

from __future__ import annotations

from collections import Counter

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcanon.spec.types import FULL, GPU, SWA, Counts
from scenes import (
    BOTH_CACHES,
    cached_pages,
    free_slots,
    heard,
    judged_cache,
    lock,
    node_ends,
    prompt,
    put,
    shown,
)

CONFIG = CacheConfig(window_tokens=4, device_slots=Counts(full=16, swa=16))
each_cache = pytest.mark.parametrize("name", BOTH_CACHES)


# The report's first test.


@pytest.mark.parametrize(
    ("name", "removed"),
    [
        ("uncovered_tombstones_leave", 6),
        ("removes_front_to_back", 2),
        *((name, 2) for name in BOTH_CACHES),
    ],
)
def test_report_events_of_two_inserts_and_two_evictions(name: str, removed: int) -> None:
    """Inserts emit stores of new pages only, and evicting window data emits no event.

    The report expects removes of all six pages: the tombstone without children is evicted, too. The
    canon keeps it, as its slots were not requested.
    """
    cache, _ = judged_cache(name, CONFIG)
    cache.take_events()
    stored: list[BlockStored] = []
    for tokens, new in (([1, 2, 3, 4], [1, 2, 3, 4]), ([1, 2, 3, 4, 5, 6], [5, 6])):
        put(cache, tokens)
        events = [event for event in cache.take_events() if isinstance(event, BlockStored)]
        assert [event.page for event in events] == [(token,) for token in new]
        stored += events
    assert cache.evict(Counts(swa=1)).freed.swa > 0
    assert cache.take_events() == ()
    cache.evict(Counts(full=1))
    gone = [event for event in cache.take_events() if isinstance(event, BlockRemoved)]
    assert Counter(event.block_hash for event in gone) == Counter(
        event.block_hash for event in stored[-removed:]
    )


# Its second test.


@each_cache
def test_report_branch_after_a_split_hangs_on_the_last_shared_page(name: str) -> None:
    """The parent hash of a branch inside a node is the hash of the last shared page."""
    cache, _ = judged_cache(name, CONFIG)
    cache.take_events()
    put(cache, [1, 2, 3, 4])
    first = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    put(cache, [1, 2, 5, 6])
    second = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    assert len(first) == 4
    assert [event.page for event in second] == [(5,), (6,)]
    assert second[0].parent_hash == first[1].block_hash


# Its other rules.


@each_cache
def test_report_cache_begins_with_a_cleared_event(name: str) -> None:
    """A new cache emits a clear first."""
    cache, _ = judged_cache(name, CONFIG)
    assert cache.take_events() == (AllBlocksCleared(),)


@each_cache
def test_report_reset_sends_a_cleared_event(name: str) -> None:
    """A reset emits one clear, and no removes."""
    cache, _ = judged_cache(name, CONFIG)
    put(cache, [1, 2, 3, 4])
    cache.take_events()
    cache.reset()
    assert cache.take_events() == (AllBlocksCleared(),)


@each_cache
def test_report_events_are_off_by_choice(name: str) -> None:
    """A cache whose events are off emits none."""
    config = CacheConfig(window_tokens=4, device_slots=Counts(full=16, swa=16), events=False)
    cache, _ = judged_cache(name, config)
    put(cache, [1, 2, 3, 4])
    cache.evict(Counts(full=4))
    cache.reset()
    assert cache.take_events() == ()


@each_cache
def test_report_match_is_silent(name: str) -> None:
    """A match emits no event."""
    cache, _ = judged_cache(name, CONFIG)
    put(cache, [1, 2, 3, 4])
    cache.take_events()
    assert [cached_pages(cache, tokens) for tokens in ([1, 2, 3], [1, 2, 3, 4, 5], [7])] == [
        3,
        4,
        0,
    ]
    assert cache.take_events() == ()


@each_cache
def test_report_tombstone_that_leaves_is_removed_once(name: str) -> None:
    """A tombstone emits one remove per page when it is evicted."""
    cache, _ = judged_cache(name, CONFIG)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.evict(Counts(swa=2))
    assert shown(cache, [1, 2, 3, 4], SWA) == "..##"
    cache.take_events()
    cache.evict(Counts(full=4))
    said = heard(cache, [1, 2, 3, 4])
    assert said == [("removed", GPU, token) for token in (4, 3, 2, 1)]
    assert free_slots(cache, FULL) == 16


def test_report_joined_nodes_keep_the_hashes_of_their_pages() -> None:
    """Pages have the same hashes in stores and removes after nodes were joined."""
    cache, _ = judged_cache("joined_chains", CONFIG)
    cache.take_events()
    tokens = [1, 2, 3, 4, 5, 6]
    put(cache, tokens)
    stored = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    receipt = lock(cache, tokens)
    assert node_ends(cache, tokens) == [2, 6]
    cache.unlock(receipt)
    assert node_ends(cache, tokens) == [6]
    cache.evict(Counts(full=6))
    removed = [event for event in cache.take_events() if isinstance(event, BlockRemoved)]
    assert [event.block_hash for event in removed] == [
        event.block_hash for event in reversed(stored)
    ]


@each_cache
@pytest.mark.parametrize("bigram", [False, True])
def test_report_pages_of_several_units_name_the_page_before(name: str, *, bigram: bool) -> None:
    """Pages of several tokens or bigrams have one hash per page."""
    config = CacheConfig(
        page_size=2, bigram=bigram, window_tokens=4, device_slots=Counts(full=16, swa=16)
    )
    cache, _ = judged_cache(name, config)
    cache.take_events()
    tokens = [1, 2, 3, 4, 5]
    put(cache, tokens)
    first, second = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    assert (first.page, second.page) == prompt(cache, tokens).pages
    assert first.parent_hash is None
    assert second.parent_hash == first.block_hash
