"""Insert on the plain cache: which slots the tree adopts or frees, and which nodes get hits."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import PrefixNotCached, SlotNotHeld, TransferPending
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Counts, Key, Slots
from scenes import Plain, plain, refused

PLAIN = CacheConfig(device_slots=Counts(16))
WINDOW = CacheConfig(window_tokens=2, device_slots=Counts(16, 16))
BOTH = CacheConfig(window_tokens=2, mamba=True, device_slots=Counts(16, 16, 4))
STATES = CacheConfig(mamba=True, device_slots=Counts(16, mamba=4))
HOST = evolve(WINDOW, host_slots=Counts(16, 16), write_policy="write_through")


def hits(s: Plain, prompt: str) -> list[int]:
    """Return the hits of the nodes on a prompt's path."""
    return [node.hit_count for node in s.nodes(prompt)]


def test_insert_adopts_what_is_new() -> None:
    """The tree adopts the slots of new pages; the request no longer holds them."""
    s = plain(BOTH)
    slots = s.compute("123")
    inserted = s.cache.insert(s.key("123"), 0, slots)
    assert inserted == Inserted(0, adopted=Counts(3, 3, 1), freed=Counts())
    assert s.slots("123") == list(slots.full)
    assert s.slots("123", SWA) == list(slots.swa)
    assert s.slots("123", MAMBA) == [None, None, *slots.mamba]
    with refused(s.cache, SlotNotHeld):
        s.cache.free(slots)


def test_insert_frees_duplicates() -> None:
    """If two requests computed the same prompt, the slots of the second one are freed."""
    s = plain(BOTH)
    key = s.key("123")
    first, second = s.compute(key), s.compute(key)
    s.cache.insert(key, 0, first)
    assert s.cache.insert(key, 0, second) == Inserted(3, adopted=Counts(), freed=Counts(3, 3, 1))
    assert s.slots("123") == list(first.full)
    assert s.free_slots()[FULL] == 13
    s.check_bytes("123")


def test_insert_of_a_branch_frees_the_shared_part_only() -> None:
    """Slots of the shared part are freed, and those of the branch are adopted."""
    s = plain(PLAIN, "put 1234")
    slots = s.compute("125")
    assert s.cache.insert(s.key("125"), 0, slots) == Inserted(2, adopted=Counts(1), freed=Counts(2))
    assert s.ends("1234") == [2, 4]
    s.check_bytes("125", "1234")


def test_insert_keeps_states_at_several_pages() -> None:
    """The path is cut where states end, and a prompt that parts from it finds the deepest."""
    s = plain(STATES)
    key, slots = s.key("123456"), s.cache.allocate(Counts(6, mamba=3))
    inserted = s.cache.insert(key, 0, slots, state_pages=(2, 4, 6))
    assert inserted == Inserted(0, adopted=Counts(6, mamba=3), freed=Counts())
    assert s.slots("123456", MAMBA) == [
        *(None, slots.mamba[0]),
        *(None, slots.mamba[1]),
        *(None, slots.mamba[2]),
    ]
    assert [s.hit(each) for each in ("12378", "123478", "12345", "123456")] == [2, 4, 4, 6]
    s.cache.evict(Counts(mamba=1))
    assert s.see("123456", MAMBA) == "...#.#"


def test_insert_frees_states_where_there_are_some() -> None:
    """A page keeps the state that it has, and one that has left the device comes back."""
    s = plain(STATES, "put 1234")
    key, slots = s.key("1234"), s.cache.allocate(Counts(mamba=2))
    assert s.cache.insert(key, 4, slots, state_pages=(3, 4)) == Inserted(
        4, adopted=Counts(mamba=1), freed=Counts(mamba=1)
    )
    assert s.see("1234", MAMBA) == "..##"


def test_insert_of_the_empty_key_changes_nothing() -> None:
    """An insert of the empty key changes nothing."""
    s = plain(BOTH, "put 12")
    before = s.cache.snapshot()
    assert s.cache.insert(Key(()), 0, Slots()) == Inserted(0, Counts(), Counts())
    assert s.cache.snapshot() == before


