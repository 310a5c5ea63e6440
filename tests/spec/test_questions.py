"""Readers' questions: each answer of docs/events.md, checked on both caches."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Counts, Medium, Unit, make_key
from scenes import (
    BOTH_CACHES,
    cached_pages,
    free_slots,
    heard,
    judged_cache,
    lock,
    lock_refs,
    node_ends,
    node_of,
    put,
    shown,
)

THROUGH = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
BACK = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=4), write_policy="write_back"
)
each_cache = pytest.mark.parametrize("name", BOTH_CACHES)


def stored(medium: Medium, *tokens: Unit) -> list[tuple[str, Medium, Unit]]:
    """The store events of these pages, in order."""
    return [("stored", medium, token) for token in tokens]


def removed(medium: Medium, *tokens: Unit) -> list[tuple[str, Medium, Unit]]:
    """The remove events of these pages, in order."""
    return [("removed", medium, token) for token in tokens]


# Who owns the host slots after a node is split whose backup is in flight?


@each_cache
@pytest.mark.parametrize("ok", [True, False])
def test_both_parts_of_a_split_node_share_its_backup(name: str, *, ok: bool) -> None:
    """Both parts of a node cut in flight have host slots, and lose them if the copy fails."""
    cache, copies = judged_cache(name, THROUGH)
    put(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 5])
    upper, lower = node_of(cache, [1, 2]), node_of(cache, [1, 2, 3, 4])
    first = cache.snapshot().transfers[0]
    assert first.parts == ((upper.node_id, FULL), (lower.node_id, FULL))
    assert upper[FULL].backing == lower[FULL].backing == first.transfer_id
    assert (*(upper[FULL].host or ()), *(lower[FULL].host or ())) == first.targets[FULL]
    assert len(upper[FULL].host or ()) == len(lower[FULL].host or ()) == 2
    cache.take_events()
    (copies.acknowledge if ok else copies.fail)(first.transfer_id)
    cache.poll()
    assert heard(cache, [1, 2, 3, 4]) == (stored(CPU, 1, 2, 3, 4) if ok else [])
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == ("####" if ok else "....")


# In which order are the pages of a subtree removed, on the host and across media?


@each_cache
def test_subtree_leaves_the_host_deepest_page_first(name: str) -> None:
    """A page leaves the host after all pages that build on it."""
    cache, _ = judged_cache(name, THROUGH)
    for length in (2, 3, 4):
        put(cache, [1, 2, 3, 4][:length])
    cache.flush()
    cache.evict(Counts(full=4))
    cache.take_events()
    cache.evict_host(Counts(full=4))
    assert heard(cache, [1, 2, 3, 4]) == removed(CPU, 4, 3, 2, 1)


@each_cache
def test_victim_is_stored_on_the_host_before_it_leaves_the_device(name: str) -> None:
    """Under write_back a page is stored on the host before it is removed from the device."""
    cache, _ = judged_cache(name, BACK)
    put(cache, [1, 2])
    cache.take_events()
    cache.evict(Counts(full=2))
    assert heard(cache, [1, 2]) == [*stored(CPU, 1, 2), *removed(GPU, 2, 1)]


@each_cache
def test_host_only_pages_leave_before_the_victim_above_them(name: str) -> None:
    """Host pages below a victim are removed before the victim is.

    The host has no slots for window data: a node that has some is deleted, one without is copied.
    """
    config = evolve(BACK, window_tokens=2, device_slots=Counts(8, 8), host_slots=Counts(8, 0))
    cache, _ = judged_cache(name, config)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4], window_pages=0)
    cache.evict(Counts(full=2))
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "..##"
    cache.take_events()
    cache.evict(Counts(full=2))
    assert heard(cache, [1, 2, 3, 4]) == [*removed(CPU, 4, 3), *removed(GPU, 2, 1)]


# What if the window is smaller than a page?


@each_cache
def test_window_smaller_than_a_page_is_one_page(name: str) -> None:
    """A lock pins the window data of exactly one page, and a prefix needs its last page."""
    config = CacheConfig(page_size=4, window_tokens=1, device_slots=Counts(full=8, swa=8))
    cache, _ = judged_cache(name, config)
    prompt = list(range(12))
    put(cache, prompt)
    assert node_ends(cache, prompt) == [2, 3]
    receipt = lock(cache, prompt)
    assert lock_refs(cache, prompt, SWA) == [0, 0, 1]
    cache.evict(Counts(swa=8))
    assert shown(cache, prompt, SWA) == "..#"
    assert cached_pages(cache, prompt) == 3
    cache.unlock(receipt)
    cache.evict(Counts(swa=1))
    assert cached_pages(cache, prompt) == 0


@each_cache
def test_window_smaller_than_a_page_has_a_cushion_of_one_page(name: str) -> None:
    """A use refreshes exactly the last page and the one before it."""
    config = CacheConfig(page_size=4, window_tokens=1, device_slots=Counts(full=8, swa=8))
    cache, _ = judged_cache(name, config)
    prompt, other = list(range(12)), list(range(50, 58))
    for length in (4, 8, 12):
        put(cache, prompt[:length])
    put(cache, other[:4])
    put(cache, other)
    cache.match(make_key(prompt, 4))
    signs = []
    for _ in range(3):
        cache.evict(Counts(swa=1))
        signs.append((shown(cache, prompt, SWA), shown(cache, other, SWA)))
    assert signs == [(".##", "##"), (".##", ".#"), (".##", "..")]


# When is store(CPU) sent for a node that was loaded back and is evicted later?


@each_cache
def test_page_that_was_loaded_back_leaves_without_another_store(name: str) -> None:
    """A page that kept its host copy is not stored on the host again."""
    cache, _ = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(full=2))
    cache.load_back(make_key([1, 2], 1))
    cache.flush()
    cache.take_events()
    cache.evict(Counts(full=2))
    assert heard(cache, [1, 2]) == removed(GPU, 2, 1)


@each_cache
def test_page_that_lost_its_host_copy_is_stored_again(name: str) -> None:
    """A page that is copied to the host again has another store event."""
    cache, _ = judged_cache(name, BACK)
    put(cache, [1, 2])
    cache.evict(Counts(full=2))
    cache.load_back(make_key([1, 2], 1))
    cache.flush()
    cache.take_events()
    cache.evict_host(Counts(full=2))
    assert heard(cache, [1, 2]) == removed(CPU, 2, 1)
    assert free_slots(cache, FULL, CPU) == 4
    cache.evict(Counts(full=2))
    assert heard(cache, [1, 2]) == [*stored(CPU, 1, 2), *removed(GPU, 2, 1)]
