"""Host insert on the plain cache: where fetched pages are placed, and when they are dropped."""

from __future__ import annotations

from attrs import evolve

from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.operations import HostInserted, HostPayload
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Key
from scenes import (
    assert_right_bytes,
    cached_pages,
    fetch,
    heard,
    lock,
    new_cache,
    node_ends,
    prompt,
    put,
    refused,
    shown,
)

FULL_ONLY = CacheConfig(
    device_slots=Counts(16), host_slots=Counts(16), write_policy="write_through_selective"
)
"""A prompt that was inserted once is on the device only."""
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(16, 16), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4), host_slots=Counts(16, 16, 4))


def load(cache: ReferenceCache, tokens: list[int]) -> None:
    """Load a prompt back, so that its bytes can be read."""
    cache.load_back(prompt(cache, tokens))
    cache.flush()
    assert cache.match(prompt(cache, tokens)).device_pages == len(tokens)
    assert_right_bytes(cache, tokens)


def test_host_insert_of_a_new_prompt_places_and_emits_it() -> None:
    """Fetched pages can be matched, have their bytes, and have store events."""
    cache, _ = new_cache(BOTH)
    cache.take_events()
    inserted = fetch(cache, [1, 2, 3, 4], window_pages=2, state=True)
    assert inserted == HostInserted(4, 0, 0, 0)
    assert heard(cache, [1, 2, 3, 4]) == [("stored", CPU, token) for token in (1, 2, 3, 4)]
    assert shown(cache, [1, 2, 3, 4]) == "...."
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "..##"
    assert shown(cache, [1, 2, 3, 4], MAMBA, CPU) == "...#"
    load(cache, [1, 2, 3, 4])


def test_host_insert_below_what_is_there_adds_the_rest() -> None:
    """Only pages that the host lacks are placed."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2])
    cache.take_events()
    assert fetch(cache, [1, 2, 3]) == HostInserted(1, 0, 2, 0)
    assert fetch(cache, [1, 2, 9], start_pages=1) == HostInserted(1, 0, 1, 0)
    assert heard(cache, [1, 2, 3], [1, 2, 9]) == [("stored", CPU, 3), ("stored", CPU, 9)]
    load(cache, [1, 2, 3])
    load(cache, [1, 2, 9])


def test_host_insert_refills_what_is_on_the_device_only() -> None:
    """A node on the device only gets a host copy from the fetched bytes, with store events."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4], window_pages=2)
    cache.take_events()
    assert fetch(cache, [1, 2, 3, 4, 5], window_pages=3) == HostInserted(1, 4, 0, 0)
    assert shown(cache, [1, 2, 3, 4, 5], FULL, CPU) == "#####"
    assert shown(cache, [1, 2, 3, 4, 5], SWA, CPU) == "..###"
    assert heard(cache, [1, 2, 3, 4, 5]) == [("stored", CPU, at) for at in (1, 2, 3, 4, 5)]
    cache.evict(Counts(full=4))
    load(cache, [1, 2, 3, 4, 5])


def test_host_insert_drops_what_is_behind_a_gap() -> None:
    """Pages below a node without a host copy are dropped."""
    cache, _ = new_cache(FULL_ONLY)
    put(cache, [1, 2, 3])
    cache.match(prompt(cache, [1, 2]))
    assert fetch(cache, [1, 2, 3, 4], start_pages=2) == HostInserted(0, 0, 0, 2)
    assert fetch(cache, [1, 2, 3, 4], start_pages=1) == HostInserted(0, 0, 0, 3)
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "...."
    assert fetch(cache, [1, 2, 3, 4], start_pages=0) == HostInserted(1, 3, 0, 0)


def test_host_insert_below_a_copy_in_flight_drops_all() -> None:
    """Pages below a host copy in flight are dropped."""
    cache, engine = new_cache(evolve(FULL_ONLY, write_policy="write_through"))
    (transfer_id,) = put(cache, [1, 2]).backups
    assert fetch(cache, [1, 2, 3]) == HostInserted(0, 0, 0, 3)
    engine.fail(transfer_id)
    cache.poll()
    assert shown(cache, [1, 2, 3], FULL, CPU) == "..."