def test_insert_without_window_data_makes_a_tombstone_leaf() -> None:
    """A prompt without window data becomes a leaf that has full data only."""
    s = plain(WINDOW, "put 123 window=0")
    assert (s.see("123", FULL), s.see("123", SWA)) == ("###", "...")
    assert s.hit("123") == 0


def test_insert_cuts_a_leaf_at_its_data_and_at_its_window() -> None:
    """A leaf is cut where its window data begins and where its window begins."""
    s = plain(WINDOW, "put 012345 window=3")
    assert s.see("012345", SWA) == "...###"
    assert s.ends("012345") == [3, 4, 6]


@pytest.mark.parametrize(
    ("page_size", "window_tokens", "ends"), [(4, 1, [2, 3]), (4, 4, [2, 3]), (4, 5, [1, 3])]
)
def test_insert_cuts_a_leaf_at_the_pages_that_cover_the_window(
    page_size: int, window_tokens: int, ends: list[int]
) -> None:
    """The last node of a leaf has the fewest whole pages that cover the window."""
    s = plain(CacheConfig(page_size=page_size, window_tokens=window_tokens))
    s.put(range(3 * page_size))
    assert s.ends(range(3 * page_size)) == ends


def test_insert_heals_a_tombstone_and_keeps_its_full_slots() -> None:
    """A healed page keeps its full slot, which is paired with the new window slot."""
    s = plain(WINDOW, "put 12; put 1234; evict swa=2")
    full = s.slots("12")
    assert s.put("12", start=0) == Inserted(2, adopted=Counts(swa=2), freed=Counts(full=2))
    assert s.slots("12") == full
    mapping = s.cache.snapshot().swa_of_full
    assert [mapping[slot] for slot in full if slot is not None] == s.slots("12", SWA)
    assert s.hit("12") == 2
    s.check_bytes("12")


def test_insert_heals_a_locked_tombstone_in_place() -> None:
    """A locked tombstone is healed and keeps its full slots."""
    s = plain(WINDOW, "put 12; put 1234; evict swa=2")
    receipt = s.lock("12")
    full = s.slots("12")
    s.put("1234", start=0)
    assert s.slots("12") == full
    assert s.see("1234", SWA) == "####"
    assert s.evict(swa=16) == Counts(2, 2)
    s.check_bytes("12")
    s.cache.unlock(receipt)


def test_insert_heals_only_where_it_has_window_data() -> None:
    """Only the part of a tombstone with incoming window data is healed."""
    s = plain(WINDOW, "put 1234 window=0")
    key = s.key("1234")
    s.cache.insert(key, 1, s.compute(key, start=1, window=2))
    assert s.see("1234", SWA) == "..##"
    assert s.ends("1234") == [2, 4]
    s.check_bytes("1234")


def test_insert_without_window_data_leaves_what_is_there() -> None:
    """An insert without window data leaves the window data of the tree as it is."""
    s = plain(WINDOW, "put 12")
    assert s.put("12", start=0, window=0) == Inserted(2, adopted=Counts(), freed=Counts(full=2))
    assert s.see("12", SWA) == "##"


def test_insert_attaches_a_state_where_it_is_missing() -> None:
    """A node without a mamba state adopts the incoming one; otherwise it is freed."""
    s = plain(BOTH, "put 1234")
    assert s.see("1234", MAMBA) == "...#"
    assert s.put("12", start=0) == Inserted(2, adopted=Counts(mamba=1), freed=Counts(2, 2))
    assert s.see("1234", MAMBA) == ".#.#"
    assert s.put("12", start=0).freed == Counts(2, 2, 1)
    s.check_bytes("12")


# Data on the host only.


def test_insert_brings_demoted_pages_back_and_says_so() -> None:
    """Pages that an insert brings back to the device have store events and keep their host copy."""
    s = plain(HOST, "put 12; flush; evict full=2; heard")
    slots = s.compute("12")
    inserted = s.cache.insert(s.key("12"), 0, slots)
    assert inserted == Inserted(0, adopted=Counts(2, 2), freed=Counts())
    assert s.heard() == "stored GPU 1 2"
    assert s.slots("12") == list(slots.full)
    assert s.see("12", FULL, CPU) == "##"
    s.check_bytes("12")


