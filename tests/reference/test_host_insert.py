"""Host insert on the plain cache: where fetched pages are placed, and when they are dropped."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import HostInserted, HostPayload
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Key
from scenes import Plain, plain, refused

FULL_ONLY = CacheConfig(
    device_slots=Counts(16), host_slots=Counts(16), write_policy="write_through_selective"
)
"""A prompt that was inserted once is on the device only."""
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(16, 16), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4), host_slots=Counts(16, 16, 4))


def load(s: Plain, *prompts: str) -> None:
    """Load prompts back, so that their bytes can be read."""
    for prompt in prompts:
        s.load(prompt)
        s.cache.flush()
        assert s.cache.match(s.key(prompt)).device_pages == len(prompt)
        s.check_bytes(prompt)


def test_host_insert_of_a_new_prompt_places_and_emits_it() -> None:
    """Fetched pages can be matched, have their bytes, and have store events."""
    s = plain(BOTH, "heard")
    assert s.fetch("1234", window=2, state=True) == HostInserted(4, 0, 0, 0)
    assert s.heard() == "stored CPU 1 2 3 4"
    assert s.see("1234", FULL) == "...."
    assert s.see("1234", SWA, MAMBA, CPU) == "..## ...#"
    load(s, "1234")


def test_host_insert_below_what_is_there_adds_the_rest() -> None:
    """Only pages that the host lacks are placed."""
    s = plain(FULL_ONLY, "fetch 12; heard")
    assert s.fetch("123") == HostInserted(1, 0, 2, 0)
    assert s.fetch("129", start=1) == HostInserted(1, 0, 1, 0)
    assert s.heard() == "stored CPU 3 9"
    load(s, "123")
    load(s, "129")


def test_host_insert_refills_what_is_on_the_device_only() -> None:
    """A node on the device only gets a host copy from the fetched bytes, with store events."""
    s = plain(WINDOW, "put 1234 window=2; heard")
    assert s.fetch("12345", window=3) == HostInserted(1, 4, 0, 0)
    assert s.see("12345", FULL, SWA, CPU) == "##### ..###"
    assert s.heard() == "stored CPU 1 2 3 4 5"
    s.evict(full=4)
    load(s, "12345")


def test_host_insert_drops_what_is_behind_a_gap() -> None:
    """Pages below a node without a host copy are dropped."""
    s = plain(FULL_ONLY, "put 123; hit 12")
    assert s.fetch("1234", start=2) == HostInserted(0, 0, 0, 2)
    assert s.fetch("1234", start=1) == HostInserted(0, 0, 0, 3)
    assert s.see("1234", FULL, CPU) == "...."
    assert s.fetch("1234", start=0) == HostInserted(1, 3, 0, 0)


def test_host_insert_below_a_copy_in_flight_drops_all() -> None:
    """Pages below a host copy in flight are dropped."""
    s = plain(evolve(FULL_ONLY, write_policy="write_through"))
    (transfer_id,) = s.back_up("12")
    assert s.fetch("123") == HostInserted(0, 0, 0, 3)
    s.end(failed=transfer_id)
    assert s.see("123", FULL, CPU) == "..."


def test_host_insert_under_write_back_may_hang_below_what_is_not_backed() -> None:
    """Under write_back pages are placed below a node without a host copy."""
    s = plain(evolve(FULL_ONLY, write_policy="write_back"), "put 123")
    assert s.fetch("1234", start=2) == HostInserted(1, 1, 0, 0)
    assert s.ends("1234") == [2, 3, 4]
    assert s.see("1234", FULL, CPU) == "..##"
    load(s, "1234")


def test_host_insert_without_room_places_what_fits() -> None:
    """As many pages are placed as have free slots, and the mamba state only at the very end."""
    s = plain(evolve(BOTH, host_slots=Counts(3, 16, 4)))
    assert s.fetch("12345", window=2, state=True) == HostInserted(3, 0, 0, 2)
    assert s.see("12345", FULL, SWA, MAMBA, CPU) == "###.. ..... ....."


def test_host_insert_makes_room_but_not_from_its_own_path() -> None:
    """Host slots for fetched pages are freed by evicting other prompts, not their own path."""
    s = plain(evolve(FULL_ONLY, host_slots=Counts(4)), "fetch 12; fetch 89")
    assert s.fetch("1234") == HostInserted(2, 0, 2, 0)
    assert s.hit("89") == 0
    assert s.fetch("12345") == HostInserted(0, 0, 4, 1)
    assert s.hit("1234") == 4


def test_host_insert_of_a_refill_without_room_drops_the_rest() -> None:
    """Pages below a node that found no free host slots are dropped."""
    s = plain(evolve(FULL_ONLY, host_slots=Counts(2)), "put 123; hit 1")
    assert s.fetch("1234") == HostInserted(0, 1, 0, 3)
    assert s.see("1234", FULL, CPU) == "#..."


def test_host_insert_window_data_is_placed_whole_or_not_at_all() -> None:
    """Window data is placed for the whole window, or for none of it."""
    s = plain(evolve(WINDOW, host_slots=Counts(16, 1)))
    assert s.fetch("123", window=2) == HostInserted(3, 0, 0, 0)
    assert s.see("123", SWA, CPU) == "..."


def test_host_insert_fills_a_window_that_is_there_in_part() -> None:
    """Only the window data that the host lacks is placed."""
    s = plain(WINDOW, "fetch 12 window=1; fetch 1234 start=2 window=0; fetch 1234 start=0 window=4")
    assert s.see("1234", SWA, CPU) == "####"
    load(s, "1234")


def test_host_insert_window_data_is_more_recent_than_all_before() -> None:
    """Fetched window data is evicted after window data that was used earlier."""
    s = plain(WINDOW, "fetch 12; fetch 5678 window=2")
    assert s.hit("5678") == 4
    s.play("fetch 12 window=2; evict_host swa=1")
    assert s.hit("12") == 2
    assert s.hit("5678") == 0


def test_host_insert_window_data_spares_its_own_window() -> None:
    """Placing window data does not evict window data of the same window."""
    s = plain(evolve(WINDOW, window_tokens=4, host_slots=Counts(16, 4)), "fetch 12 window=2")
    s.play("fetch 89 window=2; fetch 1234 window=4")
    assert s.see("1234", SWA, CPU) == "####"
    assert s.hit("1234") == 4


def test_host_insert_leaves_no_lock() -> None:
    """No lock of a host insert is left after it."""
    s = plain(BOTH, "fetch 12 window=2 state=1; fetch 123 window=2 state=1")
    assert s.cache.snapshot().holds == ()
    assert s.evict_host(16, 16, 4) == Counts(3, 3, 2)


def test_host_insert_inside_a_node_cuts_it() -> None:
    """A branch inside a node is placed, and the node keeps its other pages."""
    s = plain(FULL_ONLY, "fetch 1234")
    assert s.fetch("129") == HostInserted(1, 0, 2, 0)
    assert s.ends("1234") == [2, 4]
    load(s, "129")
    load(s, "1234")


def test_host_insert_changes_no_device_data() -> None:
    """A refill changes no device slots, hits or locks."""
    s = plain(WINDOW, "put 12")
    receipt = s.lock("12")
    before = s.cache.snapshot()
    s.fetch("12", window=2)
    after = s.cache.snapshot()
    assert after.usage == before.usage
    assert after.holds == before.holds
    for component in (FULL, SWA):
        assert after.pools[component, GPU] == before.pools[component, GPU]
    assert {node.hit_count for node in after.below_root()} == {1}
    s.cache.unlock(receipt)


def test_host_insert_of_the_empty_key_changes_nothing() -> None:
    """A host insert of the empty key changes nothing."""
    s = plain(BOTH)
    before = s.cache.snapshot()
    assert s.cache.insert_host(Key(()), 0, HostPayload()) == HostInserted(0, 0, 0, 0)
    assert s.cache.snapshot() == before


# Refusals.


def test_host_insert_of_a_component_that_is_not_there_is_refused() -> None:
    """A payload for a component that the model lacks is refused."""
    s = plain(FULL_ONLY)
    key, data = s.key("1"), b"8 bytes."
    for payload in (HostPayload((data,), (data,)), HostPayload((data,), (), (data,))):
        with refused(s.cache, BadArgument, match="component"):
            s.cache.insert_host(key, 0, payload)
