"""Eviction from the device on the plain cache: the victims, their order, and what is left."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts, EvictionPolicy
from scenes import plain

PLAIN = CacheConfig(device_slots=Counts(16))
WINDOW = CacheConfig(window_tokens=2, device_slots=Counts(16, 16))
BOTH = CacheConfig(window_tokens=2, mamba=True, device_slots=Counts(16, 16, 8))
HOST = evolve(WINDOW, host_slots=Counts(16, 16), write_policy="write_through")
WRITE_BACK = evolve(HOST, write_policy="write_back")

VICTIMS = {
    EvictionPolicy.LRU: [2, 3, 1, 4],
    EvictionPolicy.LFU: [3, 4, 1, 2],
    EvictionPolicy.FIFO: [1, 2, 3, 4],
    EvictionPolicy.MRU: [4, 1, 3, 2],
    EvictionPolicy.FILO: [4, 3, 2, 1],
    EvictionPolicy.SLRU: [3, 4, 2, 1],
    EvictionPolicy.PRIORITY: [4, 2, 1, 3],
}
"""Prompts in the order of their eviction.

They are inserted as 1, 2, 3, 4, with priorities 1, 1, 2, 0, are hit 2, 3, 1, 1 times, and are used
for the last time in the order 2, 3, 1, 4.
"""


@pytest.mark.parametrize("policy", EvictionPolicy)
def test_evict_leaves_go_in_the_order_of_the_policy(policy: EvictionPolicy) -> None:
    """Leaves are evicted in the order of the policy."""
    s = plain(evolve(PLAIN, eviction_policy=policy))
    prompts = [1, 2, 3, 4]
    for token, priority in zip(prompts, (1, 1, 2, 0), strict=True):
        s.put([token], priority=priority)
    s.play("put 1; put 2; put 2")
    for token in (2, 3, 1, 4):
        s.hit([token])
    left: list[int] = []
    while len(left) < 4:
        assert s.evict(full=1) == Counts(full=1)
        left.extend(t for t in prompts if t not in left and s.see([t], FULL) == ".")
    assert left == VICTIMS[policy]


def test_evict_negative_priority_leaves_before_the_default() -> None:
    """A prompt with a negative priority is evicted before one with the default priority."""
    s = plain(evolve(PLAIN, eviction_policy="priority"), "put 1")
    s.put("2", priority=-1)
    s.evict(1)
    assert (s.see("1", FULL), s.see("2", FULL)) == ("#", ".")


def test_evict_takes_leaves_before_what_they_hang_on() -> None:
    """A node is evicted after the nodes below it, once it is a leaf."""
    s = plain(evolve(PLAIN, eviction_policy="fifo"), "put 12; put 89; put 123")
    left = []
    for _ in range(3):
        s.evict(full=1)
        left.append((s.see("123", FULL), s.see("89", FULL)))
    assert left == [("###", ".."), ("##.", ".."), ("...", "..")]


def test_evict_stops_at_the_victim_that_was_enough() -> None:
    """Exactly as many leaves as needed are evicted, and the counts are the freed slots."""
    s = plain(WINDOW, "put 12; put 34; put 56")
    assert s.evict() == Counts()
    assert s.evict(full=3) == Counts(4, 4)
    assert s.evict(full=100) == Counts(2, 2)
    assert s.evict(full=1) == Counts()
    assert s.free_slots()[FULL] == 16


def test_evict_counts_what_another_component_freed_on_its_way() -> None:
    """Window slots that were freed with a leaf count, and no more window data is evicted."""
    s = plain(WINDOW, "put 12; put 34; put 56")
    assert s.evict(full=1, swa=2) == Counts(2, 2)
    assert s.evict(full=1, swa=3) == Counts(4, 4)


# Window data and mamba states.


def test_evict_window_data_inside_the_tree_makes_a_tombstone() -> None:
    """The least recently used window data is evicted alone; its node keeps its full data."""
    s = plain(WINDOW, "put 12; put 1234")
    assert s.evict(swa=1) == Counts(swa=2)
    assert s.see("1234", FULL, SWA) == "#### ..##"


def test_evict_window_data_takes_the_state_that_stands_on_it() -> None:
    """A mamba state is evicted with the window data of its node, and no other state is."""
    s = plain(BOTH, "put 12; put 1234")
    assert s.evict(swa=1) == Counts(swa=2, mamba=1)
    assert s.see("1234", MAMBA) == "...#"


def test_evict_state_inside_the_tree_leaves_the_window_data() -> None:
    """A mamba state is evicted without the window data of its node."""
    s = plain(BOTH, "put 12; put 1234")
    assert s.evict(mamba=1) == Counts(mamba=1)
    assert s.see("1234", MAMBA, SWA) == "...# ####"


@pytest.mark.parametrize("component", Component)
def test_evict_takes_a_leaf_whole(component: Component) -> None:
    """A leaf that is evicted for one component loses all of them."""
    s = plain(BOTH, "put 12")
    assert s.cache.evict(Counts(**{component.value: 1})).freed == Counts(2, 2, 1)
    assert len(s.cache.snapshot().nodes) == 1
    assert s.cache.snapshot().swa_of_full == {}


def test_evict_passes_over_what_is_locked() -> None:
    """Locked data stays, and unlocked data beside it is evicted."""
    s = plain(BOTH, "put 12; put 1234; put 89; lock 1234")
    assert s.evict(16, 16, 8) == Counts(2, 4, 2)
    assert s.see("1234", FULL, SWA, MAMBA) == "#### ..## ...#"


# Demotion.


def test_evict_leaf_with_a_host_copy_demotes_it() -> None:
    """A leaf with a host copy stays in the tree with its host slots."""
    s = plain(HOST, "put 12; flush")
    before = [s.slots("12", c, CPU) for c in (FULL, SWA)]
    assert s.evict(full=1) == Counts(2, 2)
    assert [s.slots("12", c, CPU) for c in (FULL, SWA)] == before
    assert s.see("12", FULL) == ".."
    assert s.hit("12") == 2


def test_evict_passes_over_what_is_being_copied() -> None:
    """A leaf is not evicted while its backup is in flight."""
    s = plain(HOST, "put 12")
    assert s.evict(16, 16) == Counts()
    s.cache.flush()
    assert s.evict(16, 16) == Counts(2, 2)


def test_evict_parent_of_demoted_pages_takes_its_turn() -> None:
    """A node whose children are on the host only is evicted as a leaf, after them."""
    s = plain(HOST, "put 12; put 1234; flush")
    for left in ("##..", "...."):
        s.evict(full=1)
        assert s.see("1234", FULL) == left
    assert s.see("1234", FULL, CPU) == "####"


def test_evict_removes_the_last_page_first() -> None:
    """Remove events run from the last page to the first, and name the medium."""
    s = plain(PLAIN, "put 12; put 123; heard; evict full=3")
    assert s.heard() == "removed GPU 3 2 1"


# Write-back.


def test_evict_under_write_back_copies_first() -> None:
    """Under write_back an evicted node is stored on the host before it is removed."""
    s = plain(WRITE_BACK)
    assert s.put("12").backups == ()
    s.heard()
    assert s.evict(full=1) == Counts(2, 2)
    assert s.heard() == "stored CPU 1 2, removed GPU 2 1"
    s.play("load 12; flush")
    assert s.cache.match(s.key("12")).device_pages == 2
    s.check_bytes("12")


def test_evict_under_write_back_copies_window_data_with_its_full_data() -> None:
    """Under write_back a new tombstone's window data is on the host with its full data."""
    s = plain(WRITE_BACK, "put 12; put 1234")
    assert s.evict(swa=1) == Counts(swa=2)
    assert s.see("1234", SWA) == "..##"
    assert s.see("1234", SWA, FULL, CPU) == "##.. ##.."
    assert s.hit("12") == 2


def test_evict_under_write_back_drops_what_hangs_below_when_the_host_is_full() -> None:
    """A leaf that finds no free host slots is deleted together with its host children."""
    s = plain(evolve(WRITE_BACK, host_slots=Counts(16, 1)), "put 12; put 123 window=0")
    s.evict(full=1)
    assert s.see("123", FULL) == "##."
    assert s.see("123", FULL, CPU) == "..#"
    s.heard()
    assert s.evict(full=1) == Counts(2, 2)
    assert s.heard() == "removed CPU 3, removed GPU 2 1"
    assert len(s.cache.snapshot().nodes) == 1
    assert s.free_slots(CPU)[FULL] == 16


def test_evict_under_write_back_keeps_a_leaf_above_what_is_locked() -> None:
    """A leaf without free host slots stays if host data below it is locked; others are evicted."""
    s = plain(evolve(WRITE_BACK, window_tokens=None, host_slots=Counts(2)), "put 12; put 1234")
    s.play("evict full=1; put 89; lock 1234")
    assert s.evict(full=4) == Counts(full=2)
    assert s.see("1234", FULL) == "##.."
    assert s.see("1234", FULL, CPU) == "..##"
    assert s.see("89", FULL) == ".."
