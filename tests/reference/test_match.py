"""Match on the plain cache: how much of a prompt it finds, and what it leaves alone."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import CPU, GPU, MAMBA, SWA, Counts, Key, Namespace, Slots
from scenes import (
    assert_right_bytes,
    cached_pages,
    fetch,
    new_cache,
    node_ends,
    prompt,
    put,
    shown,
    slots_of,
)

PLAIN = CacheConfig()
WINDOW = CacheConfig(window_tokens=2)
MAMBA_ONLY = CacheConfig(mamba=True)
BOTH = CacheConfig(window_tokens=2, mamba=True)
HOST = CacheConfig(
    window_tokens=2,
    device_slots=Counts(16, 16),
    host_slots=Counts(16, 16),
    write_policy="write_through",
)


def test_match_of_nothing_finds_nothing() -> None:
    """An empty key, or one that nobody inserted, matches something."""
    cache, _ = new_cache(BOTH)
    nothing = Matched(0, 0, Slots())
    assert cache.match(Key(())) == nothing
    assert cache.match(prompt(cache, [1, 2])) == nothing
    put(cache, [1, 2])
    assert cache.match(Key(())) == nothing
    assert cache.match(prompt(cache, [2, 1])) == nothing


def test_match_finds_the_whole_pages_that_are_shared() -> None:
    """A match ends inside a page, or before the last page that is shared."""
    cache, _ = new_cache(evolve(PLAIN, page_size=2))
    put(cache, [1, 2, 3, 4, 5, 6, 7])
    assert cached_pages(cache, [1, 2, 3, 4, 5, 6, 7, 8]) == 3
    assert cached_pages(cache, [1, 2, 3, 4, 5, 9]) == 2
    assert cached_pages(cache, [1, 9]) == 0


def test_match_returns_the_slots_of_its_pages() -> None:
    """A match returns other slots than those of the pages, or slots with other bytes."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 5])
    matched = cache.match(prompt(cache, [1, 2, 5, 6]))
    assert matched.slots.full == tuple(slots_of(cache, [1, 2, 5]))
    assert matched.slots.swa == tuple(slots_of(cache, [1, 2, 5], SWA))
    assert_right_bytes(cache, [1, 2, 5])
    assert_right_bytes(cache, [1, 2, 3, 4])


def test_match_in_another_namespace_finds_nothing() -> None:
    """Two namespaces whose names read alike when they are joined share a prompt."""
    cache, _ = new_cache(PLAIN)
    one, other = Namespace("a", lora="bc"), Namespace("ab", lora="c")
    put(cache, [1, 2], namespace=one)
    assert cached_pages(cache, [1, 2], other) == 0
    assert cached_pages(cache, [1, 2], Namespace("a", "bc")) == 0
    assert cached_pages(cache, [1, 2]) == 0
    put(cache, [1, 2, 3], namespace=other)
    assert cached_pages(cache, [1, 2, 3], one) == 2
    slots = [cache.match(prompt(cache, [1, 2], each)).slots.full for each in (one, other)]
    assert not set(slots[0]) & set(slots[1])


def test_match_namespace_none_is_not_empty() -> None:
    """A prompt without a salt is found by one whose salt is the empty string."""
    cache, _ = new_cache(PLAIN)
    put(cache, [1, 2])
    assert cached_pages(cache, [1, 2], Namespace(cache_salt="")) == 0


def test_match_of_bigrams_ends_before_the_first_other_token() -> None:
    """A page of bigrams is found though the token after its own differs."""
    cache, _ = new_cache(evolve(PLAIN, bigram=True))
    put(cache, [1, 2, 3, 4])
    assert cached_pages(cache, [1, 2, 3, 4, 5]) == 3
    assert cached_pages(cache, [1, 2, 3, 9]) == 2
    assert cached_pages(cache, [1]) == 0
    put(cache, [1, 2, 3, 9])
    assert cached_pages(cache, [1, 2, 3, 9, 9]) == 3


# Windows.


@pytest.mark.parametrize(
    ("page_size", "window_tokens", "run_pages"),
    [(4, 1, 1), (4, 4, 1), (4, 5, 2), (4, 8, 2), (4, 9, 3), (1, 3, 3), (2, 3, 2)],
)
def test_match_after_a_tombstone_needs_a_full_window(
    page_size: int, window_tokens: int, run_pages: int
) -> None:
    """A prefix ends before the window data since the tombstone covers the window, or only later."""
    cache, _ = new_cache(CacheConfig(page_size=page_size, window_tokens=window_tokens))
    tokens = list(range(page_size * 5))
    for pages in range(1, 6):
        put(cache, tokens[: page_size * pages])
    cache.evict(Counts(swa=1))
    assert shown(cache, tokens, SWA) == ".####"
    found = [cached_pages(cache, tokens[: page_size * pages]) for pages in range(1, 6)]
    assert found == [0 if pages <= run_pages else pages for pages in range(1, 6)]


def test_match_shorter_than_the_window_needs_all_of_it() -> None:
    """A prompt that is shorter than the window is never usable, or is with a part of its window."""
    cache, _ = new_cache(evolve(WINDOW, window_tokens=8))
    put(cache, [1, 2, 3, 4])
    assert cached_pages(cache, [1, 2, 3]) == 3
    put(cache, [5, 6, 7, 8], window_pages=3)
    assert cached_pages(cache, [5, 6, 7, 8]) == 0


