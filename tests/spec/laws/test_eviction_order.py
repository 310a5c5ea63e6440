"""REC-3 and RES-11 on small scenarios: the reference cache holds them, planted faults do not."""

from __future__ import annotations

import pytest
from attrs import frozen

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.lab.mutants.planted import host_copies, load, turns
from kvcanon.lab.variants.override import Plant
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.types import Counts, make_key
from planting import Scenario, said, sound
from scenes import compute, fetch, lock, put

HOST = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
PLAIN = CacheConfig(device_slots=Counts(8))
TIGHT = CacheConfig(device_slots=Counts(4), host_slots=Counts(8), write_policy="write_through")
BACK = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_back")
WINDOW = CacheConfig(
    window_tokens=2,
    mamba=True,
    device_slots=Counts(12, 6, 6),
    host_slots=Counts(12, 12, 6),
    write_policy="write_through",
)


def hand_over(cache: Cache, tokens: list[int], start_pages: int) -> None:
    """Insert a prompt, of which the first pages are cached, without a lock."""
    key = make_key(tokens, 1)
    cache.insert(key, start_pages, compute(cache, key, start_pages))


def parent_before_another_leaf(cache: Cache, _: ManualEngine) -> None:
    """A parent that becomes a leaf is older than another leaf."""
    for prompt in ([1], [1, 2], [9]):
        put(cache, prompt)
    cache.match(make_key([9], 1))
    cache.evict(Counts(2))


def long_leaf_and_short_one(cache: Cache, _: ManualEngine) -> None:
    """A leaf of three pages is enough."""
    put(cache, [1, 2, 3])
    put(cache, [9])
    cache.evict(Counts(2))


def upper_arrives_above_a_host_leaf(cache: Cache, _: ManualEngine) -> None:
    """Window data of a node comes to the host, and leaves it again before that of its child."""
    put(cache, [1, 2])
    put(cache, [1, 2, 3])
    cache.evict(Counts(1))
    put(cache, [9, 8])
    cache.evict(Counts(4))


def load_into_a_full_pool(cache: Cache, _: ManualEngine) -> None:
    """A load-back needs one slot, and the oldest of several leaves has to go."""
    put(cache, [5])
    cache.flush()
    cache.evict(Counts(1))
    for token in (1, 2, 3, 4):
        put(cache, [token])
    cache.flush()
    assert cache.load_back(make_key([5], 1)).decision is LoadDecision.ENQUEUED


def backup_beside_others(cache: Cache, _: ManualEngine) -> None:
    """A backup fits on the host, beside three prompts that are nowhere else."""
    for token in (1, 2, 3):
        put(cache, [token])
    cache.flush()
    cache.evict(Counts(3))
    put(cache, [7])


def backup_into_a_full_host(cache: Cache, _: ManualEngine) -> None:
    """A backup needs one host slot, and the oldest prompt there has to go."""
    for token in range(1, 9):
        put(cache, [token])
    cache.flush()
    cache.evict(Counts(8))
    put(cache, [20])


def fetch_beside_others(cache: Cache, _: ManualEngine) -> None:
    """Fetched pages fit on the host."""
    put(cache, [1])
    cache.flush()
    cache.evict(Counts(1))
    fetch(cache, [5, 6, 7])


def fetch_into_a_full_host(cache: Cache, engine: ManualEngine) -> None:
    """Fetched pages need a host slot."""
    fetch_beside_others(cache, engine)
    for token in (8, 9, 10, 11, 12):
        fetch(cache, [token])


def fetch_with_a_window(cache: Cache, _: ManualEngine) -> None:
    """Pages are fetched with their window and their mamba state."""
    fetch(cache, [5, 6, 7], window_pages=2, state=True)


def backed_and_bare_victims(cache: Cache, _: ManualEngine) -> None:
    """Of two victims under write_back the second has a host copy."""
    put(cache, [1])
    cache.evict(Counts(1))
    cache.load_back(make_key([1], 1))
    cache.flush()
    put(cache, [2])
    cache.match(make_key([1], 1))
    cache.evict(Counts(2))


def host_of_leaves(cache: Cache, _: ManualEngine) -> None:
    """Two victims need slots on a host that is full of evictable leaves."""
    for token in range(1, 9):
        put(cache, [token])
    cache.evict(Counts(8))
    for token in (20, 21):
        put(cache, [token])
    cache.evict(Counts(2))


def insert_of_what_is_on_both(cache: Cache, _: ManualEngine) -> None:
    """An insert finds its path on both media."""
    put(cache, [1])
    cache.evict(Counts(1))
    cache.load_back(make_key([1], 1))
    cache.flush()
    hand_over(cache, [1, 2], 1)


def two_shortages(cache: Cache, _: ManualEngine) -> None:
    """An eviction for full slots and window slots at once."""
    for token in (1, 2, 3):
        put(cache, [token])
    cache.flush()
    cache.evict(Counts(1, 1))


def window_that_makes_room_for_a_load(cache: Cache, _: ManualEngine) -> None:
    """A load-back takes window data from inside the tree, with a mamba state at its end."""
    put(cache, [5, 6])
    cache.flush()
    cache.evict(Counts(2))
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    put(cache, [8])
    cache.flush()
    held = [lock(cache, [1, 2, 3, 4]), lock(cache, [8])]
    assert cache.load_back(make_key([5, 6], 1)).decision is LoadDecision.ENQUEUED
    cache.flush()
    for receipt in held:
        cache.unlock(receipt)


def load_with_room_for_more(cache: Cache, _: ManualEngine) -> None:
    """A load-back of a prompt that is longer than its window, all of it on the host."""
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.flush()
    cache.evict(Counts(4))
    cache.load_back(make_key([1, 2, 3, 4], 1))


