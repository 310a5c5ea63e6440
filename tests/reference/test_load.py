"""Load-back on the plain cache: what is copied to the device, and what is evicted for it."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.operations import LoadDecision, LoadedBack
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Key, Slots
from scenes import (
    assert_right_bytes,
    cached_pages,
    fetch,
    heard,
    lock_refs,
    new_cache,
    node_ends,
    prompt,
    put,
    refused,
    shown,
)

FULL_ONLY = CacheConfig(device_slots=Counts(8), host_slots=Counts(16), write_policy="write_through")
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(8, 8), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(8, 8, 2), host_slots=Counts(16, 16, 4))


def test_load_brings_full_data_the_window_and_the_state() -> None:
    """A load copies all full data, the window and the mamba state at the end, and no more."""
    cache, _ = new_cache(BOTH)
    fetch(cache, [1, 2], window_pages=2, state=True)
    fetch(cache, [1, 2, 3, 4, 5], start_pages=2, window_pages=3, state=True)
    loaded = cache.load_back(prompt(cache, [1, 2, 3, 4, 5]))
    assert (loaded.decision, loaded.loading) == (LoadDecision.ENQUEUED, Counts(5, 2, 1))
    assert loaded.evicted == Counts()
    cache.flush()
    assert shown(cache, [1, 2, 3, 4, 5]) == "#####"
    assert shown(cache, [1, 2, 3, 4, 5], SWA) == "...##"
    assert shown(cache, [1, 2, 3, 4, 5], MAMBA) == "....#"
    assert cache.match(prompt(cache, [1, 2, 3, 4, 5])).device_pages == 5
    assert_right_bytes(cache, [1, 2, 3, 4, 5])


def test_load_keeps_the_host_copies() -> None:
    """Loaded data stays in the same host slots."""
    cache, _ = new_cache(WINDOW)
    fetch(cache, [1, 2, 3], window_pages=2)
    before = cache.snapshot().pools[FULL, CPU], cache.snapshot().pools[SWA, CPU]
    cache.load_back(prompt(cache, [1, 2, 3]))
    cache.flush()
    assert (cache.snapshot().pools[FULL, CPU], cache.snapshot().pools[SWA, CPU]) == before
    assert shown(cache, [1, 2, 3], SWA, CPU) == ".##"


def test_load_of_a_part_cuts_and_brings_that_part() -> None:
    """A load of a part of a node cuts the node and copies that part only."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2, 3, 4])
    assert cache.load_back(prompt(cache, [1, 2])).loading == Counts(2)
    cache.flush()
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 4]
    assert shown(cache, [1, 2, 3, 4]) == "##.."
    assert_right_bytes(cache, [1, 2])


def test_load_in_flight_is_not_a_device_hit() -> None:
    """A page is not on the device, and not emitted, before its bytes are there."""
    cache, engine = new_cache(WINDOW)
    fetch(cache, [1, 2], window_pages=2)
    cache.take_events()
    loaded = cache.load_back(prompt(cache, [1, 2]))
    matched = cache.match(prompt(cache, [1, 2]))
    assert (matched.prefix_pages, matched.device_pages) == (2, 0)
    assert matched.slots == Slots()
    assert matched.pending == (loaded.transfer_id,)
    assert shown(cache, [1, 2]) == "~~"
    engine.perform(engine.open_orders[0].transfer_id)
    cache.poll()
    assert heard(cache, [1, 2]) == []
    cache.flush()
    assert heard(cache, [1, 2]) == [("stored", GPU, 1), ("stored", GPU, 2)]
    matched = cache.match(prompt(cache, [1, 2]))
    assert (matched.device_pages, matched.pending) == (2, ())


def test_load_holds_its_path_until_it_settles() -> None:
    """The data that a load reads or fills is locked until the load settles, and only then."""
    cache, _ = new_cache(BOTH)
    fetch(cache, [1, 2, 3], window_pages=3, state=True)
    cache.load_back(prompt(cache, [1, 2, 3]))
    assert lock_refs(cache, [1, 2, 3], FULL) == [1, 1, 1]
    assert lock_refs(cache, [1, 2, 3], SWA) == [0, 1, 1]
    assert lock_refs(cache, [1, 2, 3], MAMBA) == [0, 0, 1]
    assert cache.evict(Counts(8, 8, 2)).freed == Counts()
    assert cache.evict_host(Counts(16, 0, 4)).freed == Counts()
    cache.flush()
    assert not any(lock_refs(cache, [1, 2, 3], FULL))
    assert cache.snapshot().holds == ()


def test_load_of_what_is_there_or_on_its_way_is_nothing() -> None:
    """Data on the device, or being loaded, is not loaded again."""
    cache, _ = new_cache(WINDOW)
    nothing = LoadedBack(LoadDecision.NOTHING_TO_LOAD)
    assert cache.load_back(Key(())) == nothing
    put(cache, [1, 2])
    assert cache.load_back(prompt(cache, [1, 2])) == nothing
    fetch(cache, [5, 6], window_pages=2)
    cache.load_back(prompt(cache, [5, 6]))
    before = cache.snapshot()
    assert cache.load_back(prompt(cache, [5, 6])) == nothing
    assert cache.snapshot() == before