def test_match_falls_back_to_an_earlier_end() -> None:
    """Where the last pages have no window data, a match gives up the pages before them, too."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3])
    put(cache, [1, 2, 3, 4, 5], window_pages=0)
    assert cached_pages(cache, [1, 2, 3, 4, 5]) == 3


def test_match_returns_window_slots_without_a_gap_only() -> None:
    """Window slots from before a gap are returned as if they were those of the last pages."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4, 5, 6, 7], window_pages=3)
    assert shown(cache, [1, 2, 3, 4, 5, 6, 7], SWA) == "##..###"
    matched = cache.match(prompt(cache, [1, 2, 3, 4, 5, 6, 7]))
    assert len(matched.slots.full) == 7
    assert matched.slots.swa == tuple(slots_of(cache, [1, 2, 3, 4, 5, 6, 7], SWA)[4:])


# States.


def test_match_ends_at_a_state() -> None:
    """A prefix of a model with recurrent layers ends where no state is."""
    cache, _ = new_cache(MAMBA_ONLY)
    put(cache, [1, 2, 3, 4])
    assert cached_pages(cache, [1, 2, 3]) == 0
    assert cached_pages(cache, [1, 2, 3, 4, 5]) == 4
    put(cache, [1, 2])
    assert cached_pages(cache, [1, 2, 3]) == 2
    assert_right_bytes(cache, [1, 2, 3])
    assert_right_bytes(cache, [1, 2, 3, 4])


def test_match_with_state_but_without_window_finds_nothing() -> None:
    """A state makes a prefix usable whose window data has gone."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3, 4], window_pages=1)
    assert shown(cache, [1, 2, 3, 4], MAMBA) == "...#"
    assert cached_pages(cache, [1, 2, 3, 4]) == 0


def test_match_with_window_but_without_state_finds_the_state_before() -> None:
    """Window data makes a prefix usable whose state has gone."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 3, 4, 5, 6])
    cache.match(prompt(cache, [1, 2]))
    assert cache.evict(Counts(mamba=1)).freed == Counts(mamba=1)
    assert cached_pages(cache, [1, 2, 3, 4]) == 2


# The host.


def test_match_counts_the_host_and_returns_device_slots_only() -> None:
    """What is on the host only is not found, or is said to be on the device."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.flush()
    cache.evict(Counts(full=1))
    matched = cache.match(prompt(cache, [1, 2, 3, 4, 5]))
    assert (matched.prefix_pages, matched.device_pages) == (4, 2)
    assert matched.slots.full == tuple(slots_of(cache, [1, 2]))
    assert matched.pending == ()


def test_match_joins_window_data_of_both_media() -> None:
    """A window of which a part is on the device and a part on the host is not usable."""
    cache, _ = new_cache(HOST)
    put(cache, [1])
    cache.flush()
    put(cache, [1, 2])
    cache.flush()
    put(cache, [1, 2, 3])
    cache.match(prompt(cache, [1]))
    cache.match(prompt(cache, [1, 2, 3]))
    cache.evict(Counts(swa=1))
    assert shown(cache, [1, 2, 3], SWA, GPU) == ".##"
    matched = cache.match(prompt(cache, [1, 2]))
    assert (matched.prefix_pages, matched.device_pages) == (2, 0)


def test_match_of_fetched_pages_ends_inside_their_node() -> None:
    """A partial match of a node that is on the host only is thrown away."""
    cache, _ = new_cache(evolve(HOST, window_tokens=None))
    fetch(cache, [1, 2, 3, 4])
    assert cached_pages(cache, [1, 2, 3, 9]) == 3
    assert node_ends(cache, [1, 2, 3, 4]) == [3, 4]


# Effects.


def test_match_cuts_only_where_the_usable_prefix_ends() -> None:
    """A match cuts where the walk ended, or does not cut where the prefix ends inside a node."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4], window_pages=2)
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 4]
    assert cached_pages(cache, [1, 9]) == 0
    assert cached_pages(cache, [1, 2, 3]) == 0
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 4]
    put(cache, [5, 6, 7])
    assert node_ends(cache, [5, 6, 7]) == [1, 3]
    assert cached_pages(cache, [5, 6, 9]) == 2
    assert node_ends(cache, [5, 6, 7]) == [1, 2, 3]


def test_match_makes_its_prefix_recent_and_nothing_else() -> None:
    """What a match found is evicted first, or what it passed by is kept."""
    cache, _ = new_cache(PLAIN)
    for tokens in ([1, 2, 3], [5], [6]):
        put(cache, tokens)
    cache.match(prompt(cache, [1, 2, 9]))
    left = []
    for _ in range(4):
        cache.evict(Counts(full=1))
        left.append([shown(cache, tokens) for tokens in ([1, 2, 3], [5], [6])])
    assert left == [["##.", "#", "#"], ["##.", ".", "#"], ["##.", ".", "."], ["...", ".", "."]]


def test_match_moves_no_slot_count_lock_or_event() -> None:
    """A match changes more than ticks and cuts."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2, 3, 4])
    before = cache.snapshot()
    cache.match(prompt(cache, [1, 2, 3, 9]))
    after = cache.snapshot()
    assert len(after.nodes) == len(before.nodes) + 1
    same = ("pools", "usage", "swa_of_full", "holds", "events")
    assert [getattr(after, each) for each in same] == [getattr(before, each) for each in same]
    assert {node.hit_count for node in after.below_root()} == {1}
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "~~~~"
