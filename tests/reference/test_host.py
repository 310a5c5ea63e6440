"""Eviction from the host on the plain cache: the victims, their order, and what stays."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts
from scenes import (
    cached_pages,
    fetch,
    free_slots,
    heard,
    lock,
    new_cache,
    prompt,
    put,
    shown,
)

WRITE_THROUGH = CacheConfig(
    device_slots=Counts(16), host_slots=Counts(8), write_policy="write_through"
)
WRITE_BACK = evolve(WRITE_THROUGH, write_policy="write_back", device_slots=Counts(8))
BOTH = evolve(
    WRITE_THROUGH,
    window_tokens=2,
    mamba=True,
    device_slots=Counts(16, 16, 4),
    host_slots=Counts(8, 8, 4),
)


def test_evict_host_takes_the_least_recent_leaf() -> None:
    """Only the least recently used host leaf is evicted for one slot."""
    cache, _ = new_cache(WRITE_THROUGH)
    fetch(cache, [1, 2])
    fetch(cache, [3, 4])
    cache.match(prompt(cache, [1, 2]))
    assert cache.evict_host(Counts()).freed == Counts()
    assert cache.evict_host(Counts(full=1)).freed == Counts(full=2)
    assert (cached_pages(cache, [1, 2]), cached_pages(cache, [3, 4])) == (2, 0)


def test_evict_host_follows_the_policy() -> None:
    """Host leaves are evicted in the order of the eviction policy."""
    cache, _ = new_cache(evolve(WRITE_THROUGH, eviction_policy="mru"))
    fetch(cache, [1])
    fetch(cache, [2])
    cache.evict_host(Counts(full=1))
    assert (cached_pages(cache, [1]), cached_pages(cache, [2])) == (1, 0)


def test_evict_host_takes_children_before_parents() -> None:
    """A node leaves the host after the nodes below it."""
    cache, _ = new_cache(evolve(WRITE_THROUGH, eviction_policy="fifo"))
    fetch(cache, [1, 2])
    fetch(cache, [1, 2, 3], start_pages=2)
    heard(cache, [1, 2, 3])
    assert cache.evict_host(Counts(full=1)).freed == Counts(full=1)
    assert cached_pages(cache, [1, 2, 3]) == 2
    fetch(cache, [1, 2, 4], start_pages=2)
    assert cache.evict_host(Counts(full=2)).freed == Counts(full=3)
    assert len(cache.snapshot().nodes) == 1
    assert heard(cache, [1, 2, 3], [1, 2, 4]) == [
        ("removed", CPU, 3),
        ("stored", CPU, 4),
        ("removed", CPU, 4),
        ("removed", CPU, 2),
        ("removed", CPU, 1),
    ]


def test_evict_host_spares_the_copy_of_what_is_on_the_device() -> None:
    """Under write_through the host copy of a device page is not evicted."""
    cache, _ = new_cache(WRITE_THROUGH)
    put(cache, [1, 2])
    cache.flush()
    assert cache.evict_host(Counts(full=8)).freed == Counts()
    assert shown(cache, [1, 2], FULL, CPU) == "##"


def test_evict_host_spares_the_parent_of_what_is_on_the_device() -> None:
    """A host node above a node that is on the device is not evicted."""
    cache, _ = new_cache(WRITE_THROUGH)
    fetch(cache, [1, 2, 3])
    cache.load_back(prompt(cache, [1, 2]))
    cache.flush()
    assert cache.evict_host(Counts(full=8)).freed == Counts(full=1)
    assert shown(cache, [1, 2, 3], FULL, CPU) == "##."


def test_evict_host_spares_what_is_being_copied_either_way() -> None:
    """A host slot that a copy reads or writes is not freed."""
    cache, _ = new_cache(WRITE_THROUGH)
    fetch(cache, [1, 2])
    cache.load_back(prompt(cache, [1, 2]))
    put(cache, [3, 4])
    assert cache.evict_host(Counts(full=8)).freed == Counts()


@pytest.mark.parametrize("component", Component)
def test_evict_host_takes_a_leaf_whole(component: Component) -> None:
    """A host leaf that is evicted for one component loses all of them."""
    cache, _ = new_cache(BOTH)
    fetch(cache, [1, 2], window_pages=2, state=True)
    asked = Counts(**{component.value: 1})
    assert cache.evict_host(asked).freed == Counts(2, 2, 1)
    assert len(cache.snapshot().nodes) == 1


def test_evict_host_window_data_inside_leaves_the_rest() -> None:
    """Window data evicted inside the tree leaves full data and mamba state on the host."""
    cache, _ = new_cache(BOTH)
    fetch(cache, [1, 2], window_pages=2, state=True)
    fetch(cache, [1, 2, 3, 4], start_pages=2, window_pages=2, state=True)
    heard(cache, [1, 2, 3, 4])
    assert cache.evict_host(Counts(swa=1)).freed == Counts(swa=2)
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "..##"
    assert shown(cache, [1, 2, 3, 4], MAMBA, CPU) == ".#.#"
    assert cache.evict_host(Counts(mamba=1)).freed == Counts(mamba=1)
    assert shown(cache, [1, 2, 3, 4], MAMBA, CPU) == "...#"
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "####"
    assert heard(cache, [1, 2, 3, 4]) == []


def test_evict_host_window_data_of_the_device_stays() -> None:
    """Window data that is on the device, too, is not evicted from the host."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    cache.flush()
    assert cache.evict_host(Counts(0, 8, 8)).freed == Counts()


