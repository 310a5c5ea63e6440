"""Backups on the plain cache: which data is copied to the host, when and in which order."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, TransferId
from scenes import (
    assert_right_bytes,
    cached_pages,
    fetch,
    heard,
    lock,
    lock_refs,
    new_cache,
    node_of,
    prompt,
    put,
    shown,
    slots_of,
)

FULL_ONLY = CacheConfig(
    device_slots=Counts(16), host_slots=Counts(16), write_policy="write_through"
)
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(16, 16), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4), host_slots=Counts(16, 16, 4))


def copied(cache: ReferenceCache) -> list[int]:
    """Return how many full slots each backup in flight reads, in the order of the enqueues."""
    backups = [each for each in cache.snapshot().transfers if each.direction is Direction.BACKUP]
    return [len(each.sources.get(FULL, ())) for each in backups]


def test_backup_is_enqueued_with_the_insert_and_there_when_acknowledged() -> None:
    """A host copy is emitted when it is acknowledged, with all components and the same bytes."""
    cache, engine = new_cache(BOTH)
    inserted = put(cache, [1, 2])
    cache.take_events()
    (order,) = engine.open_orders
    assert inserted.backups == (order.transfer_id,)
    assert order.direction is Direction.BACKUP
    for component, signs in ((FULL, "~~"), (SWA, "~~"), (MAMBA, ".~")):
        assert shown(cache, [1, 2], component, CPU) == signs
    engine.perform(order.transfer_id)
    assert cache.poll().transfers == ()
    assert heard(cache, [1, 2]) == []
    engine.acknowledge(order.transfer_id)
    cache.poll()
    assert heard(cache, [1, 2]) == [("stored", CPU, 1), ("stored", CPU, 2)]
    for component, signs in ((FULL, "##"), (SWA, "##"), (MAMBA, ".#")):
        assert shown(cache, [1, 2], component, CPU) == signs
        for gpu, cpu in zip(
            slots_of(cache, [1, 2], component),
            slots_of(cache, [1, 2], component, CPU),
            strict=True,
        ):
            if gpu is not None and cpu is not None:
                device, host = cache.read(component, GPU, gpu), cache.read(component, CPU, cpu)
                assert device == host != bytes(8)


def test_backup_takes_ancestors_first() -> None:
    """A node is copied after all nodes above it."""
    cache, _ = new_cache(WINDOW)
    put(cache, [0, 1, 2, 3, 4, 5], window_pages=3)
    assert copied(cache) == [3, 1, 2]
    cache.flush()
    stored = [token for verb, medium, token in heard(cache, range(6)) if medium is CPU]
    assert stored == [0, 1, 2, 3, 4, 5]


def test_backup_of_what_has_a_copy_is_not_repeated() -> None:
    """A node with a host copy, or with a copy in flight, is not copied again."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2])
    assert put(cache, [1, 2]).backups == ()
    cache.flush()
    assert put(cache, [1, 2]).backups == ()
    assert len(put(cache, [1, 2, 3]).backups) == 1


def test_backup_of_healed_window_data_follows() -> None:
    """Window data that came back after its node was copied is copied to the host, too."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2], window_pages=0)
    cache.flush()
    assert shown(cache, [1, 2], SWA, CPU) == ".."
    assert len(put(cache, [1, 2], start_pages=0).backups) == 1
    assert copied(cache) == [0]
    cache.flush()
    assert shown(cache, [1, 2], SWA, CPU) == "##"
    cache.evict(Counts(full=2))
    assert cached_pages(cache, [1, 2]) == 2


def test_backup_of_window_data_out_of_reach_is_left() -> None:
    """Window data before the window of the prompt's end is not copied."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4], window_pages=0)
    cache.flush()
    put(cache, [1, 2, 3, 4, 5, 6], start_pages=0, window_pages=6)
    cache.flush()
    assert shown(cache, [1, 2, 3, 4, 5, 6], SWA) == "######"
    assert shown(cache, [1, 2, 3, 4, 5, 6], SWA, CPU) == "....##"


def test_backup_makes_room_by_evicting_from_the_host() -> None:
    """A backup evicts old prompts from a full host."""
    cache, _ = new_cache(evolve(FULL_ONLY, host_slots=Counts(4)))
    fetch(cache, [7, 8])
    fetch(cache, [5, 6])
    cache.match(prompt(cache, [7, 8]))
    inserted = put(cache, [1, 2])
    assert (len(inserted.backups), inserted.backup_declined_pages) == (1, 0)
    assert (cached_pages(cache, [5, 6]), cached_pages(cache, [7, 8])) == (0, 2)


def test_backup_stops_where_the_host_has_no_room() -> None:
    """A chain stops at the first node without free host slots, and the outcome says so."""
    cache, _ = new_cache(evolve(WINDOW, host_slots=Counts(4, 16)))
    inserted = put(cache, [0, 1, 2, 3, 4, 5], window_pages=3)
    assert copied(cache) == [3, 1]
    assert inserted.backup_declined_pages == 2
    cache.flush()
    assert shown(cache, range(6), FULL, CPU) == "####.."


