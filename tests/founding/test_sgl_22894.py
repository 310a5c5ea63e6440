"""sgl#22894, events of the host tier: its rules and edge cases.

The report has no test of its own; it lists the calls that must emit an event, and the medium.
"""

from __future__ import annotations

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import BlockStored, fold_events
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Medium
from scenes import BOTH_CACHES, judged

THROUGH = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
BACK = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_back"
)


def test_report_media_have_names_of_their_own() -> None:
    """Media have the names that the report gives them."""
    assert [str(medium) for medium in Medium] == ["GPU", "CPU_PINNED", "DISK", "EXTERNAL"]
    assert GPU == "GPU"


def test_report_host_copy_is_stored_when_it_is_acknowledged(name: str) -> None:
    """A host store is emitted when the copy is acknowledged, and not when it is performed."""
    s = judged(name, THROUGH, "heard; put 12")
    assert s.heard() == "stored GPU 1 2"
    (copy,) = s.copies.open_transfer_ids
    s.copies.perform(copy)
    s.cache.poll()
    assert s.heard() == ""
    s.end(copy)
    assert s.heard() == "stored CPU 1 2"


def test_report_backup_that_fails_sends_nothing(name: str) -> None:
    """A backup that fails emits no event."""
    s = judged(name, THROUGH, "put 12; heard")
    s.copies.fail(s.copies.open_transfer_ids[0])
    s.cache.poll()
    assert s.see("12", FULL, CPU) == ".."
    assert s.heard() == ""


def test_report_backup_without_host_room_sends_nothing(name: str) -> None:
    """A backup that cannot begin for lack of host slots emits no event."""
    config = CacheConfig(
        device_slots=Counts(full=8), host_slots=Counts(full=2), write_policy="write_through"
    )
    s = judged(name, config, "put 123")
    assert not s.copies.open_transfer_ids
    s.cache.flush()
    assert s.heard() == "cleared, stored GPU 1 2 3"


def test_report_one_poll_announces_every_copy_that_ended(name: str) -> None:
    """One poll emits the stores of all copies that ended, parents before children."""
    s = judged(name, THROUGH, "put 12; put 1234; heard")
    for copy in reversed(s.copies.open_transfer_ids):
        s.copies.acknowledge(copy)
    s.cache.poll()
    assert s.heard() == "stored CPU 1 2 3 4"


def test_report_demotion_removes_from_the_device_alone(name: str) -> None:
    """A demotion emits removes of the device only, and the host copy stays."""
    s = judged(name, THROUGH, "put 12; flush; heard; evict full=2")
    assert s.see("12", FULL, CPU) == "##"
    assert s.heard() == "removed GPU 2 1"


def test_report_host_eviction_removes_from_the_host(name: str) -> None:
    """A host eviction emits removes of the host."""
    s = judged(name, THROUGH, "put 12; flush; evict full=2; heard; evict_host full=2")
    assert s.heard() == "removed CPU 2 1"


@pytest.mark.parametrize(
    ("name", "at_enqueue"),
    [("loads_announced_early", True), *((name, False) for name in BOTH_CACHES)],
)
def test_report_load_back_stores_on_the_device(name: str, *, at_enqueue: bool) -> None:
    """A load-back emits its device stores once.

    The report emits them at the enqueue, the canon at the acknowledgement.
    """
    s = judged(name, THROUGH, "put 12; flush; evict full=2; heard")
    s.load("12")
    assert s.heard() == ("stored GPU 1 2" if at_enqueue else "")
    s.cache.flush()
    assert s.heard() == ("" if at_enqueue else "stored GPU 1 2")


def test_report_blocking_backup_is_announced_before_the_victim_leaves(name: str) -> None:
    """Under write_back an eviction waits for its copy, and emits host stores before removes."""
    s = judged(name, BACK, "put 12; heard; evict full=2")
    assert not s.copies.open_transfer_ids
    assert s.heard() == "stored CPU 1 2, removed GPU 2 1"


def test_report_pages_from_storage_are_stored_on_the_host(name: str) -> None:
    """Pages from storage emit host stores, the new ones and those that were on the device only."""
    s = judged(name, BACK, "put 12; heard")
    fetched = s.fetch("1234")
    assert (fetched.refilled_pages, fetched.placed_pages, fetched.dropped_pages) == (2, 2, 0)
    assert s.heard() == "stored CPU 1 2 3 4"


def test_report_router_finds_a_prompt_from_storage(name: str) -> None:
    """The sum of the events has every page on each of its media."""
    s = judged(name, THROUGH, "put 12; flush; fetch 1234 start=2")
    key = s.key("1234")
    hashes = page_hashes(namespace_seed(key.namespace), key.pages)
    told = set(fold_events(s.cache.take_events()))
    assert told == {(GPU, page) for page in hashes[:2]} | {(CPU, page) for page in hashes}


def test_report_page_has_one_hash_on_every_medium(name: str) -> None:
    """A page has one hash and one parent hash on every medium."""
    s = judged(name, THROUGH, "put 12; put 123; flush")
    stored = s.taken(BlockStored)
    said = {
        medium: [(e.block_hash, e.parent_hash, e.page) for e in stored if e.medium is medium]
        for medium in (GPU, CPU)
    }
    assert said[GPU] == said[CPU]
    assert [parent for _, parent, _ in said[CPU]] == [None, *(page for page, _, _ in said[CPU][:2])]
    assert s.nodes("123")[-1].hashes == (said[CPU][2][0],)
