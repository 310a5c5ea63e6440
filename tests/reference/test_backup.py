"""Backups on the plain cache: which data is copied to the host, when and in which order."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import SpecViolation
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, TransferId
from scenes import Plain, Scene, plain

FULL_ONLY = CacheConfig(
    device_slots=Counts(16), host_slots=Counts(16), write_policy="write_through"
)
WINDOW = evolve(FULL_ONLY, window_tokens=2, device_slots=Counts(16, 16), host_slots=Counts(16, 16))
BOTH = evolve(WINDOW, mamba=True, device_slots=Counts(16, 16, 4), host_slots=Counts(16, 16, 4))


def copied(s: Plain) -> list[int]:
    """Return how many full slots each backup in flight reads, in the order of the enqueues."""
    backups = [each for each in s.cache.snapshot().transfers if each.direction is Direction.BACKUP]
    return [len(each.sources.get(FULL, ())) for each in backups]


def test_backup_is_enqueued_with_the_insert_and_there_when_acknowledged() -> None:
    """A host copy is emitted when it is acknowledged, with all components and the same bytes."""
    s = plain(BOTH)
    inserted = s.put("12")
    s.heard()
    (order,) = s.copies.open_orders
    assert inserted.backups == (order.transfer_id,)
    assert order.direction is Direction.BACKUP
    assert s.see("12", CPU) == "~~ ~~ .~"
    s.copies.perform(order.transfer_id)
    assert s.cache.poll().transfers == ()
    assert s.heard() == ""
    s.copies.acknowledge(order.transfer_id)
    s.cache.poll()
    assert s.heard() == "stored CPU 1 2"
    assert s.see("12", CPU) == "## ## .#"
    for component in BOTH.components:
        for gpu, cpu in zip(s.slots("12", component), s.slots("12", component, CPU), strict=True):
            if gpu is not None and cpu is not None:
                bytes_read = s.cache.read(component, GPU, gpu)
                assert bytes_read == s.cache.read(component, CPU, cpu) != bytes(8)


def test_backup_takes_ancestors_first() -> None:
    """A node is copied after all nodes above it."""
    s = plain(WINDOW, "put 012345 window=3")
    assert copied(s) == [3, 1, 2]
    s.cache.flush()
    assert s.heard().endswith("stored CPU 0 1 2 3 4 5")


def test_backup_of_what_has_a_copy_is_not_repeated() -> None:
    """A node with a host copy, or with a copy in flight, is not copied again."""
    s = plain(WINDOW, "put 12")
    assert s.put("12").backups == ()
    s.cache.flush()
    assert s.put("12").backups == ()
    assert len(s.put("123").backups) == 1


def test_backup_of_healed_window_data_follows() -> None:
    """Window data that came back after its node was copied is copied to the host, too."""
    s = plain(WINDOW, "put 12 window=0; flush")
    assert s.see("12", SWA, CPU) == ".."
    assert len(s.put("12", start=0).backups) == 1
    assert copied(s) == [0]
    s.cache.flush()
    assert s.see("12", SWA, CPU) == "##"
    s.evict(full=2)
    assert s.hit("12") == 2


def test_backup_of_window_data_out_of_reach_is_left() -> None:
    """Window data before the window of the prompt's end is not copied."""
    s = plain(WINDOW, "put 1234 window=0; flush; put 123456 start=0 window=6; flush")
    assert s.see("123456", SWA) == "######"
    assert s.see("123456", SWA, CPU) == "....##"


def test_backup_makes_room_by_evicting_from_the_host() -> None:
    """A backup evicts old prompts from a full host."""
    s = plain(evolve(FULL_ONLY, host_slots=Counts(4)), "fetch 78; fetch 56; hit 78")
    inserted = s.put("12")
    assert (len(inserted.backups), inserted.backup_declined_pages) == (1, 0)
    assert (s.hit("56"), s.hit("78")) == (0, 2)


def test_backup_stops_where_the_host_has_no_room() -> None:
    """A chain stops at the first node without free host slots, and the outcome says so."""
    s = plain(evolve(WINDOW, host_slots=Counts(4, 16)))
    inserted = s.put("012345", window=3)
    assert copied(s) == [3, 1]
    assert inserted.backup_declined_pages == 2
    s.cache.flush()
    assert s.see("012345", FULL, CPU) == "####.."