def test_load_below_another_in_flight_brings_the_rest() -> None:
    """A load below a load in flight copies only the rest."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2, 3])
    cache.load_back(prompt(cache, [1]))
    assert cache.load_back(prompt(cache, [1, 2, 3])).loading == Counts(2)
    cache.flush()
    assert shown(cache, [1, 2, 3]) == "###"
    assert_right_bytes(cache, [1, 2, 3])


def test_load_over_quota_is_not_done() -> None:
    """A load of more pages than the quota is not enqueued; one of exactly as many is."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2, 3])
    before = cache.snapshot()
    assert cache.load_back(prompt(cache, [1, 2, 3]), 2) == LoadedBack(LoadDecision.OVER_QUOTA)
    assert cache.snapshot() == before
    assert cache.load_back(prompt(cache, [1, 2, 3]), 3).decision is LoadDecision.ENQUEUED


def test_load_below_the_threshold_is_not_done() -> None:
    """A load of fewer pages than the threshold is not enqueued; one of exactly as many is."""
    cache, _ = new_cache(evolve(FULL_ONLY, load_back_threshold_pages=2))
    fetch(cache, [1, 2, 3])
    before = cache.snapshot()
    below = LoadedBack(LoadDecision.BELOW_THRESHOLD)
    assert cache.load_back(prompt(cache, [1])) == below
    assert cache.snapshot() == before
    assert cache.load_back(prompt(cache, [1, 2])).decision is LoadDecision.ENQUEUED


def test_load_of_window_data_has_no_threshold() -> None:
    """A load of window data alone is enqueued whatever the threshold."""
    cache, _ = new_cache(evolve(WINDOW, load_back_threshold_pages=2))
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.flush()
    cache.evict(Counts(swa=1))
    loaded = cache.load_back(prompt(cache, [1, 2]), quota_pages=0)
    assert (loaded.decision, loaded.loading) == (LoadDecision.ENQUEUED, Counts(swa=2))
    cache.flush()
    assert_right_bytes(cache, [1, 2])


# Evictions for a load.


def test_load_makes_room_for_what_each_pool_lacks() -> None:
    """A load evicts from each pool exactly the slots that it lacks there."""
    cache, _ = new_cache(FULL_ONLY)
    put(cache, [7, 8, 9])
    put(cache, [5, 6])
    cache.flush()
    fetch(cache, [1, 2, 3, 4])
    loaded = cache.load_back(prompt(cache, [1, 2, 3, 4]))
    assert loaded.evicted == Counts(3)
    assert (shown(cache, [7, 8, 9]), shown(cache, [5, 6])) == ("...", "##")
    assert cached_pages(cache, [7, 8, 9]) == 3


def test_load_for_want_of_window_slots_keeps_full_data() -> None:
    """No full data is evicted if only window slots are short."""
    cache, _ = new_cache(evolve(WINDOW, device_slots=Counts(16, 4)))
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.flush()
    fetch(cache, [8, 9], window_pages=2)
    loaded = cache.load_back(prompt(cache, [8, 9]))
    assert loaded.evicted == Counts(swa=2)
    assert shown(cache, [1, 2, 3, 4]) == "####"


def test_load_never_evicts_its_own_path() -> None:
    """A load does not evict pages of its own path."""
    cache, _ = new_cache(evolve(FULL_ONLY, device_slots=Counts(4)))
    put(cache, [1, 2])
    put(cache, [8, 9], start_pages=0)
    cache.flush()
    fetch(cache, [1, 2, 3, 4])
    cache.match(prompt(cache, [8, 9]))
    loaded = cache.load_back(prompt(cache, [1, 2, 3, 4]))
    assert (loaded.decision, loaded.evicted) == (LoadDecision.ENQUEUED, Counts(2))
    assert (shown(cache, [1, 2, 3, 4]), shown(cache, [8, 9])) == ("##~~", "..")


def test_load_without_room_leaves_only_what_it_evicted() -> None:
    """A load without enough free slots keeps no lock, slot or copy, and reports its evictions."""
    cache, engine = new_cache(evolve(FULL_ONLY, device_slots=Counts(5)))
    put(cache, [7])
    cache.flush()
    taken = cache.allocate(Counts(2))
    fetch(cache, [1, 2, 3, 4])
    loaded = cache.load_back(prompt(cache, [1, 2, 3, 4]))
    assert loaded == LoadedBack(LoadDecision.NO_ROOM, evicted=Counts(1))
    after = cache.snapshot()
    assert (after.holds, after.transfers, engine.open_orders) == ((), (), ())
    assert len(after.pools[FULL, GPU].free) == 3
    assert not any(lock_refs(cache, [1, 2, 3, 4]))
    cache.free(taken)
    assert cache.load_back(prompt(cache, [1, 2, 3, 4])).decision is LoadDecision.ENQUEUED


def test_load_under_write_back_copies_what_makes_room() -> None:
    """Under write_back data that is evicted for a load is copied to the host."""
    cache, _ = new_cache(evolve(FULL_ONLY, write_policy="write_back", device_slots=Counts(2)))
    put(cache, [1, 2])
    fetch(cache, [8, 9])
    assert cache.load_back(prompt(cache, [8, 9])).evicted == Counts(2)
    cache.flush()
    assert shown(cache, [1, 2], FULL, CPU) == "##"
    assert_right_bytes(cache, [8, 9])
    cache.load_back(prompt(cache, [1, 2]))
    cache.flush()
    assert_right_bytes(cache, [1, 2])


# Refusals.


def test_load_of_what_is_not_there_is_refused() -> None:
    """A load of a prefix that is not in the tree as a whole is refused."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2])
    with refused(cache, PrefixNotCached) as info:
        cache.load_back(prompt(cache, [1, 2, 3]))
    assert (info.value.asked_pages, info.value.cached_pages) == (3, 2)


def test_load_with_a_negative_quota_is_refused() -> None:
    """A negative quota is refused."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2])
    with refused(cache, BadArgument, match="quota_pages"):
        cache.load_back(prompt(cache, [1, 2]), -1)
