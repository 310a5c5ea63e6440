"""Match on the plain cache: how much of a prompt is a prefix hit, and what a match changes."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import CPU, GPU, MAMBA, SWA, Counts, Key, Namespace, Slots
from scenes import plain

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


def test_match_says_where_its_key_leaves_the_tree() -> None:
    """A match that finds nothing usable says all the same how much of its key is in the tree."""
    s = plain(MAMBA_ONLY, "put 1234")
    for prompt, there in (("1234", 4), ("12345", 4), ("1239", 3), ("12", 2), ("91", 0)):
        found = s.cache.match(s.key(prompt))
        assert (found.prefix_pages, found.branch_pages) == (4 if there == 4 else 0, there)


def test_match_of_nothing_finds_nothing() -> None:
    """An empty key, or a key that was never inserted, matches no page."""
    s = plain(BOTH)
    nothing = Matched(0, 0, Slots(), branch_pages=0)
    assert s.cache.match(Key(())) == nothing
    assert s.cache.match(s.key("12")) == nothing
    s.put("12")
    assert s.cache.match(Key(())) == nothing
    assert s.cache.match(s.key("21")) == nothing


def test_match_finds_the_whole_pages_that_are_shared() -> None:
    """A match ends with the last whole page that is shared."""
    s = plain(evolve(PLAIN, page_size=2), "put 1234567")
    assert s.hit("12345678") == 3
    assert s.hit("123459") == 2
    assert s.hit("19") == 0


def test_match_returns_the_slots_of_its_pages() -> None:
    """A match returns the slots of its pages, with their bytes."""
    s = plain(WINDOW, "put 1234; put 125")
    matched = s.cache.match(s.key("1256"))
    assert matched.slots.full == tuple(s.slots("125"))
    assert matched.slots.swa == tuple(s.slots("125", SWA))
    s.check_bytes("125", "1234")


def test_match_in_another_namespace_finds_nothing() -> None:
    """Namespaces whose joined texts are equal share no prompt."""
    s = plain(PLAIN)
    one, other = Namespace("a", lora="bc"), Namespace("ab", lora="c")
    s.put("12", namespace=one)
    assert s.hit("12", other) == 0
    assert s.hit("12", Namespace("a", "bc")) == 0
    assert s.hit("12") == 0
    s.put("123", namespace=other)
    assert s.hit("123", one) == 2
    slots = [s.cache.match(s.key("12", each)).slots.full for each in (one, other)]
    assert not set(slots[0]) & set(slots[1])


def test_match_namespace_none_is_not_empty() -> None:
    """A prompt without a salt does not match one whose salt is the empty string."""
    s = plain(PLAIN, "put 12")
    assert s.hit("12", Namespace(cache_salt="")) == 0


def test_match_of_bigrams_ends_before_the_first_other_token() -> None:
    """A page of bigrams matches only if the token after its last one agrees, too."""
    s = plain(evolve(PLAIN, bigram=True), "put 1234")
    assert s.hit("12345") == 3
    assert s.hit("1239") == 2
    assert s.hit("1") == 0
    s.put("1239")
    assert s.hit("12399") == 3


# Windows.


@pytest.mark.parametrize(
    ("page_size", "window_tokens", "run_pages"),
    [(4, 1, 1), (4, 4, 1), (4, 5, 2), (4, 8, 2), (4, 9, 3), (1, 3, 3), (2, 3, 2)],
)
def test_match_after_a_tombstone_needs_a_full_window(
    page_size: int, window_tokens: int, run_pages: int
) -> None:
    """After a tombstone a prefix is usable once window data covers a full window."""
    s = plain(CacheConfig(page_size=page_size, window_tokens=window_tokens))
    tokens = list(range(page_size * 5))
    for pages in range(1, 6):
        s.put(tokens[: page_size * pages])
    s.evict(swa=1)
    assert s.see(tokens, SWA) == ".####"
    found = [s.hit(tokens[: page_size * pages]) for pages in range(1, 6)]
    assert found == [0 if pages <= run_pages else pages for pages in range(1, 6)]


def test_match_shorter_than_the_window_needs_all_of_it() -> None:
    """A prompt shorter than the window is usable only if all of its window data is present."""
    s = plain(evolve(WINDOW, window_tokens=8), "put 1234")
    assert s.hit("123") == 3
    s.put("5678", window=3)
    assert s.hit("5678") == 0


def test_match_falls_back_to_an_earlier_end() -> None:
    """If the last pages lack window data, the prefix ends at an earlier usable page."""
    s = plain(WINDOW, "put 123; put 12345 window=0")
    assert s.hit("12345") == 3


def test_match_returns_window_slots_without_a_gap_only() -> None:
    """Window slots before a gap are not returned."""
    s = plain(WINDOW, "put 12; put 1234567 window=3")
    assert s.see("1234567", SWA) == "##..###"
    matched = s.cache.match(s.key("1234567"))
    assert len(matched.slots.full) == 7
    assert matched.slots.swa == tuple(s.slots("1234567", SWA)[4:])


# Mamba states.


def test_match_ends_at_a_state() -> None:
    """A prefix of a model with mamba layers ends at a mamba state."""
    s = plain(MAMBA_ONLY, "put 1234")
    assert s.hit("123") == 0
    assert s.hit("12345") == 4
    s.put("12")
    assert s.hit("123") == 2
    s.check_bytes("123", "1234")


def test_match_with_state_but_without_window_finds_nothing() -> None:
    """A mamba state does not make a prefix usable whose window data is missing."""
    s = plain(BOTH, "put 1234 window=1")
    assert s.see("1234", MAMBA) == "...#"
    assert s.hit("1234") == 0


def test_match_with_window_but_without_state_finds_the_state_before() -> None:
    """Without a mamba state at its end, the prefix ends at the state before."""
    s = plain(BOTH, "put 12; put 1234; put 123456; hit 12")
    assert s.evict(mamba=1) == Counts(mamba=1)
    assert s.hit("1234") == 2


# The host.


def test_match_counts_the_host_and_returns_device_slots_only() -> None:
    """Data on the host counts for the prefix, and only device pages have slots."""
    s = plain(HOST, "put 12; put 1234; flush; evict full=1")
    matched = s.cache.match(s.key("12345"))
    assert (matched.prefix_pages, matched.device_pages) == (4, 2)
    assert matched.slots.full == tuple(s.slots("12"))
    assert matched.pending == ()


def test_match_joins_window_data_of_both_media() -> None:
    """A window that is partly on the device and partly on the host is usable."""
    s = plain(HOST, "put 1; flush; put 12; flush; put 123; hit 1; hit 123; evict swa=1")
    assert s.see("123", SWA, GPU) == ".##"
    matched = s.cache.match(s.key("12"))
    assert (matched.prefix_pages, matched.device_pages) == (2, 0)


def test_match_of_fetched_pages_ends_inside_their_node() -> None:
    """A match may end inside a node that is on the host only."""
    s = plain(evolve(HOST, window_tokens=None), "fetch 1234")
    assert s.hit("1239") == 3
    assert s.ends("1234") == [3, 4]


# Effects.


def test_match_cuts_only_where_the_usable_prefix_ends() -> None:
    """A match cuts the node inside of which the usable prefix ends, and no other."""
    s = plain(WINDOW, "put 1234 window=2")
    assert s.ends("1234") == [2, 4]
    assert s.hit("19") == 0
    assert s.hit("123") == 0
    assert s.ends("1234") == [2, 4]
    s.put("567")
    assert s.ends("567") == [1, 3]
    assert s.hit("569") == 2
    assert s.ends("567") == [1, 2, 3]


def test_match_makes_its_prefix_recent_and_nothing_else() -> None:
    """The matched prefix is evicted last; nodes that the walk only passed do not become recent."""
    s = plain(PLAIN, "put 123; put 5; put 6; hit 129")
    left = []
    for _ in range(4):
        s.evict(full=1)
        left.append([s.see(tokens) for tokens in ([1, 2, 3], [5], [6])])
    assert left == [["##.", "#", "#"], ["##.", ".", "#"], ["##.", ".", "."], ["...", ".", "."]]


def test_match_moves_no_slot_count_lock_or_event() -> None:
    """A match changes ticks and makes cuts, and nothing else."""
    s = plain(HOST, "put 1234")
    before = s.cache.snapshot()
    s.hit("1239")
    after = s.cache.snapshot()
    assert len(after.nodes) == len(before.nodes) + 1
    same = ("pools", "usage", "swa_of_full", "holds", "events")
    assert [getattr(after, each) for each in same] == [getattr(before, each) for each in same]
    assert {node.hit_count for node in after.below_root()} == {1}
    assert s.see("1234", SWA, CPU) == "~~~~"
