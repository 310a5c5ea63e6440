"""sgl#26302, evictions before a load-back: its rules, its edge cases and its test."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts, Slots, make_key
from scenes import (
    BOTH_CACHES,
    cached_pages,
    fetch,
    free_slots,
    heard,
    judged_cache,
    lock,
    lock_refs,
    put,
    shown,
)

CONFIG = CacheConfig(
    window_tokens=3,
    device_slots=Counts(full=16, swa=10),
    host_slots=Counts(full=16, swa=16),
    write_policy="write_through",
)
WITHOUT_WINDOW = evolve(CONFIG, window_tokens=None)
PROMPT = [1, 2, 3, 4, 5]
OTHER = [70, 71]
each_cache = pytest.mark.parametrize("name", BOTH_CACHES)


def put_in_nodes(cache: Cache, tokens: list[int]) -> None:
    """Insert a prompt as a chain of nodes of one page, and back it up."""
    for end in range(1, len(tokens) + 1):
        put(cache, tokens[:end])
    cache.flush()


def demote(cache: Cache, tokens: list[int], pages: int | None = None) -> None:
    """Insert a prompt, back it up, and evict its last pages (or all) from the device."""
    put_in_nodes(cache, tokens)
    cache.evict(Counts(full=len(tokens) if pages is None else pages))


def leave_free(cache: Cache, component: Component, count: int) -> Slots:
    """Allocate slots of a pool until `count` are free; window slots come with full slots."""
    taken = free_slots(cache, component) - count
    return cache.allocate(Counts(full=taken, swa=taken if component is SWA else 0))


# The report's test.


@each_cache
@pytest.mark.parametrize("window", [2, 3, 4])
def test_report_load_short_of_window_slots_evicts_window_data_alone(name: str, window: int) -> None:
    """A load that lacks only window slots evicts window data, and no full page."""
    config = evolve(CONFIG, window_tokens=window)
    cache, _ = judged_cache(name, config)
    prompt = list(range(1, window + 3))
    demote(cache, prompt)
    assert shown(cache, prompt) == "." * len(prompt)
    put_in_nodes(cache, OTHER)
    # The load lacks one window slot; there are enough full slots.
    leave_free(cache, SWA, window - 1)
    assert free_slots(cache, FULL) >= len(prompt)
    cache.take_events()
    loaded = cache.load_back(make_key(prompt, 1))
    assert loaded.decision is LoadDecision.ENQUEUED
    assert loaded.loading == Counts(full=len(prompt), swa=window)
    assert loaded.evicted == Counts(swa=1)
    assert cache.take_events() == ()
    assert (shown(cache, OTHER), shown(cache, OTHER, SWA)) == ("##", ".#")
    cache.flush()
    assert cache.match(make_key(prompt, 1)).device_pages == len(prompt)


# Its other rules.


@each_cache
def test_report_load_short_of_full_slots_evicts_as_many_as_it_is_short_of(name: str) -> None:
    """A load evicts exactly the full slots that it lacks."""
    cache, _ = judged_cache(name, CONFIG)
    demote(cache, PROMPT)
    for token in (70, 80, 90):
        put(cache, [token])
    cache.flush()
    leave_free(cache, FULL, 3)
    loaded = cache.load_back(make_key(PROMPT, 1))
    assert (loaded.decision, loaded.evicted.full) == (LoadDecision.ENQUEUED, 2)
    assert [shown(cache, [token]) for token in (70, 80, 90)] == [".", ".", "#"]
    assert shown(cache, PROMPT) == "~~~~~"


@each_cache
@pytest.mark.parametrize(("free", "evicted"), [(5, 0), (4, 1), (3, 2)])
def test_report_load_without_windows_goes_by_its_only_pool(
    name: str, free: int, evicted: int
) -> None:
    """A load of a model without windows evicts exactly the full slots that it lacks."""
    cache, _ = judged_cache(name, WITHOUT_WINDOW)
    demote(cache, PROMPT)
    put_in_nodes(cache, OTHER)
    leave_free(cache, FULL, free)
    loaded = cache.load_back(make_key(PROMPT, 1))
    assert loaded.decision is LoadDecision.ENQUEUED
    assert loaded.evicted == Counts(full=evicted)


@each_cache
def test_report_load_short_of_states_evicts_a_state_alone(name: str) -> None:
    """A load that lacks only a mamba slot evicts a mamba state, and no full page."""
    config = CacheConfig(
        mamba=True,
        device_slots=Counts(full=16, mamba=2),
        host_slots=Counts(full=16, mamba=8),
        write_policy="write_through",
    )
    cache, _ = judged_cache(name, config)
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(full=2))
    put_in_nodes(cache, OTHER)
    assert free_slots(cache, MAMBA) == 0
    loaded = cache.load_back(make_key([1, 2], 1))
    assert (loaded.decision, loaded.evicted) == (LoadDecision.ENQUEUED, Counts(mamba=1))
    assert (shown(cache, OTHER), shown(cache, OTHER, MAMBA)) == ("##", ".#")


@each_cache
def test_report_path_is_locked_before_anything_is_evicted(name: str) -> None:
    """A load does not evict pages of its own path, though they are least recently used."""
    cache, _ = judged_cache(name, WITHOUT_WINDOW)
    demote(cache, PROMPT, pages=2)
    put_in_nodes(cache, OTHER)
    leave_free(cache, FULL, 0)
    loaded = cache.load_back(make_key(PROMPT, 1))
    assert (loaded.decision, loaded.evicted) == (LoadDecision.ENQUEUED, Counts(full=2))
    assert shown(cache, PROMPT) == "###~~"
    assert shown(cache, OTHER) == ".."


@each_cache
def test_report_path_stays_locked_until_the_copy_ends(name: str) -> None:
    """Data that a load reads or fills is not evicted until the copy ends."""
    cache, _ = judged_cache(name, CONFIG)
    demote(cache, PROMPT)
    cache.load_back(make_key(PROMPT, 1))
    assert lock_refs(cache, PROMPT) == [1] * 5
    assert lock_refs(cache, PROMPT, SWA) == [0, 0, 1, 1, 1]
    everything = Counts(full=16, swa=16)
    assert not cache.evict(everything).freed
    assert not cache.evict_host(everything).freed.full
    cache.flush()
    assert lock_refs(cache, PROMPT) == [0] * 5
    assert cache.evict(everything).freed.full == 5


@each_cache
def test_report_load_without_room_is_rolled_back(name: str) -> None:
    """A load without enough slots keeps no lock and no slot, and its prompt stays on the host."""
    cache, copies = judged_cache(name, WITHOUT_WINDOW)
    demote(cache, PROMPT)
    put_in_nodes(cache, OTHER)
    receipt = lock(cache, OTHER)
    slots = leave_free(cache, FULL, 4)
    before = cache.snapshot()
    loaded = cache.load_back(make_key(PROMPT, 1))
    after = cache.snapshot()
    assert (loaded.decision, loaded.transfer_id) == (LoadDecision.NO_ROOM, None)
    assert not copies.open_transfer_ids
    assert lock_refs(cache, PROMPT) == [0] * 5
    assert (after.holds, after.pools, after.nodes) == (before.holds, before.pools, before.nodes)
    assert shown(cache, PROMPT, FULL, CPU) == "#####"
    cache.unlock(receipt)
    cache.free(slots)
    assert cache.load_back(make_key(PROMPT, 1)).decision is LoadDecision.ENQUEUED


@each_cache
def test_report_load_that_is_not_worth_it_evicts_nothing(name: str) -> None:
    """A load that its quota or threshold declines evicts nothing."""
    cache, _ = judged_cache(name, evolve(WITHOUT_WINDOW, load_back_threshold_pages=3))
    demote(cache, PROMPT)
    put_in_nodes(cache, OTHER)
    leave_free(cache, FULL, 0)
    over = cache.load_back(make_key(PROMPT, 1), quota_pages=4)
    below = cache.load_back(make_key(PROMPT[:2], 1))
    assert (over.decision, over.evicted) == (LoadDecision.OVER_QUOTA, Counts())
    assert (below.decision, below.evicted) == (LoadDecision.BELOW_THRESHOLD, Counts())
    assert shown(cache, OTHER) == "##"


# The report warns that other callers may mix up the pools in the same way.


@each_cache
def test_report_host_insert_short_of_window_slots_evicts_window_data_alone(name: str) -> None:
    """A host insert that lacks only window slots evicts window data, and no full page."""
    config = evolve(CONFIG, window_tokens=2, host_slots=Counts(full=16, swa=3))
    cache, _ = judged_cache(name, config)
    demote(cache, OTHER)
    assert shown(cache, OTHER, SWA, CPU) == "##"
    cache.take_events()
    fetched = fetch(cache, [50, 51], window_pages=2)
    assert fetched.placed_pages == 2
    assert heard(cache, [50, 51]) == [("stored", CPU, 50), ("stored", CPU, 51)]
    assert shown(cache, OTHER, FULL, CPU) == "##"
    assert shown(cache, OTHER, SWA, CPU) == ".#"
    assert shown(cache, [50, 51], SWA, CPU) == "##"


@each_cache
def test_report_backup_short_of_window_slots_evicts_window_data_alone(name: str) -> None:
    """A backup that lacks only host window slots evicts window data, and no full page."""
    config = evolve(CONFIG, window_tokens=2, host_slots=Counts(full=16, swa=3))
    cache, _ = judged_cache(name, config)
    demote(cache, OTHER)
    put(cache, [50, 51])
    cache.flush()
    assert shown(cache, OTHER, FULL, CPU) == "##"
    assert shown(cache, OTHER, SWA, CPU) == ".#"
    assert shown(cache, [50, 51], SWA, CPU) == "##"
    assert cached_pages(cache, [50, 51]) == 2
