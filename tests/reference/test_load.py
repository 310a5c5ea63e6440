"""Load-back on the plain cache: what is copied to the device, and what is evicted for it."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import LoadDecision, LoadedBack
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Key, Slots
from scenes import plain

FULL_ONLY = CacheConfig(device_slots=Counts(8), host_slots=Counts(16), write_policy="write_through")
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(8, 8), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(8, 8, 2), host_slots=Counts(16, 16, 4))


def test_load_brings_full_data_the_window_and_the_state() -> None:
    """A load copies all full data, the window and the mamba state at the end, and no more."""
    s = plain(BOTH, "fetch 12 window=2 state=1; fetch 12345 start=2 window=3 state=1")
    loaded = s.load("12345")
    assert (loaded.decision, loaded.loading) == (LoadDecision.ENQUEUED, Counts(5, 2, 1))
    assert loaded.evicted == Counts()
    s.cache.flush()
    assert s.see("12345", FULL, SWA, MAMBA) == "##### ...## ....#"
    assert s.cache.match(s.key("12345")).device_pages == 5
    s.check_bytes("12345")


def test_load_keeps_the_host_copies() -> None:
    """Loaded data stays in the same host slots."""
    s = plain(WINDOW, "fetch 123 window=2")
    before = (s.cache.snapshot().pools[FULL, CPU], s.cache.snapshot().pools[SWA, CPU])
    s.play("load 123; flush")
    assert (s.cache.snapshot().pools[FULL, CPU], s.cache.snapshot().pools[SWA, CPU]) == before
    assert s.see("123", SWA, CPU) == ".##"


def test_load_of_a_part_cuts_and_brings_that_part() -> None:
    """A load of a part of a node cuts the node and copies that part only."""
    s = plain(FULL_ONLY, "fetch 1234")
    assert s.load("12").loading == Counts(2)
    s.cache.flush()
    assert s.ends("1234") == [2, 4]
    assert s.see("1234", FULL) == "##.."
    s.check_bytes("12")


def test_load_in_flight_is_not_a_device_hit() -> None:
    """A page is not on the device, and not emitted, before its bytes are there."""
    s = plain(WINDOW, "fetch 12 window=2; heard")
    loaded = s.load("12")
    matched = s.cache.match(s.key("12"))
    assert (matched.prefix_pages, matched.device_pages) == (2, 0)
    assert matched.slots == Slots()
    assert matched.pending == (loaded.transfer_id,)
    assert s.see("12", FULL) == "~~"
    s.copies.perform(s.copies.open_orders[0].transfer_id)
    s.cache.poll()
    assert s.heard() == ""
    s.cache.flush()
    assert s.heard() == "stored GPU 1 2"
    matched = s.cache.match(s.key("12"))
    assert (matched.device_pages, matched.pending) == (2, ())


def test_load_holds_its_path_until_it_settles() -> None:
    """The data that a load reads or fills is locked until the load settles, and only then."""
    s = plain(BOTH, "fetch 123 window=3 state=1; load 123")
    assert s.refs("123", FULL, SWA, MAMBA) == "111 011 001"
    assert s.evict(8, 8, 2) == Counts()
    assert s.evict_host(16, 0, 4) == Counts()
    s.cache.flush()
    assert s.refs("123", FULL) == "000"
    assert s.cache.snapshot().holds == ()


def test_load_of_what_is_there_or_on_its_way_is_nothing() -> None:
    """Data on the device, or being loaded, is not loaded again."""
    s = plain(WINDOW)
    nothing = LoadedBack(LoadDecision.NOTHING_TO_LOAD)
    assert s.cache.load_back(Key(())) == nothing
    s.put("12")
    assert s.load("12") == nothing
    s.play("fetch 56 window=2; load 56")
    before = s.cache.snapshot()
    assert s.load("56") == nothing
    assert s.cache.snapshot() == before


def test_load_below_another_in_flight_brings_the_rest() -> None:
    """A load below a load in flight copies only the rest."""
    s = plain(FULL_ONLY, "fetch 123; load 1")
    assert s.load("123").loading == Counts(2)
    s.cache.flush()
    assert s.see("123", FULL) == "###"
    s.check_bytes("123")


def test_load_over_quota_is_not_done() -> None:
    """A load of more pages than the quota is not enqueued; one of exactly as many is."""
    s = plain(FULL_ONLY, "fetch 123")
    before = s.cache.snapshot()
    assert s.load("123", 2) == LoadedBack(LoadDecision.OVER_QUOTA)
    assert s.cache.snapshot() == before
    assert s.load("123", 3).decision is LoadDecision.ENQUEUED


def test_load_below_the_threshold_is_not_done() -> None:
    """A load of fewer pages than the threshold is not enqueued; one of exactly as many is."""
    s = plain(evolve(FULL_ONLY, load_back_threshold_pages=2), "fetch 123")
    before = s.cache.snapshot()
    below = LoadedBack(LoadDecision.BELOW_THRESHOLD)
    assert s.load("1") == below
    assert s.cache.snapshot() == before
    assert s.load("12").decision is LoadDecision.ENQUEUED


def test_load_of_window_data_has_no_threshold() -> None:
    """A load of window data alone is enqueued whatever the threshold."""
    s = plain(evolve(WINDOW, load_back_threshold_pages=2), "put 12; put 1234; flush; evict swa=1")
    loaded = s.load("12", quota=0)
    assert (loaded.decision, loaded.loading) == (LoadDecision.ENQUEUED, Counts(swa=2))
    s.cache.flush()
    s.check_bytes("12")


# Evictions for a load.


def test_load_makes_room_for_what_each_pool_lacks() -> None:
    """A load evicts from each pool exactly the slots that it lacks there."""
    s = plain(FULL_ONLY, "put 789; put 56; flush; fetch 1234")
    assert s.load("1234").evicted == Counts(3)
    assert (s.see("789", FULL), s.see("56", FULL)) == ("...", "##")
    assert s.hit("789") == 3


def test_load_for_want_of_window_slots_keeps_full_data() -> None:
    """No full data is evicted if only window slots are short."""
    s = plain(evolve(WINDOW, device_slots=Counts(16, 4)), "put 12; put 1234; flush")
    s.fetch("89", window=2)
    assert s.load("89").evicted == Counts(swa=2)
    assert s.see("1234", FULL) == "####"


def test_load_never_evicts_its_own_path() -> None:
    """A load does not evict pages of its own path."""
    s = plain(evolve(FULL_ONLY, device_slots=Counts(4)), "put 12; put 89 start=0; flush")
    s.play("fetch 1234; hit 89")
    loaded = s.load("1234")
    assert (loaded.decision, loaded.evicted) == (LoadDecision.ENQUEUED, Counts(2))
    assert (s.see("1234", FULL), s.see("89", FULL)) == ("##~~", "..")


def test_load_without_room_leaves_only_what_it_evicted() -> None:
    """A load without enough free slots keeps no lock, slot or copy, and reports its evictions."""
    s = plain(evolve(FULL_ONLY, device_slots=Counts(5)), "put 7; flush")
    taken = s.cache.allocate(Counts(2))
    s.fetch("1234")
    assert s.load("1234") == LoadedBack(LoadDecision.NO_ROOM, evicted=Counts(1))
    after = s.cache.snapshot()
    assert (after.holds, after.transfers, s.copies.open_orders) == ((), (), ())
    assert len(after.pools[FULL, GPU].free) == 3
    assert s.refs("1234", FULL) == "0000"
    s.cache.free(taken)
    assert s.load("1234").decision is LoadDecision.ENQUEUED


def test_load_under_write_back_copies_what_makes_room() -> None:
    """Under write_back data that is evicted for a load is copied to the host."""
    s = plain(evolve(FULL_ONLY, write_policy="write_back", device_slots=Counts(2)), "put 12")
    s.fetch("89")
    assert s.load("89").evicted == Counts(2)
    s.cache.flush()
    assert s.see("12", FULL, CPU) == "##"
    s.check_bytes("89")
    s.play("load 12; flush")
    s.check_bytes("12")