def test_backup_that_found_no_room_stops_those_below_it() -> None:
    """A node is not copied if a node above it found no free host slots, even if it fits."""
    s = plain(evolve(WINDOW, host_slots=Counts(2, 16)))
    inserted = s.put("012345", window=3)
    assert (inserted.backups, inserted.backup_declined_pages) == ((), 6)


def test_backup_is_all_components_or_none() -> None:
    """A node is not copied if its window data finds no free host slots."""
    s = plain(evolve(WINDOW, host_slots=Counts(16, 1)))
    inserted = s.put("12")
    assert (inserted.backups, inserted.backup_declined_pages) == ((), 2)
    assert s.see("12", FULL, CPU) == ".."


def test_backup_without_room_for_full_data_evicts_no_window_data() -> None:
    """Window data on the host stays where a copy has no room for its full data."""
    s = plain(evolve(WINDOW, host_slots=Counts(4, 4)), "fetch 67 window=2")
    s.fetch("6789", start=2, window=2)
    receipt = s.lock("6789")
    assert s.put("12").backup_declined_pages == 2
    assert s.see("6789", SWA, CPU) == "####"
    s.cache.unlock(receipt)


def test_backup_that_was_declined_is_made_up_for() -> None:
    """Pages whose backup was declined get a host copy later."""
    s = plain(evolve(FULL_ONLY, host_slots=Counts(2)), "fetch 89")
    receipt = s.lock("89")
    assert s.put("12").backup_declined_pages == 2
    s.cache.unlock(receipt)
    inserted = s.put("12")
    assert (len(inserted.backups), inserted.backup_declined_pages) == (1, 0)


def test_backup_holds_what_it_reads() -> None:
    """The data that a copy reads is locked while the copy is in flight, and only then."""
    s = plain(BOTH, "put 12")
    assert s.refs("12", FULL, SWA, MAMBA) == "11 11 01"
    s.cache.flush()
    assert s.refs("12") == "00 00 00"


def test_backup_of_a_node_that_is_cut_meanwhile_is_stored_in_both_parts() -> None:
    """After a cut under a copy in flight both parts get a host copy and a store event."""
    s = plain(WINDOW, "put 1234 window=4; put 19; heard")
    assert s.see("1234", FULL, CPU) == "~~~~"
    s.cache.flush()
    assert s.heard() == "stored CPU 1 2 3 4 9"
    assert s.see("1234", SWA, CPU) == "####"
    s.play("evict full=16; load 1234; flush")
    s.check_bytes("1234")


def test_backup_waits_for_the_second_hit_and_takes_the_chain_then() -> None:
    """Under write_through_selective the second hit of a node copies it and the nodes above it."""
    s = plain(evolve(FULL_ONLY, write_policy="write_through_selective"), "put 1234; hit 12")
    assert s.put("12345", counted=4).backups == ()
    assert s.put("1234", counted=2).backup_declined_pages == 0
    assert copied(s) == [2, 2]


class ImpatientEngine(ManualEngine):
    """Returns from a wait before the copy is made."""

    def wait(self, transfer_id: TransferId) -> None:
        """Do not wait."""


def test_backup_that_is_still_in_flight_after_a_wait_is_a_violation() -> None:
    """An eviction under write_back raises SpecViolation if its copy is in flight after the wait."""
    engine = ImpatientEngine()
    s = Scene(ReferenceCache(evolve(FULL_ONLY, write_policy="write_back"), engine), engine)
    s.put("12")
    with pytest.raises(SpecViolation, match="still in flight"):
        s.evict(full=1)
    assert s.see("12", FULL) == "##"


def test_backup_under_write_back_waits_for_the_eviction() -> None:
    """Under write_back an insert enqueues no copy."""
    s = plain(evolve(FULL_ONLY, write_policy="write_back"))
    for _ in range(3):
        inserted = s.put("12")
        assert (inserted.backups, inserted.backup_declined_pages) == ((), 0)
    assert s.cache.snapshot().transfers == ()