def test_backup_that_found_no_room_stops_those_below_it() -> None:
    """A node is not copied if a node above it found no free host slots, even if it fits."""
    cache, _ = new_cache(evolve(WINDOW, host_slots=Counts(2, 16)))
    inserted = put(cache, [0, 1, 2, 3, 4, 5], window_pages=3)
    assert (inserted.backups, inserted.backup_declined_pages) == ((), 6)


def test_backup_is_all_components_or_none() -> None:
    """A node is not copied if its window data finds no free host slots."""
    cache, _ = new_cache(evolve(WINDOW, host_slots=Counts(16, 1)))
    inserted = put(cache, [1, 2])
    assert (inserted.backups, inserted.backup_declined_pages) == ((), 2)
    assert shown(cache, [1, 2], FULL, CPU) == ".."


def test_backup_without_room_for_full_data_evicts_no_window_data() -> None:
    """Window data on the host stays where a copy has no room for its full data."""
    cache, _ = new_cache(evolve(WINDOW, host_slots=Counts(4, 4)))
    fetch(cache, [6, 7], window_pages=2)
    fetch(cache, [6, 7, 8, 9], start_pages=2, window_pages=2)
    receipt = lock(cache, [6, 7, 8, 9])
    assert put(cache, [1, 2]).backup_declined_pages == 2
    assert shown(cache, [6, 7, 8, 9], SWA, CPU) == "####"
    cache.unlock(receipt)


def test_backup_that_was_declined_is_made_up_for() -> None:
    """Pages whose backup was declined get a host copy later."""
    cache, _ = new_cache(evolve(FULL_ONLY, host_slots=Counts(2)))
    fetch(cache, [8, 9])
    receipt = lock(cache, [8, 9])
    assert put(cache, [1, 2]).backup_declined_pages == 2
    cache.unlock(receipt)
    inserted = put(cache, [1, 2])
    assert (len(inserted.backups), inserted.backup_declined_pages) == (1, 0)


def test_backup_holds_what_it_reads() -> None:
    """The data that a copy reads is locked while the copy is in flight, and only then."""
    cache, _ = new_cache(BOTH)
    put(cache, [1, 2])
    assert lock_refs(cache, [1, 2], FULL) == [1, 1]
    assert lock_refs(cache, [1, 2], SWA) == [1, 1]
    assert lock_refs(cache, [1, 2], MAMBA) == [0, 1]
    cache.flush()
    assert not any(node_of(cache, [1, 2])[c].lock_refs for c in BOTH.components)


def test_backup_of_a_node_that_is_cut_meanwhile_is_stored_in_both_parts() -> None:
    """After a cut under a copy in flight both parts get a host copy and a store event."""
    cache, _ = new_cache(WINDOW)
    put(cache, [1, 2, 3, 4], window_pages=4)
    put(cache, [1, 9])
    cache.take_events()
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "~~~~"
    cache.flush()
    stored = heard(cache, [1, 2, 3, 4], [1, 9])
    assert stored == [("stored", CPU, token) for token in (1, 2, 3, 4, 9)]
    assert shown(cache, [1, 2, 3, 4], SWA, CPU) == "####"
    cache.evict(Counts(full=16))
    cache.load_back(prompt(cache, [1, 2, 3, 4]))
    cache.flush()
    assert_right_bytes(cache, [1, 2, 3, 4])


def test_backup_waits_for_the_second_hit_and_takes_the_chain_then() -> None:
    """Under write_through_selective the second hit of a node copies it and the nodes above it."""
    cache, _ = new_cache(evolve(FULL_ONLY, write_policy="write_through_selective"))
    put(cache, [1, 2, 3, 4])
    cache.match(prompt(cache, [1, 2]))
    assert put(cache, [1, 2, 3, 4, 5], counted_pages=4).backups == ()
    assert put(cache, [1, 2, 3, 4], counted_pages=2).backup_declined_pages == 0
    assert copied(cache) == [2, 2]


class ImpatientEngine(ManualEngine):
    """Returns from a wait before the copy is made."""

    def wait(self, transfer_id: TransferId) -> None:
        """Do not wait."""


def test_backup_that_is_still_in_flight_after_a_wait_is_a_violation() -> None:
    """An eviction under write_back raises SpecViolation if its copy is in flight after the wait."""
    engine = ImpatientEngine()
    cache = ReferenceCache(evolve(FULL_ONLY, write_policy="write_back"), engine)
    put(cache, [1, 2])
    with pytest.raises(SpecViolation, match="still in flight"):
        cache.evict(Counts(full=1))
    assert shown(cache, [1, 2]) == "##"


def test_backup_under_write_back_waits_for_the_eviction() -> None:
    """Under write_back an insert enqueues no copy."""
    cache, _ = new_cache(evolve(FULL_ONLY, write_policy="write_back"))
    for _ in range(3):
        inserted = put(cache, [1, 2])
        assert (inserted.backups, inserted.backup_declined_pages) == ((), 0)
    assert cache.snapshot().transfers == ()
