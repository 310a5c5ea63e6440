"""Match on the plain cache: how much of a prompt is a prefix hit, and what a match changes."""

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
    """An empty key, or a key that was never inserted, matches no page."""
    cache, _ = new_cache(BOTH)
    nothing = Matched(0, 0, Slots())
    assert cache.match(Key(())) == nothing
    assert cache.match(prompt(cache, [1, 2])) == nothing
    put(cache, [1, 2])
    assert cache.match(Key(())) == nothing
    assert cache.match(prompt(cache, [2, 1])) == nothing


def test_match_finds_the_whole_pages_that_are_shared() -> None:
    """A match ends with the last whole page that is shared."""
    cache, _ = new_cache(evolve(PLAIN, page_size=2))
    put(cache, [1, 2, 3, 4, 5, 6, 7])
    assert cached_pages(cache, [1, 2, 3, 4, 5, 6, 7, 8]) == 3
    assert cached_pages(cache, [1, 2, 3, 4, 5, 9]) == 2
    assert cached_pages(cache, [1, 9]) == 0


def test_match_returns_the_slots_of_its_pages() -> None:
    """A match returns the slots of its pages, with their bytes."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 5])
    matched = cache.match(prompt(cache, [1, 2, 5, 6]))
    assert matched.slots.full == tuple(slots_of(cache, [1, 2, 5]))
    assert matched.slots.swa == tuple(slots_of(cache, [1, 2, 5], SWA))
    assert_right_bytes(cache, [1, 2, 5])
    assert_right_bytes(cache, [1, 2, 3, 4])


def test_match_in_another_namespace_finds_nothing() -> None:
    """Namespaces whose joined texts are equal share no prompt."""
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
    """A prompt without a salt does not match one whose salt is the empty string."""
    cache, _ = new_cache(PLAIN)
    put(cache, [1, 2])
    assert cached_pages(cache, [1, 2], Namespace(cache_salt="")) == 0


def test_match_of_bigrams_ends_before_the_first_other_token() -> None:
    """A page of bigrams matches only if the token after its last one agrees, too."""
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
    """After a tombstone a prefix is usable once window data covers a full window."""
    cache, _ = new_cache(CacheConfig(page_size=page_size, window_tokens=window_tokens))
    tokens = list(range(page_size * 5))
    for pages in range(1, 6):
        put(cache, tokens[: page_size * pages])
    cache.evict(Counts(swa=1))
    assert shown(cache, tokens, SWA) == ".####"
    found = [cached_pages(cache, tokens[: page_size * pages]) for pages in range(1, 6)]
    assert found == [0 if pages <= run_pages else pages for pages in range(1, 6)]


def test_match_shorter_than_the_window_needs_all_of_it() -> None:
    """A prompt shorter than the window is usable only if all of its window data is present."""
    cache, _ = new_cache(evolve(WINDOW, window_tokens=8))
    put(cache, [1, 2, 3, 4])
    assert cached_pages(cache, [1, 2, 3]) == 3
    put(cache, [5, 6, 7, 8], window_pages=3)
    assert cached_pages(cache, [5, 6, 7, 8]) == 0


def test_match_falls_back_to_an_earlier_end() -> None:
    """If the last pages lack window data, the prefix ends at an earlier usable page."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3])
    put(cache, [1, 2, 3, 4, 5], window_pages=0)
    assert cached_pages(cache, [1, 2, 3, 4, 5]) == 3


def test_match_returns_window_slots_without_a_gap_only() -> None:
    """Window slots before a gap are not returned."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4, 5, 6, 7], window_pages=3)
    assert shown(cache, [1, 2, 3, 4, 5, 6, 7], SWA) == "##..###"
    matched = cache.match(prompt(cache, [1, 2, 3, 4, 5, 6, 7]))
    assert len(matched.slots.full) == 7
    assert matched.slots.swa == tuple(slots_of(cache, [1, 2, 3, 4, 5, 6, 7], SWA)[4:])


# Mamba states.


def test_match_ends_at_a_state() -> None:
    """A prefix of a model with mamba layers ends at a mamba state."""
    cache, _ = new_cache(MAMBA_ONLY)
    put(cache, [1, 2, 3, 4])
    assert cached_pages(cache, [1, 2, 3]) == 0
    assert cached_pages(cache, [1, 2, 3, 4, 5]) == 4
    put(cache, [1, 2])
    assert cached_pages(cache, [1, 2, 3]) == 2
    assert_right_bytes(cache, [1, 2, 3])
    assert_right_bytes(cache, [1, 2, 3, 4])


def test_match_with_state_but_without_window_finds_nothing() -> None:
    """A mamba state does not make a prefix usable whose window data is missing."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3, 4], window_pages=1)
    assert shown(cache, [1, 2, 3, 4], MAMBA) == "...#"
    assert cached_pages(cache, [1, 2, 3, 4]) == 0


def test_match_with_window_but_without_state_finds_the_state_before() -> None:
    """Without a mamba state at its end, the prefix ends at the state before."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 3, 4, 5, 6])
    cache.match(prompt(cache, [1, 2]))
    assert cache.evict(Counts(mamba=1)).freed == Counts(mamba=1)
    assert cached_pages(cache, [1, 2, 3, 4]) == 2


# The host.


def test_match_counts_the_host_and_returns_device_slots_only() -> None:
    """Data on the host counts for the prefix, and only device pages have slots."""
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
    """A window that is partly on the device and partly on the host is usable."""
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
    """A match may end inside a node that is on the host only."""
    cache, _ = new_cache(evolve(HOST, window_tokens=None))
    fetch(cache, [1, 2, 3, 4])
    assert cached_pages(cache, [1, 2, 3, 9]) == 3
    assert node_ends(cache, [1, 2, 3, 4]) == [3, 4]


# Effects.


def test_match_cuts_only_where_the_usable_prefix_ends() -> None:
    """A match cuts the node inside of which the usable prefix ends, and no other."""
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
    """The matched prefix is evicted last; nodes that the walk only passed do not become recent."""
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
    """A match changes ticks and makes cuts, and nothing else."""
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