def test_host_insert_under_write_back_may_hang_below_what_is_not_backed() -> None:
    """Under write_back pages are placed below a node without a host copy."""
    cache, _ = new_cache(evolve(FULL_ONLY, write_policy="write_back"))
    put(cache, [1, 2, 3])
    assert fetch(cache, [1, 2, 3, 4], start_pages=2) == HostInserted(1, 1, 0, 0)
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 3, 4]
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "..##"
    load(cache, [1, 2, 3, 4])


def test_host_insert_without_room_places_what_fits() -> None:
    """As many pages are placed as have free slots, and the mamba state only at the very end."""
    cache, _ = new_cache(evolve(BOTH, host_slots=Counts(3, 16, 4)))
    inserted = fetch(cache, [1, 2, 3, 4, 5], window_pages=2, state=True)
    assert inserted == HostInserted(3, 0, 0, 2)
    assert shown(cache, [1, 2, 3, 4, 5], FULL, CPU) == "###.."
    assert shown(cache, [1, 2, 3, 4, 5], SWA, CPU) == "....."
    assert shown(cache, [1, 2, 3, 4, 5], MAMBA, CPU) == "....."


def test_host_insert_makes_room_but_not_from_its_own_path() -> None:
    """Host slots for fetched pages are freed by evicting other prompts, not their own path."""
    cache, _ = new_cache(evolve(FULL_ONLY, host_slots=Counts(4)))
    fetch(cache, [1, 2])
    fetch(cache, [8, 9])
    assert fetch(cache, [1, 2, 3, 4]) == HostInserted(2, 0, 2, 0)
    assert cached_pages(cache, [8, 9]) == 0
    assert fetch(cache, [1, 2, 3, 4, 5]) == HostInserted(0, 0, 4, 1)
    assert cached_pages(cache, [1, 2, 3, 4]) == 4


def test_host_insert_of_a_refill_without_room_drops_the_rest() -> None:
    """Pages below a node that found no free host slots are dropped."""
    cache, _ = new_cache(evolve(FULL_ONLY, host_slots=Counts(2)))
    put(cache, [1, 2, 3])
    cache.match(prompt(cache, [1]))
    assert fetch(cache, [1, 2, 3, 4]) == HostInserted(0, 1, 0, 3)
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "#..."


def test_host_insert_window_data_is_placed_whole_or_not_at_all() -> None:
    """Window data is placed for the whole window, or for none of it."""
    cache, _ = new_cache(evolve(WINDOW, host_slots=Counts(16, 1)))
    assert fetch(cache, [1, 2, 3], window_pages=2) == HostInserted(3, 0, 0, 0)
    assert shown(cache, [1, 2, 3], SWA, CPU) == "..."


def test_host_insert_fills_a_window_that_is_there_in_part() -> None:
    """Only the window data that the host lacks is placed."""
    cache, _ = new_cache(WINDOW)
    fetch(cache, [1, 2], window_pages=1)
    fetch(cache, [1, 2, 3, 4], start_pages=2, window_pages=0)
    fetch(cache, [1, 2, 3, 4], start_pages=0, window_pages=4)
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "####"
    load(cache, [1, 2, 3, 4])


def test_host_insert_window_data_is_more_recent_than_all_before() -> None:
    """Fetched window data is evicted after window data that was used earlier."""
    cache, _ = new_cache(WINDOW)
    fetch(cache, [1, 2])
    fetch(cache, [5, 6, 7, 8], window_pages=2)
    assert cached_pages(cache, [5, 6, 7, 8]) == 4
    fetch(cache, [1, 2], window_pages=2)
    cache.evict_host(Counts(swa=1))
    assert cached_pages(cache, [1, 2]) == 2
    assert cached_pages(cache, [5, 6, 7, 8]) == 0


def test_host_insert_window_data_spares_its_own_window() -> None:
    """Placing window data does not evict window data of the same window."""
    cache, _ = new_cache(evolve(WINDOW, window_tokens=4, host_slots=Counts(16, 4)))
    fetch(cache, [1, 2], window_pages=2)
    fetch(cache, [8, 9], window_pages=2)
    fetch(cache, [1, 2, 3, 4], window_pages=4)
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "####"
    assert cached_pages(cache, [1, 2, 3, 4]) == 4


