"""Eviction from the device on the plain cache: the victims, their order, and what is left."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, EvictionPolicy
from scenes import (
    assert_right_bytes,
    cached_pages,
    free_slots,
    heard,
    lock,
    new_cache,
    prompt,
    put,
    refused,
    shown,
    slots_of,
)

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
    cache, _ = new_cache(evolve(PLAIN, eviction_policy=policy))
    prompts = [1, 2, 3, 4]
    for token, priority in zip(prompts, (1, 1, 2, 0), strict=True):
        put(cache, [token], priority=priority)
    for token in (1, 2, 2):
        put(cache, [token])
    for token in (2, 3, 1, 4):
        cache.match(prompt(cache, [token]))
    left: list[int] = []
    while len(left) < 4:
        assert cache.evict(Counts(full=1)).freed == Counts(full=1)
        left.extend(t for t in prompts if t not in left and shown(cache, [t]) == ".")
    assert left == VICTIMS[policy]


def test_evict_negative_priority_leaves_before_the_default() -> None:
    """A prompt with a negative priority is evicted before one with the default priority."""
    cache, _ = new_cache(evolve(PLAIN, eviction_policy="priority"))
    put(cache, [1])
    put(cache, [2], priority=-1)
    cache.evict(Counts(1))
    assert (shown(cache, [1]), shown(cache, [2])) == ("#", ".")


def test_evict_takes_leaves_before_what_they_hang_on() -> None:
    """A node is evicted after the nodes below it, once it is a leaf."""
    cache, _ = new_cache(evolve(PLAIN, eviction_policy="fifo"))
    put(cache, [1, 2])
    put(cache, [8, 9])
    put(cache, [1, 2, 3])
    left = []
    for _ in range(3):
        cache.evict(Counts(full=1))
        left.append((shown(cache, [1, 2, 3]), shown(cache, [8, 9])))
    assert left == [("###", ".."), ("##.", ".."), ("...", "..")]


def test_evict_stops_at_the_victim_that_was_enough() -> None:
    """Exactly as many leaves as needed are evicted, and the counts are the freed slots."""
    cache, _ = new_cache(WINDOW)
    for tokens in ([1, 2], [3, 4], [5, 6]):
        put(cache, tokens)
    assert cache.evict(Counts()).freed == Counts()
    assert cache.evict(Counts(full=3)).freed == Counts(4, 4)
    assert cache.evict(Counts(full=100)).freed == Counts(2, 2)
    assert cache.evict(Counts(full=1)).freed == Counts()
    assert free_slots(cache) == 16


def test_evict_counts_what_another_component_freed_on_its_way() -> None:
    """Window slots that were freed with a leaf count, and no more window data is evicted."""
    cache, _ = new_cache(WINDOW)
    for tokens in ([1, 2], [3, 4], [5, 6]):
        put(cache, tokens)
    assert cache.evict(Counts(full=1, swa=2)).freed == Counts(2, 2)
    assert cache.evict(Counts(full=1, swa=3)).freed == Counts(4, 4)


def test_evict_of_a_negative_count_is_refused() -> None:
    """A negative count is refused."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    for counts in (Counts(-1), Counts(1, -1), Counts(1, 1, -1)):
        with refused(cache, BadArgument):
            cache.evict(counts)
        with refused(cache, BadArgument):
            cache.evict_host(counts)


# Window data and mamba states.


def test_evict_window_data_inside_the_tree_makes_a_tombstone() -> None:
    """The least recently used window data is evicted alone; its node keeps its full data."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    assert cache.evict(Counts(swa=1)).freed == Counts(swa=2)
    assert shown(cache, [1, 2, 3, 4]) == "####"
    assert shown(cache, [1, 2, 3, 4], SWA) == "..##"


def test_evict_window_data_takes_the_state_that_stands_on_it() -> None:
    """A mamba state is evicted with the window data of its node, and no other state is."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    assert cache.evict(Counts(swa=1)).freed == Counts(swa=2, mamba=1)
    assert shown(cache, [1, 2, 3, 4], MAMBA) == "...#"


def test_evict_state_inside_the_tree_leaves_the_window_data() -> None:
    """A mamba state is evicted without the window data of its node."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    assert cache.evict(Counts(mamba=1)).freed == Counts(mamba=1)
    assert shown(cache, [1, 2, 3, 4], MAMBA) == "...#"
    assert shown(cache, [1, 2, 3, 4], SWA) == "####"


@pytest.mark.parametrize("component", Component)
def test_evict_takes_a_leaf_whole(component: Component) -> None:
    """A leaf that is evicted for one component loses all of them."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    asked = Counts(**{component.value: 1})
    assert cache.evict(asked).freed == Counts(2, 2, 1)
    assert len(cache.snapshot().nodes) == 1
    assert cache.snapshot().swa_of_full == {}


