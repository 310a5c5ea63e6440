"""Insert on the plain cache: which slots the tree adopts or frees, and which nodes get hits."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, PrefixNotCached, SlotNotHeld, TransferPending
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Key, Slots
from scenes import (
    assert_right_bytes,
    cached_pages,
    compute,
    fetch,
    free_slots,
    heard,
    lock,
    new_cache,
    node_ends,
    node_of,
    prompt,
    put,
    refused,
    shown,
    slots_of,
)

PLAIN = CacheConfig(device_slots=Counts(16))
WINDOW = CacheConfig(window_tokens=2, device_slots=Counts(16, 16))
BOTH = CacheConfig(window_tokens=2, mamba=True, device_slots=Counts(16, 16, 4))
HOST = evolve(WINDOW, host_slots=Counts(16, 16), write_policy="write_through")


def hits(cache: ReferenceCache, tokens: list[int]) -> list[int]:
    """Return the hits of the nodes on a prompt's path."""
    return [node_of(cache, tokens[:end]).hit_count for end in node_ends(cache, tokens)]


def test_insert_adopts_what_is_new() -> None:
    """The tree adopts the slots of new pages; the request no longer holds them."""
    cache, _ = new_cache(BOTH)
    slots = compute(cache, prompt(cache, [1, 2, 3]))
    inserted = cache.insert(prompt(cache, [1, 2, 3]), 0, slots)
    assert inserted == Inserted(0, adopted=Counts(3, 3, 1), freed=Counts())
    assert slots_of(cache, [1, 2, 3]) == list(slots.full)
    assert slots_of(cache, [1, 2, 3], SWA) == list(slots.swa)
    assert slots_of(cache, [1, 2, 3], MAMBA) == [None, None, *slots.mamba]
    with refused(cache, SlotNotHeld):
        cache.free(slots)


def test_insert_frees_duplicates() -> None:
    """If two requests computed the same prompt, the slots of the second one are freed."""
    cache, _ = new_cache(BOTH)
    key = prompt(cache, [1, 2, 3])
    first, second = compute(cache, key), compute(cache, key)
    cache.insert(key, 0, first)
    inserted = cache.insert(key, 0, second)
    assert inserted == Inserted(3, adopted=Counts(), freed=Counts(3, 3, 1))
    assert slots_of(cache, [1, 2, 3]) == list(first.full)
    assert free_slots(cache, FULL) == 13
    assert_right_bytes(cache, [1, 2, 3])


def test_insert_of_a_branch_frees_the_shared_part_only() -> None:
    """Slots of the shared part are freed, and those of the branch are adopted."""
    cache, _ = new_cache(PLAIN)
    put(cache, [1, 2, 3, 4])
    slots = compute(cache, prompt(cache, [1, 2, 5]))
    inserted = cache.insert(prompt(cache, [1, 2, 5]), 0, slots)
    assert inserted == Inserted(2, adopted=Counts(1), freed=Counts(2))
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 4]
    assert_right_bytes(cache, [1, 2, 5])
    assert_right_bytes(cache, [1, 2, 3, 4])


def test_insert_of_the_empty_key_changes_nothing() -> None:
    """An insert of the empty key changes nothing."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    before = cache.snapshot()
    assert cache.insert(Key(()), 0, Slots()) == Inserted(0, Counts(), Counts())
    assert cache.snapshot() == before


def test_insert_without_window_data_makes_a_tombstone_leaf() -> None:
    """A prompt without window data becomes a leaf that has full data only."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3], window_pages=0)
    assert (shown(cache, [1, 2, 3]), shown(cache, [1, 2, 3], SWA)) == ("###", "...")
    assert cached_pages(cache, [1, 2, 3]) == 0


def test_insert_cuts_a_leaf_at_its_data_and_at_its_window() -> None:
    """A leaf is cut where its window data begins and where its window begins."""
    cache, _ = new_cache(WINDOW)
    put(cache, [0, 1, 2, 3, 4, 5], window_pages=3)
    assert shown(cache, [0, 1, 2, 3, 4, 5], SWA) == "...###"
    assert node_ends(cache, [0, 1, 2, 3, 4, 5]) == [3, 4, 6]


