"""Slots of the plain cache: their owners, and the pairs of full and window slots."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Slots
from scenes import Plain, plain, refused

PLAIN = CacheConfig(device_slots=Counts(8))
BOTH = CacheConfig(window_tokens=2, mamba=True, device_slots=Counts(8, 6, 2))


def held(s: Plain, component: Component) -> frozenset[int]:
    """Return the device slots that requests hold."""
    return s.cache.snapshot().pools[component, GPU].held


def test_allocate_takes_free_slots_and_holds_them() -> None:
    """Allocated slots are no longer free, are held, and are allocated only once."""
    s = plain(BOTH)
    first, second = s.cache.allocate(Counts(3, 2, 1)), s.cache.allocate(Counts(5, 4, 1))
    for component in Component:
        given = (*first[component], *second[component])
        assert len(set(given)) == len(given) == BOTH.device_slots[component]
        assert held(s, component) == set(given)
        assert s.free_slots()[component] == 0


def test_allocate_pairs_window_slots_with_the_last_full_slots() -> None:
    """Window slots are paired with the full slots of the last pages."""
    s = plain(BOTH)
    slots = s.cache.allocate(Counts(4, 2))
    pairs = dict(zip(slots.full[2:], slots.swa, strict=True))
    assert s.cache.snapshot().swa_of_full == pairs


def test_allocate_of_nothing_gives_nothing() -> None:
    """An allocation of no slots returns none."""
    s = plain(BOTH)
    assert s.cache.allocate(Counts()) == Slots()


def test_allocate_never_evicts() -> None:
    """An allocation does not evict."""
    s = plain(PLAIN, "put 12345")
    with refused(s.cache, OutOfSlots) as info:
        s.cache.allocate(Counts(4))
    assert (info.value.asked_slots, info.value.free_slots) == (4, 3)


def test_free_gives_slots_back() -> None:
    """Freed slots are free and no longer held."""
    s = plain(BOTH)
    before = s.cache.snapshot()
    s.cache.free(s.cache.allocate(Counts(4, 3, 1)))
    assert s.cache.snapshot().swa_of_full == before.swa_of_full
    for component in Component:
        assert held(s, component) == frozenset()
        assert s.free_slots()[component] == BOTH.device_slots[component]


def test_free_of_full_slots_ends_their_pairing() -> None:
    """A freed full slot is paired with no window slot."""
    s = plain(BOTH)
    slots = s.cache.allocate(Counts(2, 2))
    s.cache.free(Slots(full=slots.full))
    assert s.cache.snapshot().swa_of_full == {}
    assert held(s, SWA) == set(slots.swa)
    s.cache.free(Slots(swa=slots.swa))
    assert s.free_slots()[SWA] == 6


def test_free_of_window_slots_ends_their_pairing() -> None:
    """No full slot is paired with a freed window slot."""
    s = plain(BOTH)
    slots = s.cache.allocate(Counts(3, 3))
    s.cache.free(Slots(swa=slots.swa[:2]))
    assert s.cache.snapshot().swa_of_full == {slots.full[2]: slots.swa[2]}


def test_slot_that_comes_back_holds_no_bytes_of_its_last_owner() -> None:
    """A reallocated slot has no bytes of its former owner."""
    s = plain(PLAIN)
    slots = s.compute("12")
    assert s.cache.read(FULL, GPU, slots.full[0]) != bytes(8)
    s.cache.free(slots)
    assert s.cache.read(FULL, GPU, slots.full[0]) == bytes(8)


def test_every_slot_is_counted_once() -> None:
    """Free, held, evictable and protected slots add up to the pool."""
    s = plain(evolve(BOTH, device_slots=Counts(12, 12, 4)), "put 1234; put 125")
    s.cache.lock(s.key("1234"))
    s.cache.allocate(Counts(3, 2, 1))
    usage = s.cache.snapshot().usage
    assert [usage[c].evictable for c in Component] == [1, 3, 1]
    assert [usage[c].protected for c in Component] == [4, 2, 1]
    assert [len(held(s, c)) for c in Component] == [3, 2, 1]
    assert [s.free_slots()[c] for c in Component] == [4, 5, 1]
    assert s.free_slots()[MAMBA] == 1