def test_evict_passes_over_what_is_locked() -> None:
    """Locked data stays, and unlocked data beside it is evicted."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    put(cache, [8, 9])
    lock(cache, [1, 2, 3, 4])
    assert cache.evict(Counts(16, 16, 8)).freed == Counts(2, 4, 2)
    assert shown(cache, [1, 2, 3, 4]) == "####"
    assert shown(cache, [1, 2, 3, 4], SWA) == "..##"
    assert shown(cache, [1, 2, 3, 4], MAMBA) == "...#"


# Demotion.


def test_evict_leaf_with_a_host_copy_demotes_it() -> None:
    """A leaf with a host copy stays in the tree with its host slots."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    cache.flush()
    before = [slots_of(cache, [1, 2], c, CPU) for c in (FULL, SWA)]
    assert cache.evict(Counts(full=1)).freed == Counts(2, 2)
    assert [slots_of(cache, [1, 2], c, CPU) for c in (FULL, SWA)] == before
    assert shown(cache, [1, 2]) == ".."
    assert cached_pages(cache, [1, 2]) == 2


def test_evict_passes_over_what_is_being_copied() -> None:
    """A leaf is not evicted while its backup is in flight."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    assert cache.evict(Counts(16, 16)).freed == Counts()
    cache.flush()
    assert cache.evict(Counts(16, 16)).freed == Counts(2, 2)


def test_evict_parent_of_demoted_pages_takes_its_turn() -> None:
    """A node whose children are on the host only is evicted as a leaf, after them."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.flush()
    for left in ("##..", "...."):
        cache.evict(Counts(full=1))
        assert shown(cache, [1, 2, 3, 4]) == left
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "####"


def test_evict_removes_the_last_page_first() -> None:
    """Remove events run from the last page to the first, and name the medium."""
    cache, _ = new_cache(PLAIN)
    put(cache, [1, 2])
    put(cache, [1, 2, 3])
    heard(cache, [1, 2, 3])
    cache.evict(Counts(full=3))
    assert heard(cache, [1, 2, 3]) == [("removed", GPU, token) for token in (3, 2, 1)]


# Write-back.


def test_evict_under_write_back_copies_first() -> None:
    """Under write_back an evicted node is stored on the host before it is removed."""
    cache, _ = new_cache(WRITE_BACK)
    assert put(cache, [1, 2]).backups == ()
    heard(cache, [1, 2])
    assert cache.evict(Counts(full=1)).freed == Counts(2, 2)
    assert heard(cache, [1, 2]) == [
        ("stored", CPU, 1),
        ("stored", CPU, 2),
        ("removed", GPU, 2),
        ("removed", GPU, 1),
    ]
    cache.load_back(prompt(cache, [1, 2]))
    cache.flush()
    assert cache.match(prompt(cache, [1, 2])).device_pages == 2
    assert_right_bytes(cache, [1, 2])


def test_evict_under_write_back_copies_window_data_with_its_full_data() -> None:
    """Under write_back a new tombstone's window data is on the host with its full data."""
    cache, _ = new_cache(WRITE_BACK)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    assert cache.evict(Counts(swa=1)).freed == Counts(swa=2)
    assert shown(cache, [1, 2, 3, 4], SWA) == "..##"
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "##.."
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "##.."
    assert cached_pages(cache, [1, 2]) == 2


def test_evict_under_write_back_drops_what_hangs_below_when_the_host_is_full() -> None:
    """A leaf that finds no free host slots is deleted together with its host children."""
    cache, _ = new_cache(evolve(WRITE_BACK, host_slots=Counts(16, 1)))
    put(cache, [1, 2])
    put(cache, [1, 2, 3], window_pages=0)
    cache.evict(Counts(full=1))
    assert shown(cache, [1, 2, 3]) == "##."
    assert shown(cache, [1, 2, 3], FULL, CPU) == "..#"
    cache.take_events()
    assert cache.evict(Counts(full=1)).freed == Counts(2, 2)
    assert heard(cache, [1, 2, 3]) == [
        ("removed", CPU, 3),
        ("removed", GPU, 2),
        ("removed", GPU, 1),
    ]
    assert len(cache.snapshot().nodes) == 1
    assert free_slots(cache, FULL, CPU) == 16


def test_evict_under_write_back_keeps_a_leaf_above_what_is_locked() -> None:
    """A leaf without free host slots stays if host data below it is locked; others are evicted."""
    cache, _ = new_cache(evolve(WRITE_BACK, window_tokens=None, host_slots=Counts(2)))
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.evict(Counts(full=1))
    put(cache, [8, 9])
    lock(cache, [1, 2, 3, 4])
    assert cache.evict(Counts(full=4)).freed == Counts(full=2)
    assert shown(cache, [1, 2, 3, 4]) == "##.."
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "..##"
    assert shown(cache, [8, 9]) == ".."