@pytest.mark.parametrize(
    ("page_size", "window_tokens", "ends"), [(4, 1, [2, 3]), (4, 4, [2, 3]), (4, 5, [1, 3])]
)
def test_insert_cuts_a_leaf_at_the_pages_that_cover_the_window(
    page_size: int, window_tokens: int, ends: list[int]
) -> None:
    """The last node of a leaf has the fewest whole pages that cover the window."""
    cache, _ = new_cache(CacheConfig(page_size=page_size, window_tokens=window_tokens))
    put(cache, range(3 * page_size))
    assert node_ends(cache, range(3 * page_size)) == ends


def test_insert_heals_a_tombstone_and_keeps_its_full_slots() -> None:
    """A healed page keeps its full slot, which is paired with the new window slot."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.evict(Counts(swa=2))
    full = slots_of(cache, [1, 2])
    inserted = put(cache, [1, 2], start_pages=0)
    assert inserted == Inserted(2, adopted=Counts(swa=2), freed=Counts(full=2))
    assert slots_of(cache, [1, 2]) == full
    mapping = cache.snapshot().swa_of_full
    assert [mapping[slot] for slot in full if slot is not None] == slots_of(cache, [1, 2], SWA)
    assert cached_pages(cache, [1, 2]) == 2
    assert_right_bytes(cache, [1, 2])


def test_insert_heals_a_locked_tombstone_in_place() -> None:
    """A locked tombstone is healed and keeps its full slots."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.evict(Counts(swa=2))
    receipt = lock(cache, [1, 2])
    full = slots_of(cache, [1, 2])
    put(cache, [1, 2, 3, 4], start_pages=0)
    assert slots_of(cache, [1, 2]) == full
    assert shown(cache, [1, 2, 3, 4], SWA) == "####"
    assert cache.evict(Counts(swa=16)).freed == Counts(2, 2)
    assert_right_bytes(cache, [1, 2])
    cache.unlock(receipt)


def test_insert_heals_only_where_it_has_window_data() -> None:
    """Only the part of a tombstone with incoming window data is healed."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4], window_pages=0)
    key = prompt(cache, [1, 2, 3, 4])
    cache.insert(key, 1, compute(cache, key, start_pages=1, window_pages=2))
    assert shown(cache, [1, 2, 3, 4], SWA) == "..##"
    assert node_ends(cache, [1, 2, 3, 4]) == [2, 4]
    assert_right_bytes(cache, [1, 2, 3, 4])


def test_insert_without_window_data_leaves_what_is_there() -> None:
    """An insert without window data leaves the window data of the tree as it is."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    inserted = put(cache, [1, 2], start_pages=0, window_pages=0)
    assert inserted == Inserted(2, adopted=Counts(), freed=Counts(full=2))
    assert shown(cache, [1, 2], SWA) == "##"


def test_insert_attaches_a_state_where_it_is_missing() -> None:
    """A node without a mamba state adopts the incoming one; otherwise it is freed."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2, 3, 4])
    assert shown(cache, [1, 2, 3, 4], MAMBA) == "...#"
    inserted = put(cache, [1, 2], start_pages=0)
    assert inserted == Inserted(2, adopted=Counts(mamba=1), freed=Counts(2, 2))
    assert shown(cache, [1, 2, 3, 4], MAMBA) == ".#.#"
    assert put(cache, [1, 2], start_pages=0).freed == Counts(2, 2, 1)
    assert_right_bytes(cache, [1, 2])


# Data on the host only.


def test_insert_brings_demoted_pages_back_and_says_so() -> None:
    """Pages that an insert brings back to the device have store events and keep their host copy."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(full=2))
    cache.take_events()
    slots = compute(cache, prompt(cache, [1, 2]))
    inserted = cache.insert(prompt(cache, [1, 2]), 0, slots)
    assert inserted == Inserted(0, adopted=Counts(2, 2), freed=Counts())
    assert heard(cache, [1, 2]) == [("stored", GPU, 1), ("stored", GPU, 2)]
    assert slots_of(cache, [1, 2]) == list(slots.full)
    assert shown(cache, [1, 2], FULL, CPU) == "##"
    assert_right_bytes(cache, [1, 2])


