"""REC-3 and RES-11 on small scenes: the reference cache holds them, planted faults do not."""

from __future__ import annotations

import pytest
from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.lab.mutants.planted import host_copies, load, turns
from kvcanon.lab.variants.override import Plant
from kvcanon.lab.variants.variant import varied
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts
from planting import said, sound
from scenes import Scene, plain

PLAIN = CacheConfig(device_slots=Counts(8))
HOST = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
TIGHT = evolve(HOST, device_slots=Counts(4))
BACK = evolve(HOST, write_policy="write_back")
WINDOW = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=Counts(12, 6, 6),
    host_slots=Counts(12, 12, 6),
    write_policy="write_through",
)

EIGHT = "put 1; put 2; put 3; put 4; put 5; put 6; put 7; put 8"
FETCHED = "put 1; flush; evict full=1; fetch 567"
ON_BOTH = "put 1; evict full=1; load 1; flush"
MAKES_ROOM = "put 5; flush; evict full=1; put 1; put 2; put 3; put 4; flush"
"""A load of 5 needs one slot, and the oldest of several leaves has to go."""
WINDOW_MAKES_ROOM = "put 56; flush; evict full=2; put 12; put 1234; put 8; flush; lock 1234; lock 8"
"""A load of 56 takes window data from inside the tree, with a mamba state at its end."""


@frozen
class Planted:
    """Calls, a fault that they show, and the law that reports it."""

    script: str
    plant: Plant
    config: CacheConfig
    law_id: str = "REC-3"

    def violations(self, plant: Plant) -> dict[str, list[str]]:
        """What the laws report where something is planted."""
        return said(plant, self.config, lambda cache, engine: run(cache, engine, self.script))


def run(cache: Cache, engine: ManualEngine, script: str) -> None:
    """Make the calls."""
    Scene(cache, engine).play(script)


PLANTED = [
    # A parent that becomes a leaf is older than another leaf.
    Planted("put 1; put 12; put 9; hit 9; evict full=2", turns.parents_wait_for_all_leaves, PLAIN),
    Planted("put 123; put 9; evict full=2", turns.small_leaf_goes_along, PLAIN),
    Planted(f"{MAKES_ROOM}; load 5", turns.load_evicts_newest_first, TIGHT),
    Planted(
        "put 1; put 2; put 3; flush; evict full=1 swa=1",
        turns.two_shortages_are_served_newest_first,
        WINDOW,
    ),
    Planted(
        f"{WINDOW_MAKES_ROOM}; load 56; flush",
        turns.loads_leave_states_without_their_window,
        WINDOW,
    ),
    # A backup fits on the host, beside three prompts that are nowhere else, or needs a slot.
    Planted("put 1; put 2; put 3; flush; evict full=3; put 7", turns.backup_empties_the_host, HOST),
    Planted(f"{EIGHT}; flush; evict full=8; put a", turns.host_room_is_made_newest_first, HOST),
    Planted(
        "put 12; flush; evict full=2; put 7",
        turns.insert_drops_windows_of_others_on_the_host,
        WINDOW,
    ),
    Planted(
        f"{ON_BOTH}; hand_over 12 start=1", turns.insert_gives_up_host_copies_of_its_path, BACK
    ),
    # Of two victims under write_back the second has a host copy.
    Planted(
        f"{ON_BOTH}; put 2; hit 1; evict full=2",
        turns.copies_are_thrown_away_once_one_was_made,
        BACK,
    ),
    # Two victims need slots on a host that is full of evictable leaves.
    Planted(
        f"{EIGHT}; evict full=8; put a; put b; evict full=2",
        turns.only_the_first_victim_makes_room,
        BACK,
    ),
    # The host is full of copies of six prompts that are on the device, too.
    Planted(
        "put 1; put 2; put 3; put 4; put 5; put 6; evict full=6; put 7; load 1; load 2; load 3; "
        "load 4; load 5; load 6; flush; hit 1; hit 2; hit 3; hit 4; hit 5; hit 6; evict full=1",
        turns.many_duplicates_leave_together,
        evolve(BACK, host_slots=Counts(6)),
    ),
    Planted(FETCHED, turns.fetch_empties_the_host, HOST, "RES-11"),
    Planted(
        f"{FETCHED}; fetch 8; fetch 9; fetch a; fetch b; fetch c",
        turns.fetched_pages_replace_the_newest,
        HOST,
    ),
    Planted(FETCHED, host_copies.fetched_pages_make_no_leaf, HOST, "RES-11"),
    Planted(
        "fetch 567 window=2 state=1", host_copies.fetched_windows_are_dropped, WINDOW, "RES-11"
    ),
    Planted(
        "put 1; flush; hand_over 12 start=1",
        host_copies.ancestors_are_copied_again,
        HOST,
        "RES-10",
    ),
    Planted(
        f"{ON_BOTH}; hand_over 12 start=1", host_copies.write_back_inserts_back_up, BACK, "RES-10"
    ),
    Planted(
        "put 12; put 1234; flush; evict full=4; load 1234",
        load.windows_come_from_far_away,
        WINDOW,
        "LOAD-4",
    ),
]
each_planted = pytest.mark.parametrize(
    "planted", PLANTED, ids=[getattr(each.plant, "__name__", "") for each in PLANTED]
)


@each_planted
def test_a_sound_cache_keeps_every_law(planted: Planted) -> None:
    """The reference cache holds every law."""
    assert planted.violations(sound) == {}


