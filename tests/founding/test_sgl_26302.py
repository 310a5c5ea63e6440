"""sgl#26302, evictions before a load-back: its rules, its edge cases and its test."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts, Slots
from scenes import Judged, judged

CONFIG = CacheConfig(
    window_tokens=3,
    device_slots=Counts(full=16, swa=10),
    host_slots=Counts(full=16, swa=16),
    write_policy="write_through",
)
WITHOUT_WINDOW = evolve(CONFIG, window_tokens=None)
PROMPT, OTHER = "12345", "xy"


def put_in_nodes(s: Judged, prompt: str) -> None:
    """Insert a prompt as a chain of nodes of one page, and back it up."""
    for end in range(1, len(prompt) + 1):
        s.put(prompt[:end])
    s.cache.flush()


def demote(s: Judged, prompt: str, pages: int | None = None) -> None:
    """Insert a prompt, back it up, and evict its last pages (or all) from the device."""
    put_in_nodes(s, prompt)
    s.evict(full=len(prompt) if pages is None else pages)


def leave_free(s: Judged, component: Component, count: int) -> Slots:
    """Allocate slots of a pool until `count` are free; window slots come with full slots."""
    taken = s.free_slots()[component] - count
    return s.cache.allocate(Counts(full=taken, swa=taken if component is SWA else 0))


# The report's test.


@pytest.mark.parametrize("window", [2, 3, 4])
def test_report_load_short_of_window_slots_evicts_window_data_alone(name: str, window: int) -> None:
    """A load that lacks only window slots evicts window data, and no full page."""
    config = evolve(CONFIG, window_tokens=window)
    s = judged(name, config)
    prompt = "123456"[: window + 2]
    demote(s, prompt)
    assert s.see(prompt, FULL) == "." * len(prompt)
    put_in_nodes(s, OTHER)
    # The load lacks one window slot; there are enough full slots.
    leave_free(s, SWA, window - 1)
    assert s.free_slots()[FULL] >= len(prompt)
    s.heard()
    loaded = s.load(prompt)
    assert loaded.decision is LoadDecision.ENQUEUED
    assert loaded.loading == Counts(full=len(prompt), swa=window)
    assert loaded.evicted == Counts(swa=1)
    assert s.heard() == ""
    assert s.see(OTHER) == "## .#"
    s.cache.flush()
    assert s.cache.match(s.key(prompt)).device_pages == len(prompt)


# Its other rules.


def test_report_load_short_of_full_slots_evicts_as_many_as_it_is_short_of(name: str) -> None:
    """A load evicts exactly the full slots that it lacks."""
    s = judged(name, CONFIG)
    demote(s, PROMPT)
    s.play("put x; put y; put z; flush")
    leave_free(s, FULL, 3)
    loaded = s.load(PROMPT)
    assert (loaded.decision, loaded.evicted.full) == (LoadDecision.ENQUEUED, 2)
    assert [s.see(prompt, FULL) for prompt in "xyz"] == [".", ".", "#"]
    assert s.see(PROMPT, FULL) == "~~~~~"


@pytest.mark.parametrize(("free", "evicted"), [(5, 0), (4, 1), (3, 2)])
def test_report_load_without_windows_goes_by_its_only_pool(
    name: str, free: int, evicted: int
) -> None:
    """A load of a model without windows evicts exactly the full slots that it lacks."""
    s = judged(name, WITHOUT_WINDOW)
    demote(s, PROMPT)
    put_in_nodes(s, OTHER)
    leave_free(s, FULL, free)
    loaded = s.load(PROMPT)
    assert loaded.decision is LoadDecision.ENQUEUED
    assert loaded.evicted == Counts(full=evicted)


def test_report_load_short_of_states_evicts_a_state_alone(name: str) -> None:
    """A load that lacks only a mamba slot evicts a mamba state, and no full page."""
    config = CacheConfig(
        mamba=True,
        device_slots=Counts(full=16, mamba=2),
        host_slots=Counts(full=16, mamba=8),
        write_policy="write_through",
    )
    s = judged(name, config, "put 12; flush; evict full=2")
    put_in_nodes(s, OTHER)
    assert s.free_slots()[MAMBA] == 0
    loaded = s.load("12")
    assert (loaded.decision, loaded.evicted) == (LoadDecision.ENQUEUED, Counts(mamba=1))
    assert s.see(OTHER) == "## .#"


def test_report_path_is_locked_before_anything_is_evicted(name: str) -> None:
    """A load does not evict pages of its own path, though they are least recently used."""
    s = judged(name, WITHOUT_WINDOW)
    demote(s, PROMPT, pages=2)
    put_in_nodes(s, OTHER)
    leave_free(s, FULL, 0)
    loaded = s.load(PROMPT)
    assert (loaded.decision, loaded.evicted) == (LoadDecision.ENQUEUED, Counts(full=2))
    assert s.see(PROMPT, FULL) == "###~~"
    assert s.see(OTHER, FULL) == ".."


def test_report_path_stays_locked_until_the_copy_ends(name: str) -> None:
    """Data that a load reads or fills is not evicted until the copy ends."""
    s = judged(name, CONFIG)
    demote(s, PROMPT)
    s.load(PROMPT)
    assert s.refs(PROMPT, FULL, SWA) == "11111 00111"
    everything = Counts(full=16, swa=16)
    assert not s.cache.evict(everything).freed
    assert not s.cache.evict_host(everything).freed.full
    s.cache.flush()
    assert s.refs(PROMPT, FULL) == "00000"
    assert s.cache.evict(everything).freed.full == 5


def test_report_load_without_room_is_rolled_back(name: str) -> None:
    """A load without enough slots keeps no lock and no slot, and its prompt stays on the host."""
    s = judged(name, WITHOUT_WINDOW)
    demote(s, PROMPT)
    put_in_nodes(s, OTHER)
    receipt = s.lock(OTHER)
    slots = leave_free(s, FULL, 4)
    before = s.cache.snapshot()
    loaded = s.load(PROMPT)
    after = s.cache.snapshot()
    assert (loaded.decision, loaded.transfer_id) == (LoadDecision.NO_ROOM, None)
    assert not s.copies.open_transfer_ids
    assert s.refs(PROMPT, FULL) == "00000"
    assert (after.holds, after.pools, after.nodes) == (before.holds, before.pools, before.nodes)
    assert s.see(PROMPT, FULL, CPU) == "#####"
    s.cache.unlock(receipt)
    s.cache.free(slots)
    assert s.load(PROMPT).decision is LoadDecision.ENQUEUED


def test_report_load_that_is_not_worth_it_evicts_nothing(name: str) -> None:
    """A load that its quota or threshold declines evicts nothing."""
    s = judged(name, evolve(WITHOUT_WINDOW, load_back_threshold_pages=3))
    demote(s, PROMPT)
    put_in_nodes(s, OTHER)
    leave_free(s, FULL, 0)
    over = s.load(PROMPT, quota=4)
    below = s.load(PROMPT[:2])
    assert (over.decision, over.evicted) == (LoadDecision.OVER_QUOTA, Counts())
    assert (below.decision, below.evicted) == (LoadDecision.BELOW_THRESHOLD, Counts())
    assert s.see(OTHER, FULL) == "##"


# The report warns that other callers may mix up the pools in the same way.


def test_report_host_insert_short_of_window_slots_evicts_window_data_alone(name: str) -> None:
    """A host insert that lacks only window slots evicts window data, and no full page."""
    config = evolve(CONFIG, window_tokens=2, host_slots=Counts(full=16, swa=3))
    s = judged(name, config)
    demote(s, OTHER)
    assert s.see(OTHER, SWA, CPU) == "##"
    s.heard()
    assert s.fetch("ab", window=2).placed_pages == 2
    assert s.heard() == "stored CPU 10 11"
    assert s.see(OTHER, FULL, SWA, CPU) == "## .#"
    assert s.see("ab", SWA, CPU) == "##"


def test_report_backup_short_of_window_slots_evicts_window_data_alone(name: str) -> None:
    """A backup that lacks only host window slots evicts window data, and no full page."""
    config = evolve(CONFIG, window_tokens=2, host_slots=Counts(full=16, swa=3))
    s = judged(name, config)
    demote(s, OTHER)
    s.play("put ab; flush")
    assert s.see(OTHER, FULL, SWA, CPU) == "## .#"
    assert s.see("ab", SWA, CPU) == "##"
    assert s.hit("ab") == 2