def test_insert_of_a_part_of_demoted_pages_brings_back_that_part() -> None:
    """Only the inserted pages of a demoted node come back to the device."""
    cache, _ = new_cache(evolve(HOST, window_tokens=None))
    fetch(cache, [1, 2, 3, 4])
    put(cache, [1, 2, 9])
    assert shown(cache, [1, 2, 3, 4]) == "##.."
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "####"


def test_insert_across_a_load_in_flight_is_refused() -> None:
    """An insert over pages that a load has yet to fill is refused."""
    cache, _ = new_cache(HOST)
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(full=2))
    slots = compute(cache, prompt(cache, [1, 2, 3]))
    loaded = cache.load_back(prompt(cache, [1, 2]))
    with refused(cache, TransferPending) as info:
        cache.insert(prompt(cache, [1, 2, 3]), 0, slots)
    assert info.value.transfer_id == loaded.transfer_id
    cache.flush()
    inserted = cache.insert(prompt(cache, [1, 2, 3]), 0, slots)
    assert inserted.freed == Counts(2, 2)


# Hits.


def test_insert_counts_a_hit_on_every_node_of_its_path() -> None:
    """Each node on the path gets one hit, and no other node does."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4], window_pages=2)
    assert hits(cache, [1, 2, 3, 4]) == [1, 1]
    put(cache, [1, 2, 9])
    assert hits(cache, [1, 2, 9]) == [2, 1]
    assert hits(cache, [1, 2, 3, 4]) == [2, 1]


def test_insert_counts_a_node_once_a_request() -> None:
    """A later insert of the same request counts no hit on pages that were counted."""
    cache, _ = new_cache(PLAIN)
    put(cache, [1, 2])
    put(cache, [1, 2, 3], counted_pages=2)
    put(cache, [1, 2, 3, 4], counted_pages=3)
    assert hits(cache, [1, 2, 3, 4]) == [1, 1, 1]
    put(cache, [1, 2, 3, 4])
    assert hits(cache, [1, 2, 3, 4]) == [2, 2, 2]


def test_insert_raises_the_priority_of_its_path() -> None:
    """Nodes on the path get at least the insert's priority; no priority is lowered."""
    cache, _ = new_cache(PLAIN)
    put(cache, [1, 2], priority=1)
    put(cache, [1, 2, 3], priority=3)
    put(cache, [1, 2, 3, 4], priority=2)
    path = [node_of(cache, [1, 2, 3, 4][:end]).priority for end in (2, 3, 4)]
    assert path == [3, 3, 2]