@each_planted
def test_the_law_names_the_fault(planted: Planted) -> None:
    """The law reports the planted fault."""
    assert planted.law_id in planted.violations(planted.plant)


def test_loads_find_room() -> None:
    """The loads of the scenes are enqueued."""
    assert plain(TIGHT, MAKES_ROOM).load("5").transfer_id is not None
    assert plain(WINDOW, WINDOW_MAKES_ROOM).load("56").transfer_id is not None


def test_an_order_that_no_state_shows_is_not_asked_for() -> None:
    """The place of data that came to the host in the same eviction is not checked."""
    config = evolve(BACK, window_tokens=2, device_slots=Counts(8, 8), host_slots=Counts(8, 3))
    script = "put 12; put 123; evict full=1; put 98; evict full=4"
    assert Planted(script, sound, config).violations(sound) == {}


CASES = {
    # The copy of a second victim gives up the first, and with it enough: older host data may stay.
    "data that came in the same eviction may leave first": Case(
        evolve(BACK, window_tokens=2, device_slots=Counts(4, 4), host_slots=Counts(5, 3)),
        (Action("serve", 0, 0, 2), Action("squeeze_and_load", 0, 0, 8)),
        (),
    ),
    # A load makes room on the host for one victim, and then for another that had been a duplicate.
    "every order of duplicates is tried": Case(
        evolve(
            BACK,
            window_tokens=1,
            bigram=True,
            device_slots=Counts(12, 8),
            host_slots=Counts(17, 2),
        ),
        (
            Action("squeeze_and_load", 0, 0, 0),
            Action("fetch_what_is_there", 0, 0, 0),
            Action("squeeze_and_load", 0, 0, 3),
            Action("fetch_and_load", 0, 2, 2),
            Action("fetch_and_load", 4, 1, 4),
            Action("fetch_what_is_there", 0, 1, 0),
            Action("back_up_and_fail", 1, 0, 0),
            Action("fetch_and_load", 0, 0, 27),
        ),
        (),
    ),
    # An insert cuts a node, backs up what it adds, and evicts the rest of that node from the host.
    "a node is not cut beyond what the insert shares": Case(
        evolve(
            WINDOW,
            page_size=2,
            window_tokens=5,
            device_slots=Counts(8, 7, 2),
            host_slots=Counts(8, 8, 3),
        ),
        (
            Action("serve", 0, 0, 0),
            Action("serve", 0, 7, 2),
            Action("back_up_and_fail", 0, 0, 0),
            Action("serve", 0, 19, 4),
        ),
        (),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_orders_that_are_lawful_hold(case: Case) -> None:
    """What a state leaves open is not demanded."""
    assert play(case, [Adapter("reference", ReferenceCache)])[0] == []


def test_a_copy_may_leave_and_come_back_to_its_slot() -> None:
    """A duplicate makes room for the copy of its child, and is copied again as the next victim."""
    case = Case(
        evolve(
            BACK,
            page_size=2,
            window_tokens=1,
            bigram=True,
            device_slots=Counts(20, 10),
            host_slots=Counts(19, 5),
            eviction_policy="priority",
            load_back_threshold_pages=2,
        ),
        (
            Action("serve", 1964, 2731, 1750),
            Action("rank", 567, 3815, 1879),
            Action("evict", 811, 3513, 1267),
            Action("evict_beside_duplicates", 1594, 3344, 2797),
            Action("serve", 3249, 276, 3550),
            Action("serve", 2484, 1643, 2827),
            Action("serve", 1518, 1401, 278),
            Action("fetch_beyond", 2680, 3292, 468),
            Action("evict_beside_duplicates", 3850, 406, 3846),
            Action("rank", 3449, 2285, 1375),
            Action("serve", 3638, 1137, 3660),
            Action("serve", 3948, 172, 740),
            Action("evict", 873, 3178, 1107),
            Action("serve", 986, 3292, 2725),
            Action("admit_bare", 2263, 3687, 1020),
            Action("evict", 10, 555, 304),
            Action("evict_beside_duplicates", 3580, 3889, 3411),
        ),
        (),
    )
    name = "uncovered_tombstones_leave"
    assert play(case, [varied(name, [name])])[0] == []


COPIED_IN_VAIN = Case(
    CacheConfig(
        page_size=4,
        window_tokens=8,
        device_slots=Counts(15, 8),
        host_slots=Counts(12, 8),
        write_policy="write_back",
        eviction_policy="fifo",
        max_pending_events=3,
    ),
    (
        Action("fetch_and_press", 617, 1743, 2085),
        Action("heal_part", 1933, 1788, 482),
        Action("break_off_wait"),
        Action("heal_part", 975, 2906, 719),
        Action("back_up_and_fail", 3206, 95, 2564),
        Action("heal_part", 2580, 1519, 2861),
        Action("fetch_beyond", 1103, 3077, 1176),
        Action("fail_wait"),
        Action("heal_part", 745, 1152, 525),
        Action("fail_wait"),
        Action("serve_twin", 3837, 1018, 3387),
    ),
)
"""A copy of victims fails that took the host slots of two of them."""


def test_what_is_copied_again_in_vain_is_not_judged() -> None:
    """A node lost its host copy to another victim, was copied again, and that copy failed."""
    found, _ = play(COPIED_IN_VAIN, [Adapter("plain", ReferenceCache)])
    assert not found
