"""sgl#24718, events of a tree with window data: its rules, its edge cases and its two tests."""

from __future__ import annotations

from collections import Counter

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcanon.spec.types import FULL, SWA, Counts
from scenes import BOTH_CACHES, judged

CONFIG = CacheConfig(window_tokens=4, device_slots=Counts(full=16, swa=16))


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
    s = judged(name, CONFIG, "heard")
    stored: list[BlockStored] = []
    for prompt, new in (("1234", [1, 2, 3, 4]), ("123456", [5, 6])):
        s.put(prompt)
        events = s.taken(BlockStored)
        assert [event.page for event in events] == [(token,) for token in new]
        stored += events
    assert s.evict(swa=1).swa > 0
    assert s.heard() == ""
    s.evict(full=1)
    gone = s.taken(BlockRemoved)
    assert Counter(event.block_hash for event in gone) == Counter(
        event.block_hash for event in stored[-removed:]
    )


# Its second test.


def test_report_branch_after_a_split_hangs_on_the_last_shared_page(name: str) -> None:
    """The parent hash of a branch inside a node is the hash of the last shared page."""
    s = judged(name, CONFIG, "heard; put 1234")
    first = s.taken(BlockStored)
    s.put("1256")
    second = s.taken(BlockStored)
    assert len(first) == 4
    assert [event.page for event in second] == [(5,), (6,)]
    assert second[0].parent_hash == first[1].block_hash


# Its other rules.


def test_report_cache_begins_with_a_cleared_event(name: str) -> None:
    """A new cache emits a clear first."""
    s = judged(name, CONFIG)
    assert s.cache.take_events() == (AllBlocksCleared(),)


def test_report_reset_sends_a_cleared_event(name: str) -> None:
    """A reset emits one clear, and no removes."""
    s = judged(name, CONFIG, "put 1234; heard; reset")
    assert s.cache.take_events() == (AllBlocksCleared(),)


def test_report_events_are_off_by_choice(name: str) -> None:
    """A cache whose events are off emits none."""
    config = CacheConfig(window_tokens=4, device_slots=Counts(full=16, swa=16), events=False)
    s = judged(name, config, "put 1234; evict full=4; reset")
    assert s.heard() == ""


def test_report_match_is_silent(name: str) -> None:
    """A match emits no event."""
    s = judged(name, CONFIG, "put 1234; heard")
    assert [s.hit(prompt) for prompt in ("123", "12345", "7")] == [3, 4, 0]
    assert s.heard() == ""


def test_report_tombstone_that_leaves_is_removed_once(name: str) -> None:
    """A tombstone emits one remove per page when it is evicted."""
    s = judged(name, CONFIG, "put 12; put 1234; evict swa=2")
    assert s.see("1234", SWA) == "..##"
    s.play("heard; evict full=4")
    assert s.heard() == "removed GPU 4 3 2 1"
    assert s.free_slots()[FULL] == 16


def test_report_joined_nodes_keep_the_hashes_of_their_pages() -> None:
    """Pages have the same hashes in stores and removes after nodes were joined."""
    s = judged("joined_chains", CONFIG, "heard")
    tokens = [1, 2, 3, 4, 5, 6]
    s.put(tokens)
    stored = s.taken(BlockStored)
    receipt = s.lock(tokens)
    assert s.ends(tokens) == [2, 6]
    s.cache.unlock(receipt)
    assert s.ends(tokens) == [6]
    s.evict(full=6)
    removed = s.taken(BlockRemoved)
    assert [event.block_hash for event in removed] == [
        event.block_hash for event in reversed(stored)
    ]


@pytest.mark.parametrize("bigram", [False, True])
def test_report_pages_of_several_units_name_the_page_before(name: str, *, bigram: bool) -> None:
    """Pages of several tokens or bigrams have one hash per page."""
    config = CacheConfig(
        page_size=2, bigram=bigram, window_tokens=4, device_slots=Counts(full=16, swa=16)
    )
    s = judged(name, config, "heard")
    tokens = [1, 2, 3, 4, 5]
    s.put(tokens)
    first, second = s.taken(BlockStored)
    assert (first.page, second.page) == s.key(tokens).pages
    assert first.parent_hash is None
    assert second.parent_hash == first.block_hash
