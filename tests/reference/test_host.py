"""Eviction from the host on the plain cache: the victims, their order, and what stays."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts
from scenes import plain

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
    s = plain(WRITE_THROUGH, "fetch 12; fetch 34; hit 12")
    assert s.evict_host() == Counts()
    assert s.evict_host(full=1) == Counts(full=2)
    assert (s.hit("12"), s.hit("34")) == (2, 0)


def test_evict_host_follows_the_policy() -> None:
    """Host leaves are evicted in the order of the eviction policy."""
    s = plain(evolve(WRITE_THROUGH, eviction_policy="mru"), "fetch 1; fetch 2; evict_host full=1")
    assert (s.hit("1"), s.hit("2")) == (1, 0)


def test_evict_host_takes_children_before_parents() -> None:
    """A node leaves the host after the nodes below it."""
    s = plain(evolve(WRITE_THROUGH, eviction_policy="fifo"), "fetch 12; fetch 123 start=2; heard")
    assert s.evict_host(full=1) == Counts(full=1)
    assert s.hit("123") == 2
    s.fetch("124", start=2)
    assert s.evict_host(full=2) == Counts(full=3)
    assert len(s.cache.snapshot().nodes) == 1
    assert s.heard() == "removed CPU 3, stored CPU 4, removed CPU 4 2 1"


def test_evict_host_spares_the_copy_of_what_is_on_the_device() -> None:
    """Under write_through the host copy of a device page is not evicted."""
    s = plain(WRITE_THROUGH, "put 12; flush")
    assert s.evict_host(full=8) == Counts()
    assert s.see("12", FULL, CPU) == "##"


def test_evict_host_spares_the_parent_of_what_is_on_the_device() -> None:
    """A host node above a node that is on the device is not evicted."""
    s = plain(WRITE_THROUGH, "fetch 123; load 12; flush")
    assert s.evict_host(full=8) == Counts(full=1)
    assert s.see("123", FULL, CPU) == "##."


def test_evict_host_spares_what_is_being_copied_either_way() -> None:
    """A host slot that a copy reads or writes is not freed."""
    s = plain(WRITE_THROUGH, "fetch 12; load 12; put 34")
    assert s.evict_host(full=8) == Counts()


@pytest.mark.parametrize("component", Component)
def test_evict_host_takes_a_leaf_whole(component: Component) -> None:
    """A host leaf that is evicted for one component loses all of them."""
    s = plain(BOTH, "fetch 12 window=2 state=1")
    assert s.cache.evict_host(Counts(**{component.value: 1})).freed == Counts(2, 2, 1)
    assert len(s.cache.snapshot().nodes) == 1


def test_evict_host_window_data_inside_leaves_the_rest() -> None:
    """Window data evicted inside the tree leaves full data and mamba state on the host."""
    s = plain(BOTH, "fetch 12 window=2 state=1; fetch 1234 start=2 window=2 state=1; heard")
    assert s.evict_host(swa=1) == Counts(swa=2)
    assert s.see("1234", SWA, MAMBA, CPU) == "..## .#.#"
    assert s.evict_host(mamba=1) == Counts(mamba=1)
    assert s.see("1234", MAMBA, FULL, CPU) == "...# ####"
    assert s.heard() == ""


def test_evict_host_window_data_of_the_device_stays() -> None:
    """Window data that is on the device, too, is not evicted from the host."""
    s = plain(BOTH, "put 12; flush")
    assert s.evict_host(0, 8, 8) == Counts()


def test_evict_host_passes_over_what_is_locked() -> None:
    """Locked host data is not evicted."""
    s = plain(BOTH, "fetch 1234 window=3 state=1; fetch 89 window=2 state=1; lock 1234")
    assert s.evict_host(8, 8, 4) == Counts(2, 3, 1)
    assert s.see("1234", FULL, SWA, MAMBA, CPU) == "#### ..## ...#"


# Duplicates under write-back.


def test_evict_host_under_write_back_takes_duplicates_first() -> None:
    """Under write_back duplicates are evicted before data that is on the host only."""
    s = plain(WRITE_BACK, "fetch 89; put 12; evict full=1; load 12; flush; heard")
    assert s.evict_host(full=1) == Counts(full=2)
    assert s.heard() == "removed CPU 2 1"
    assert (s.see("12", FULL), s.see("12", FULL, CPU)) == ("##", "..")
    assert s.hit("89") == 2
    assert s.evict_host(full=1) == Counts(full=2)
    assert s.hit("89") == 0


def test_evict_host_under_write_back_takes_duplicates_of_leaves_last() -> None:
    """A device leaf's host copy, needed next, is evicted after that of its parent."""
    s = plain(WRITE_BACK, "put 12; put 123; evict full=3; load 123; flush; hit 12")
    s.evict_host(full=1)
    assert s.see("123", FULL, CPU) == "..#"


@pytest.mark.parametrize("cuts", [(2, 4), (4, 2)])
def test_evict_host_of_duplicates_used_at_once_takes_the_upper_first(cuts: tuple[int, int]) -> None:
    """Of duplicates that were used together the upper one is evicted first."""
    s = plain(WRITE_BACK)
    tokens = [1, 2, 3, 4, 5, 6]
    s.put(tokens)
    for end in cuts:
        s.hit(tokens[:end])
    for _ in range(3):
        s.evict(2)
    s.load(tokens)
    s.cache.flush()
    s.hit(tokens)
    left = []
    for _ in range(3):
        assert s.evict_host(1) == Counts(2)
        left.append(s.see(tokens, FULL, CPU))
    assert left == ["..####", "....##", "......"]


def test_evict_host_under_write_back_spares_a_copy_with_more_than_the_device() -> None:
    """A host copy whose window data is nowhere else is not evicted as a duplicate."""
    s = plain(
        evolve(WRITE_BACK, window_tokens=2, device_slots=Counts(8, 8), host_slots=Counts(8, 8))
    )
    s.play("put 12; put 1234; evict swa=1")
    assert s.see("12", SWA, CPU) == "##"
    assert s.evict_host(full=8) == Counts()
    assert s.hit("12") == 2


def test_evict_host_under_write_back_spares_locked_duplicates() -> None:
    """A locked duplicate is not evicted."""
    s = plain(WRITE_BACK, "put 12; evict full=2; load 12; flush")
    receipt = s.lock("12")
    assert s.evict_host(full=8) == Counts()
    s.cache.unlock(receipt)
    assert s.evict_host(full=8) == Counts(full=2)
    assert s.free_slots(CPU)[FULL] == 8