def test_evict_host_passes_over_what_is_locked() -> None:
    """Locked host data is not evicted."""
    cache, _ = new_cache(BOTH)
    fetch(cache, [1, 2, 3, 4], window_pages=3, state=True)
    fetch(cache, [8, 9], window_pages=2, state=True)
    lock(cache, [1, 2, 3, 4])
    assert cache.evict_host(Counts(8, 8, 4)).freed == Counts(2, 3, 1)
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "####"
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "..##"
    assert shown(cache, [1, 2, 3, 4], MAMBA, CPU) == "...#"


# Duplicates under write-back.


def test_evict_host_under_write_back_takes_duplicates_first() -> None:
    """Under write_back duplicates are evicted before data that is on the host only."""
    cache, _ = new_cache(WRITE_BACK)
    fetch(cache, [8, 9])
    put(cache, [1, 2])
    cache.evict(Counts(full=1))
    cache.load_back(prompt(cache, [1, 2]))
    cache.flush()
    cache.take_events()
    assert cache.evict_host(Counts(full=1)).freed == Counts(full=2)
    assert heard(cache, [1, 2]) == [("removed", CPU, 2), ("removed", CPU, 1)]
    assert (shown(cache, [1, 2]), shown(cache, [1, 2], FULL, CPU)) == ("##", "..")
    assert cached_pages(cache, [8, 9]) == 2
    assert cache.evict_host(Counts(full=1)).freed == Counts(full=2)
    assert cached_pages(cache, [8, 9]) == 0


def test_evict_host_under_write_back_takes_duplicates_of_leaves_last() -> None:
    """A device leaf's host copy, needed next, is evicted after that of its parent."""
    cache, _ = new_cache(WRITE_BACK)
    put(cache, [1, 2])
    put(cache, [1, 2, 3])
    cache.evict(Counts(full=3))
    cache.load_back(prompt(cache, [1, 2, 3]))
    cache.flush()
    cache.match(prompt(cache, [1, 2]))
    cache.evict_host(Counts(full=1))
    assert shown(cache, [1, 2, 3], FULL, CPU) == "..#"


@pytest.mark.parametrize("cuts", [(2, 4), (4, 2)])
def test_evict_host_of_duplicates_used_at_once_takes_the_upper_first(cuts: tuple[int, int]) -> None:
    """Of duplicates that were used together the upper one is evicted first."""
    cache, _ = new_cache(WRITE_BACK)
    tokens = [1, 2, 3, 4, 5, 6]
    put(cache, tokens)
    for end in cuts:
        cache.match(prompt(cache, tokens[:end]))
    for _ in range(3):
        cache.evict(Counts(2))
    cache.load_back(prompt(cache, tokens))
    cache.flush()
    cache.match(prompt(cache, tokens))
    left = []
    for _ in range(3):
        assert cache.evict_host(Counts(1)).freed == Counts(2)
        left.append(shown(cache, tokens, FULL, CPU))
    assert left == ["..####", "....##", "......"]


def test_evict_host_under_write_back_spares_a_copy_with_more_than_the_device() -> None:
    """A host copy whose window data is nowhere else is not evicted as a duplicate."""
    cache, _ = new_cache(
        evolve(WRITE_BACK, window_tokens=2, device_slots=Counts(8, 8), host_slots=Counts(8, 8))
    )
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.evict(Counts(swa=1))
    assert shown(cache, [1, 2], SWA, CPU) == "##"
    assert cache.evict_host(Counts(full=8)).freed == Counts()
    assert cached_pages(cache, [1, 2]) == 2


def test_evict_host_under_write_back_spares_locked_duplicates() -> None:
    """A locked duplicate is not evicted."""
    cache, _ = new_cache(WRITE_BACK)
    put(cache, [1, 2])
    cache.evict(Counts(full=2))
    cache.load_back(prompt(cache, [1, 2]))
    cache.flush()
    receipt = lock(cache, [1, 2])
    assert cache.evict_host(Counts(full=8)).freed == Counts()
    cache.unlock(receipt)
    assert cache.evict_host(Counts(full=8)).freed == Counts(full=2)
    assert free_slots(cache, FULL, CPU) == 8