def test_host_insert_leaves_no_lock() -> None:
    """No lock of a host insert is left after it."""
    cache, _ = new_cache(BOTH)
    fetch(cache, [1, 2], window_pages=2, state=True)
    fetch(cache, [1, 2, 3], window_pages=2, state=True)
    assert cache.snapshot().holds == ()
    assert cache.evict_host(Counts(16, 16, 4)).freed == Counts(3, 3, 2)


def test_host_insert_inside_a_node_cuts_it() -> None:
    """A branch inside a node is placed, and the node keeps its other pages."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2, 3, 4])
    assert fetch(cache, [1, 2, 9]) == HostInserted(1, 0, 2, 0)
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 4]
    load(cache, [1, 2, 9])
    load(cache, [1, 2, 3, 4])


def test_host_insert_changes_no_device_data() -> None:
    """A refill changes no device slots, hits or locks."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    receipt = lock(cache, [1, 2])
    before = cache.snapshot()
    fetch(cache, [1, 2], window_pages=2)
    after = cache.snapshot()
    assert after.usage == before.usage
    assert after.holds == before.holds
    for component in (FULL, SWA):
        assert after.pools[component, GPU] == before.pools[component, GPU]
    assert {node.hit_count for node in after.below_root()} == {1}
    cache.unlock(receipt)


def test_host_insert_of_the_empty_key_changes_nothing() -> None:
    """A host insert of the empty key changes nothing."""
    cache, _ = new_cache(BOTH)
    before = cache.snapshot()
    assert cache.insert_host(Key(()), 0, HostPayload()) == HostInserted(0, 0, 0, 0)
    assert cache.snapshot() == before


# Refusals.


def test_host_insert_without_a_host_tier_is_refused() -> None:
    """A cache without a host tier refuses a host insert."""
    cache = ReferenceCache(CacheConfig(), ManualEngine())
    with refused(cache, BadArgument, match="host tier"):
        fetch(cache, [1, 2])


def test_host_insert_of_a_payload_that_does_not_fit_is_refused() -> None:
    """Too few pages, too many, or pages of another size are refused."""
    cache, _ = new_cache(BOTH)
    key, data = prompt(cache, [1, 2, 3]), b"8 bytes."
    for start, payload in (
        (0, HostPayload((data,) * 2)),
        (1, HostPayload((data,) * 3)),
        (-1, HostPayload((data,) * 4)),
        (4, HostPayload()),
        (0, HostPayload((data,) * 3, (data,) * 4)),
        (0, HostPayload((data,) * 3, (), (data,) * 2)),
        (0, HostPayload((data, data, b"short"))),
        (0, HostPayload((data,) * 3, (b"short",))),
        (0, HostPayload((data,) * 3, (), (b"longer than a slot",))),
    ):
        with refused(cache, BadArgument):
            cache.insert_host(key, start, payload)
    with refused(cache, BadArgument, match="lacks"):
        cache.insert_host(Key(()), 0, HostPayload(mamba=(data,)))


def test_host_insert_of_a_component_that_is_not_there_is_refused() -> None:
    """A payload for a component that the model lacks is refused."""
    cache, _ = new_cache(FULL_ONLY)
    key, data = prompt(cache, [1]), b"8 bytes."
    for payload in (HostPayload((data,), (data,)), HostPayload((data,), (), (data,))):
        with refused(cache, BadArgument, match="component"):
            cache.insert_host(key, 0, payload)


def test_host_insert_after_pages_that_are_not_there_is_refused() -> None:
    """A host insert after pages that are not in the tree is refused."""
    cache, _ = new_cache(FULL_ONLY)
    fetch(cache, [1, 2])
    with refused(cache, PrefixNotCached) as info:
        fetch(cache, [1, 2, 3, 4], start_pages=3)
    assert (info.value.asked_pages, info.value.cached_pages) == (3, 2)
