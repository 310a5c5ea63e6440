"""Readers' questions: each answer of docs/events.md, checked on both caches."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, FULL, SWA, Counts, make_key
from scenes import BOTH_CACHES, judged

THROUGH = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
BACK = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=4), write_policy="write_back"
)
each_cache = pytest.mark.parametrize("name", BOTH_CACHES)


# Who owns the host slots after a node is split whose backup is in flight?


@each_cache
@pytest.mark.parametrize("ok", [True, False])
def test_both_parts_of_a_split_node_share_its_backup(name: str, *, ok: bool) -> None:
    """Both parts of a node cut in flight have host slots, and lose them if the copy fails."""
    s = judged(name, THROUGH, "put 1234; put 125")
    upper, lower = s.nodes("12")[-1], s.nodes("1234")[-1]
    first = s.cache.snapshot().transfers[0]
    assert first.parts == ((upper.node_id, FULL), (lower.node_id, FULL))
    assert upper[FULL].backing == lower[FULL].backing == first.transfer_id
    assert (*(upper[FULL].host or ()), *(lower[FULL].host or ())) == first.targets[FULL]
    assert len(upper[FULL].host or ()) == len(lower[FULL].host or ()) == 2
    s.heard()
    (s.copies.acknowledge if ok else s.copies.fail)(first.transfer_id)
    s.cache.poll()
    assert s.heard() == ("stored CPU 1 2 3 4" if ok else "")
    assert s.see("1234", FULL, CPU) == ("####" if ok else "....")


# In which order are the pages of a subtree removed, on the host and across media?


@each_cache
def test_subtree_leaves_the_host_deepest_page_first(name: str) -> None:
    """A page leaves the host after all pages that build on it."""
    s = judged(name, THROUGH, "put 12; put 123; put 1234; flush; evict full=4; heard")
    s.evict_host(full=4)
    assert s.heard() == "removed CPU 4 3 2 1"


@each_cache
def test_victim_is_stored_on_the_host_before_it_leaves_the_device(name: str) -> None:
    """Under write_back a page is stored on the host before it is removed from the device."""
    s = judged(name, BACK, "put 12; heard; evict full=2")
    assert s.heard() == "stored CPU 1 2, removed GPU 2 1"


@each_cache
def test_host_only_pages_leave_before_the_victim_above_them(name: str) -> None:
    """Host pages below a victim are removed before the victim is.

    The host has no slots for window data: a node that has some is deleted, one without is copied.
    """
    config = evolve(BACK, window_tokens=2, device_slots=Counts(8, 8), host_slots=Counts(8, 0))
    s = judged(name, config, "put 12; put 1234 window=0; evict full=2")
    assert s.see("1234", FULL, CPU) == "..##"
    s.play("heard; evict full=2")
    assert s.heard() == "removed CPU 4 3, removed GPU 2 1"


# What if the window is smaller than a page?


@each_cache
def test_window_smaller_than_a_page_is_one_page(name: str) -> None:
    """A lock pins the window data of exactly one page, and a prefix needs its last page."""
    config = CacheConfig(page_size=4, window_tokens=1, device_slots=Counts(full=8, swa=8))
    s = judged(name, config)
    prompt = list(range(12))
    s.put(prompt)
    assert s.ends(prompt) == [2, 3]
    receipt = s.lock(prompt)
    assert s.refs(prompt, SWA) == "001"
    s.evict(swa=8)
    assert s.see(prompt, SWA) == "..#"
    assert s.hit(prompt) == 3
    s.cache.unlock(receipt)
    s.evict(swa=1)
    assert s.hit(prompt) == 0


@each_cache
def test_window_smaller_than_a_page_has_a_cushion_of_one_page(name: str) -> None:
    """A use refreshes exactly the last page and the one before it."""
    config = CacheConfig(page_size=4, window_tokens=1, device_slots=Counts(full=8, swa=8))
    s = judged(name, config)
    prompt, other = list(range(12)), list(range(50, 58))
    for length in (4, 8, 12):
        s.put(prompt[:length])
    s.put(other[:4])
    s.put(other)
    s.cache.match(make_key(prompt, 4))
    signs = []
    for _ in range(3):
        s.evict(swa=1)
        signs.append((s.see(prompt, SWA), s.see(other, SWA)))
    assert signs == [(".##", "##"), (".##", ".#"), (".##", "..")]


# When is store(CPU) sent for a node that was loaded back and is evicted later?


@each_cache
def test_page_that_was_loaded_back_leaves_without_another_store(name: str) -> None:
    """A page that kept its host copy is not stored on the host again."""
    s = judged(name, THROUGH, "put 12; flush; evict full=2; load 12; flush; heard; evict full=2")
    assert s.heard() == "removed GPU 2 1"


@each_cache
def test_page_that_lost_its_host_copy_is_stored_again(name: str) -> None:
    """A page that is copied to the host again has another store event."""
    s = judged(name, BACK, "put 12; evict full=2; load 12; flush; heard; evict_host full=2")
    assert s.heard() == "removed CPU 2 1"
    assert s.free_slots(CPU)[FULL] == 4
    s.evict(full=2)
    assert s.heard() == "stored CPU 1 2, removed GPU 2 1"