def test_insert_of_a_part_of_demoted_pages_brings_back_that_part() -> None:
    """Only the inserted pages of a demoted node come back to the device."""
    s = plain(evolve(HOST, window_tokens=None), "fetch 1234; put 129")
    assert s.see("1234", FULL) == "##.."
    assert s.see("1234", FULL, CPU) == "####"


def test_insert_across_a_load_in_flight_is_refused() -> None:
    """An insert over pages that a load has yet to fill is refused."""
    s = plain(HOST, "put 12; flush; evict full=2")
    slots = s.compute("123")
    loaded = s.load("12")
    with refused(s.cache, TransferPending) as info:
        s.cache.insert(s.key("123"), 0, slots)
    assert info.value.transfer_id == loaded.transfer_id
    s.cache.flush()
    assert s.cache.insert(s.key("123"), 0, slots).freed == Counts(2, 2)


# Hits.


def test_insert_counts_a_hit_on_every_node_of_its_path() -> None:
    """Each node on the path gets one hit, and no other node does."""
    s = plain(WINDOW, "put 1234 window=2")
    assert hits(s, "1234") == [1, 1]
    s.put("129")
    assert hits(s, "129") == [2, 1]
    assert hits(s, "1234") == [2, 1]


def test_insert_counts_a_node_once_a_request() -> None:
    """A later insert of the same request counts no hit on pages that were counted."""
    s = plain(PLAIN, "put 12; put 123 counted=2; put 1234 counted=3")
    assert hits(s, "1234") == [1, 1, 1]
    s.put("1234")
    assert hits(s, "1234") == [2, 2, 2]


def test_insert_raises_the_priority_of_its_path() -> None:
    """Nodes on the path get at least the insert's priority; no priority is lowered."""
    s = plain(PLAIN, "put 12 priority=1; put 123 priority=3; put 1234 priority=2")
    assert [s.nodes([1, 2, 3, 4][:end])[-1].priority for end in (2, 3, 4)] == [3, 3, 2]


def test_insert_makes_its_path_and_its_window_recent() -> None:
    """The inserted path and its window are evicted after older data."""
    s = plain(WINDOW, "put 12; put 34; put 12 start=0; evict swa=1")
    assert (s.see("12", SWA), s.see("34", SWA)) == ("##", "..")


# Backups.


def test_insert_under_selective_backs_up_at_the_second_hit() -> None:
    """Under write_through_selective a prompt is copied at its second hit, not at its first."""
    s = plain(evolve(HOST, write_policy="write_through_selective"))
    assert s.put("12").backups == ()
    assert s.put("123", counted=2).backups == ()
    assert s.see("123", FULL, CPU) == "..."
    assert len(s.put("12").backups) == 1
    assert s.see("123", FULL, CPU) == "~~."


def test_insert_says_how_many_pages_the_host_had_no_room_for() -> None:
    """The outcome counts pages that reached the threshold and found no free host slots."""
    s = plain(evolve(HOST, host_slots=Counts(4, 16)))
    assert s.put("1234", window=2).backup_declined_pages == 0
    inserted = s.put("123456")
    assert (inserted.backups, inserted.backup_declined_pages) == ((), 2)
    assert s.see("123456", FULL, CPU) == "~~~~.."


# Refusals.


def test_insert_after_pages_that_are_not_there_is_refused() -> None:
    """An insert after pages that are not on the device is refused."""
    s = plain(evolve(HOST, window_tokens=None), "put 12")
    key = s.key("123")
    slots = s.compute(key.prefix(1))
    other = s.compute(key.prefix(1))
    with refused(s.cache, PrefixNotCached):
        s.cache.insert(s.key("193"), 2, slots)
    s.play("flush; evict full=2")
    with refused(s.cache, PrefixNotCached) as info:
        s.cache.insert(key, 2, other)
    assert (info.value.asked_pages, info.value.cached_pages) == (2, 0)
