"""sgl#22894, events of the host tier: its rules and edge cases.

The report has no test of its own; it lists the calls that must emit an event, and the medium.
"""

from __future__ import annotations

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import BlockStored, fold_events
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Medium, make_key
from scenes import BOTH_CACHES, fetch, heard, judged_cache, node_of, prompt, put, shown

THROUGH = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
BACK = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_back"
)
each_cache = pytest.mark.parametrize("name", BOTH_CACHES)


def test_report_media_have_names_of_their_own() -> None:
    """Media have the names that the report gives them."""
    names = [str(medium) for medium in Medium]
    assert names == ["GPU", "CPU_PINNED", "DISK", "EXTERNAL"]
    assert GPU == "GPU"


@each_cache
def test_report_host_copy_is_stored_when_it_is_acknowledged(name: str) -> None:
    """A host store is emitted when the copy is acknowledged, and not when it is performed."""
    cache, copies = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    assert heard(cache, [1, 2]) == [("stored", GPU, 1), ("stored", GPU, 2)]
    (copy,) = copies.open_transfer_ids
    copies.perform(copy)
    cache.poll()
    assert heard(cache, [1, 2]) == []
    copies.acknowledge(copy)
    cache.poll()
    assert heard(cache, [1, 2]) == [("stored", CPU, 1), ("stored", CPU, 2)]


@each_cache
def test_report_backup_that_fails_sends_nothing(name: str) -> None:
    """A backup that fails emits no event."""
    cache, copies = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    cache.take_events()
    copies.fail(copies.open_transfer_ids[0])
    cache.poll()
    assert shown(cache, [1, 2], FULL, CPU) == ".."
    assert cache.take_events() == ()


@each_cache
def test_report_backup_without_host_room_sends_nothing(name: str) -> None:
    """A backup that cannot begin for lack of host slots emits no event."""
    config = CacheConfig(
        device_slots=Counts(full=8), host_slots=Counts(full=2), write_policy="write_through"
    )
    cache, copies = judged_cache(name, config)
    put(cache, [1, 2, 3])
    assert not copies.open_transfer_ids
    cache.flush()
    assert {medium for _, medium, _ in heard(cache, [1, 2, 3])} == {GPU}


@each_cache
def test_report_one_poll_announces_every_copy_that_ended(name: str) -> None:
    """One poll emits the stores of all copies that ended, parents before children."""
    cache, copies = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.take_events()
    for copy in reversed(copies.open_transfer_ids):
        copies.acknowledge(copy)
    cache.poll()
    assert heard(cache, [1, 2, 3, 4]) == [("stored", CPU, token) for token in (1, 2, 3, 4)]


@each_cache
def test_report_demotion_removes_from_the_device_alone(name: str) -> None:
    """A demotion emits removes of the device only, and the host copy stays."""
    cache, _ = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    cache.flush()
    cache.take_events()
    cache.evict(Counts(full=2))
    assert shown(cache, [1, 2], FULL, CPU) == "##"
    assert heard(cache, [1, 2]) == [("removed", GPU, 2), ("removed", GPU, 1)]


@each_cache
def test_report_host_eviction_removes_from_the_host(name: str) -> None:
    """A host eviction emits removes of the host."""
    cache, _ = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(full=2))
    cache.take_events()
    cache.evict_host(Counts(full=2))
    assert heard(cache, [1, 2]) == [("removed", CPU, 2), ("removed", CPU, 1)]


@pytest.mark.parametrize(
    ("name", "at_enqueue"),
    [("loads_announced_early", True), *((name, False) for name in BOTH_CACHES)],
)
def test_report_load_back_stores_on_the_device(name: str, *, at_enqueue: bool) -> None:
    """A load-back emits its device stores once.

    The report emits them at the enqueue, the canon at the acknowledgement.
    """
    cache, _ = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(full=2))
    cache.take_events()
    stored = [("stored", GPU, 1), ("stored", GPU, 2)]
    cache.load_back(make_key([1, 2], 1))
    assert heard(cache, [1, 2]) == (stored if at_enqueue else [])
    cache.flush()
    assert heard(cache, [1, 2]) == ([] if at_enqueue else stored)


@each_cache
def test_report_blocking_backup_is_announced_before_the_victim_leaves(name: str) -> None:
    """Under write_back an eviction waits for its copy, and emits host stores before removes."""
    cache, copies = judged_cache(name, BACK)
    put(cache, [1, 2])
    cache.take_events()
    cache.evict(Counts(full=2))
    assert not copies.open_transfer_ids
    assert heard(cache, [1, 2]) == [
        ("stored", CPU, 1),
        ("stored", CPU, 2),
        ("removed", GPU, 2),
        ("removed", GPU, 1),
    ]


@each_cache
def test_report_pages_from_storage_are_stored_on_the_host(name: str) -> None:
    """Pages from storage emit host stores, the new ones and those that were on the device only."""
    cache, _ = judged_cache(name, BACK)
    put(cache, [1, 2])
    cache.take_events()
    fetched = fetch(cache, [1, 2, 3, 4])
    assert (fetched.refilled_pages, fetched.placed_pages, fetched.dropped_pages) == (2, 2, 0)
    assert heard(cache, [1, 2, 3, 4]) == [("stored", CPU, token) for token in (1, 2, 3, 4)]


@each_cache
def test_report_router_finds_a_prompt_from_storage(name: str) -> None:
    """The sum of the events has every page on each of its media."""
    cache, _ = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    cache.flush()
    fetch(cache, [1, 2, 3, 4], start_pages=2)
    key = prompt(cache, [1, 2, 3, 4])
    hashes = page_hashes(namespace_seed(key.namespace), key.pages)
    told = set(fold_events(cache.take_events()))
    assert told == {(GPU, page) for page in hashes[:2]} | {(CPU, page) for page in hashes}


@each_cache
def test_report_page_has_one_hash_on_every_medium(name: str) -> None:
    """A page has one hash and one parent hash on every medium."""
    cache, _ = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    put(cache, [1, 2, 3])
    cache.flush()
    stored = [event for event in cache.take_events() if isinstance(event, BlockStored)]
    said = {
        medium: [(e.block_hash, e.parent_hash, e.page) for e in stored if e.medium is medium]
        for medium in (GPU, CPU)
    }
    assert said[GPU] == said[CPU]
    assert [parent for _, parent, _ in said[CPU]] == [None, *(page for page, _, _ in said[CPU][:2])]
    assert node_of(cache, [1, 2, 3]).hashes == (said[CPU][2][0],)