def insert_beside_windows_on_the_host(cache: Cache, _: ManualEngine) -> None:
    """An insert backs up beside a prompt that is on the host alone, with its window."""
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(2))
    put(cache, [7])


def longer_prompt(cache: Cache, _: ManualEngine) -> None:
    """An insert backs up what it adds to a path that has host copies."""
    put(cache, [1])
    cache.flush()
    hand_over(cache, [1, 2], 1)


@frozen
class Scene:
    """A scenario, a fault that it shows, and the law that reports it."""

    scenario: Scenario
    plant: Plant
    config: CacheConfig
    law_id: str = "REC-3"


SCENES = [
    Scene(parent_before_another_leaf, turns.parents_wait_for_all_leaves, PLAIN),
    Scene(long_leaf_and_short_one, turns.small_leaf_goes_along, PLAIN),
    Scene(load_into_a_full_pool, turns.load_evicts_newest_first, TIGHT),
    Scene(two_shortages, turns.two_shortages_are_served_newest_first, WINDOW),
    Scene(window_that_makes_room_for_a_load, turns.loads_leave_states_without_their_window, WINDOW),
    Scene(backup_beside_others, turns.backup_empties_the_host, HOST),
    Scene(backup_into_a_full_host, turns.host_room_is_made_newest_first, HOST),
    Scene(
        insert_beside_windows_on_the_host, turns.insert_drops_windows_of_others_on_the_host, WINDOW
    ),
    Scene(insert_of_what_is_on_both, turns.insert_gives_up_host_copies_of_its_path, BACK),
    Scene(backed_and_bare_victims, turns.copies_are_thrown_away_once_one_was_made, BACK),
    Scene(host_of_leaves, turns.only_the_first_victim_makes_room, BACK),
    Scene(fetch_beside_others, turns.fetch_empties_the_host, HOST, "RES-11"),
    Scene(fetch_into_a_full_host, turns.fetched_pages_replace_the_newest, HOST, "RES-11"),
    Scene(fetch_beside_others, host_copies.fetched_pages_make_no_leaf, HOST, "RES-11"),
    Scene(fetch_with_a_window, host_copies.fetched_windows_are_dropped, WINDOW, "RES-11"),
    Scene(longer_prompt, host_copies.ancestors_are_copied_again, HOST, "RES-10"),
    Scene(insert_of_what_is_on_both, host_copies.write_back_inserts_back_up, BACK, "RES-10"),
    Scene(load_with_room_for_more, load.windows_come_from_far_away, WINDOW, "LOAD-4"),
]
each_scene = pytest.mark.parametrize(
    "scene", SCENES, ids=[getattr(scene.plant, "__name__", "") for scene in SCENES]
)


@each_scene
def test_a_sound_cache_keeps_every_law(scene: Scene) -> None:
    """The reference cache holds every law."""
    assert said(sound, scene.config, scene.scenario) == {}


@each_scene
def test_the_law_names_the_fault(scene: Scene) -> None:
    """The law reports the planted fault."""
    assert scene.law_id in said(scene.plant, scene.config, scene.scenario)


def test_an_order_that_no_state_shows_is_not_asked_for() -> None:
    """The place of data that came to the host in the same eviction is not checked."""
    config = CacheConfig(
        window_tokens=2,
        device_slots=Counts(8, 8),
        host_slots=Counts(8, 3),
        write_policy="write_back",
    )
    assert said(sound, config, upper_arrives_above_a_host_leaf) == {}


VICTIM_ARRIVES_BEFORE_IT_LEAVES = Case(
    CacheConfig(
        window_tokens=2,
        device_slots=Counts(4, 4),
        host_slots=Counts(5, 3),
        write_policy="write_back",
    ),
    (Action("serve", 0, 0, 2), Action("squeeze_and_load", 0, 0, 8)),
    (),
)
"""The copy of a second victim gives up the first, and with it enough: older host data may stay."""


def test_data_that_came_in_the_same_eviction_may_leave_first() -> None:
    """If all host data would suffice without one part, its unknown order decides who leaves."""
    assert play(VICTIM_ARRIVES_BEFORE_IT_LEAVES, [Adapter("reference", ReferenceCache)])[0] == []


DUPLICATES_GIVEN_UP_TWICE = Case(
    CacheConfig(
        window_tokens=1,
        bigram=True,
        device_slots=Counts(12, 8),
        host_slots=Counts(17, 2),
        write_policy="write_back",
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
)
"""A load makes room on the host for one victim, and then for another that had been a duplicate."""


def test_every_order_of_duplicates_is_tried() -> None:
    """Duplicates may leave in any order."""
    assert play(DUPLICATES_GIVEN_UP_TWICE, [Adapter("reference", ReferenceCache)])[0] == []


BACKUP_PAST_A_PART_OF_A_NODE = Case(
    CacheConfig(
        page_size=2,
        window_tokens=5,
        mamba=True,
        device_slots=Counts(8, 7, 2),
        host_slots=Counts(8, 8, 3),
        write_policy="write_through",
    ),
    (
        Action("serve", 0, 0, 0),
        Action("serve", 0, 7, 2),
        Action("back_up_and_fail", 0, 0, 0),
        Action("serve", 0, 19, 4),
    ),
    (),
)
"""An insert cuts a node, backs up what it adds, and evicts the rest of that node from the host."""


def test_a_node_is_not_cut_beyond_what_the_insert_shares() -> None:
    """The replay cuts no node of another key where new nodes of the inserted key begin."""
    assert play(BACKUP_PAST_A_PART_OF_A_NODE, [Adapter("reference", ReferenceCache)])[0] == []