def test_insert_makes_its_path_and_its_window_recent() -> None:
    """The inserted path and its window are evicted after older data."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    put(cache, [3, 4])
    put(cache, [1, 2], start_pages=0)
    cache.evict(Counts(swa=1))
    assert (shown(cache, [1, 2], SWA), shown(cache, [3, 4], SWA)) == ("##", "..")


# Backups.


def test_insert_under_selective_backs_up_at_the_second_hit() -> None:
    """Under write_through_selective a prompt is copied at its second hit, not at its first."""
    cache, _ = new_cache(evolve(HOST, write_policy="write_through_selective"))
    assert put(cache, [1, 2]).backups == ()
    assert put(cache, [1, 2, 3], counted_pages=2).backups == ()
    assert shown(cache, [1, 2, 3], FULL, CPU) == "..."
    assert len(put(cache, [1, 2]).backups) == 1
    assert shown(cache, [1, 2, 3], FULL, CPU) == "~~."


def test_insert_says_how_many_pages_the_host_had_no_room_for() -> None:
    """The outcome counts pages that reached the threshold and found no free host slots."""
    cache, _ = new_cache(evolve(HOST, host_slots=Counts(4, 16)))
    assert put(cache, [1, 2, 3, 4], window_pages=2).backup_declined_pages == 0
    inserted = put(cache, [1, 2, 3, 4, 5, 6])
    assert (inserted.backups, inserted.backup_declined_pages) == ((), 2)
    assert shown(cache, [1, 2, 3, 4, 5, 6], FULL, CPU) == "~~~~.."


# Refusals.


def test_insert_of_slots_that_do_not_fit_the_key_is_refused() -> None:
    """Too few slots, too many, or slots from a page that the key lacks are refused."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    key = prompt(cache, [1, 2, 3, 4])
    slots = cache.allocate(Counts(4, 4, 2))
    full, swa, mamba = slots.full, slots.swa, slots.mamba[:1]
    for start, wrong in (
        (-1, slots),
        (5, Slots()),
        (0, Slots(full[1:], swa[1:], mamba)),
        (1, Slots(full, swa, mamba)),
        (0, slots),
    ):
        with refused(cache, BadArgument):
            cache.insert(key, start, wrong)
    with refused(cache, BadArgument, match="more slots than pages"):
        cache.insert(key, 4, Slots(swa=swa))
    with refused(cache, BadArgument, match="not empty"):
        cache.insert(Key(()), 0, Slots(mamba=mamba))
    for counted_pages in (-1, 5):
        with refused(cache, BadArgument, match="counted_pages"):
            cache.insert(key, 0, Slots(full, swa), counted_pages=counted_pages)


def test_insert_of_slots_that_are_not_held_is_refused() -> None:
    """Slots that are free, in the tree, or given twice are refused."""
    cache, _ = new_cache(PLAIN)
    put(cache, [1])
    key = prompt(cache, [7, 8])
    (mine,) = cache.allocate(Counts(1)).full
    in_tree = slots_of(cache, [1])[0] or 0
    for foreign in (in_tree, 15, 16, -1):
        with refused(cache, SlotNotHeld):
            cache.insert(key, 0, Slots(full=(mine, foreign)))
    with refused(cache, BadArgument, match="twice"):
        cache.insert(key, 0, Slots(full=(mine, mine)))
    with refused(cache, BadArgument, match="no component"):
        cache.insert(key.prefix(1), 0, Slots(full=(mine,), mamba=(0,)))
    with refused(cache, BadArgument, match="no component"):
        cache.insert(key.prefix(1), 0, Slots(full=(mine,), swa=(0,)))


def test_insert_of_window_slots_of_other_pages_is_refused() -> None:
    """Window slots that are not those paired with the full slots are refused."""
    cache, _ = new_cache(WINDOW)
    key = prompt(cache, [1, 2])
    slots = cache.allocate(Counts(2, 2))
    other = cache.allocate(Counts(2))
    for wrong in (
        Slots(slots.full, slots.swa[::-1]),
        Slots(slots.full, slots.swa[1:]),
        Slots(slots.full),
        Slots(other.full, slots.swa),
    ):
        with refused(cache, BadArgument, match="paired"):
            cache.insert(key, 0, wrong)


def test_insert_after_pages_that_are_not_there_is_refused() -> None:
    """An insert after pages that are not on the device is refused."""
    cache, _ = new_cache(evolve(HOST, window_tokens=None))
    put(cache, [1, 2])
    key = prompt(cache, [1, 2, 3])
    slots = compute(cache, key.prefix(1))
    other = compute(cache, key.prefix(1))
    with refused(cache, PrefixNotCached):
        cache.insert(prompt(cache, [1, 9, 3]), 2, slots)
    cache.flush()
    cache.evict(Counts(full=2))
    with refused(cache, PrefixNotCached) as info:
        cache.insert(key, 2, other)
    assert (info.value.asked_pages, info.value.cached_pages) == (2, 0)
