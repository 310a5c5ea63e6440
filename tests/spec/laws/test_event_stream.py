"""EVENT-1, EVENT-2 and EVENT-4: streams that hold, and streams that mislead a router."""

from __future__ import annotations

import pytest

from event_cases import BACK, ENQUEUED, MUTE, THROUGH, state
from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.types import (
    CPU,
    GPU,
    Medium,
)
from telling import ask, names_of, removes, stores, stream


def test_parents_first_holds_from_the_root_down() -> None:
    """Stores from the root down hold."""
    there = state()
    assert ask("EVENT-1", stream(there, *stores(there, 1), *stores(there, 2))) == []
    assert ask("EVENT-1", stream(there, *stores(there, 2), start=stores(there, 1))) == []


def test_parents_first_sees_a_child_before_its_parent() -> None:
    """A store of a child before its parent's is reported."""
    there = state()
    (said,) = ask("EVENT-1", stream(there, *stores(there, 2), *stores(there, 1)))
    assert "while the page before it" in said
    assert names_of(there, 2)[0].hex()[:8] in said


def test_parents_first_looks_at_each_medium_alone() -> None:
    """A parent on the device, or one that was removed or cleared, is no parent on the host."""
    there = state(THROUGH)
    assert ask("EVENT-1", stream(there, *stores(there, 2, CPU), start=stores(there, 1, GPU)))
    gone = removes(there, 1)[:1]
    assert ask("EVENT-1", stream(there, *gone, *stores(there, 2), start=stores(there, 1)))
    cleared = AllBlocksCleared()
    assert ask("EVENT-1", stream(there, cleared, *stores(there, 2), start=stores(there, 1)))


def test_parents_first_lets_write_back_have_holes_on_the_host() -> None:
    """Under write_back a child may be on the host without its parent, not on the device."""
    there = state(BACK)
    assert ask("EVENT-1", stream(there, *stores(there, 2, CPU))) == []
    assert ask("EVENT-1", stream(there, *stores(there, 2, GPU)))


def test_stores_and_removes_alternate_holds() -> None:
    """A page may be stored, removed and stored again."""
    there = state()
    assert ask("EVENT-2", stream(there, *stores(there, 1), *removes(there, 1))) == []
    assert ask("EVENT-2", stream(there, *removes(there, 1), start=stores(there, 1))) == []
    again: tuple[Event, ...] = (AllBlocksCleared(), *stores(there, 1))
    assert ask("EVENT-2", stream(there, *again, start=stores(there, 1))) == []


def test_stores_and_removes_alternate_sees_a_second_store() -> None:
    """A second store of a page on one medium is reported."""
    there = state()
    said = ask("EVENT-2", stream(there, *stores(there, 1), start=stores(there, 1)))
    assert len(said) == 2
    assert "was stored on GPU, where it was already" in said[0]


def test_stores_and_removes_alternate_sees_a_removal_of_nothing() -> None:
    """A remove of a page that is not on the medium is reported."""
    there = state()
    (said,) = ask("EVENT-2", stream(there, *removes(there, 2, CPU), start=stores(there, 2, GPU)))
    assert "was removed from CPU_PINNED, where it was not" in said


def test_stream_is_residency_holds() -> None:
    """Stores that add up to the residency hold, on each medium."""
    there = state(THROUGH, upper=((0, 1), (0, 1)))
    told = (*stores(there, 1), *stores(there, 1, CPU))
    assert ask("EVENT-4", stream(there, *stores(there, 2), start=told)) == []


def test_stream_is_residency_sees_what_is_there_unsaid() -> None:
    """A resident page without a store is reported."""
    there = state(THROUGH, upper=((0, 1), (0, 1)))
    (said,) = ask("EVENT-4", stream(there, *stores(there, 1), *stores(there, 2)))
    assert "about 2 pages on CPU_PINNED" in said
    assert "tokens 0..2 (node 1)" in said or "tokens 2..4 (node 1)" in said
    assert "is resident without a store" in said


def test_stream_is_residency_sees_what_is_not_there() -> None:
    """A page that left without a remove is reported."""
    there = state(lower=None)
    (said,) = ask("EVENT-4", stream(there, *stores(there, 1), *stores(state(), 2)))
    assert "about 1 pages on GPU" in said
    assert "nowhere in the tree, is not resident" in said


def test_stream_is_residency_leaves_out_copies_in_flight() -> None:
    """A page whose backup is in flight is not on the host yet."""
    there = state(THROUGH, lower=((2,), (0,)), backing=9)
    told: tuple[Event, ...] = (*stores(there, 1), *stores(there, 2))
    assert ask("EVENT-4", stream(there, *told)) == []
    assert ask("EVENT-4", stream(there, *told, *stores(there, 2, CPU)))


@pytest.mark.parametrize(("profile", "broken"), [(CANON, True), (ENQUEUED, False)])
def test_stream_is_residency_follows_the_profile(profile: Profile, broken: bool) -> None:
    """By profile, a page whose load-back is in flight is on the device."""
    there = state(upper=((0, 1), None), lower=((2,), None), profile=profile, loading=9)
    said = ask("EVENT-4", stream(there, *stores(there, 1), *stores(there, 2)))
    assert bool(said) is broken


def test_stream_is_residency_says_nothing_of_the_disk() -> None:
    """Events about the disk are not checked, as states do not show it."""
    there = state()
    disk = BlockStored(b"elsewhere", None, (1, 2), Medium.DISK)
    assert ask("EVENT-4", stream(there, disk, *stores(there, 1), *stores(there, 2))) == []


@pytest.mark.parametrize("law_id", ["EVENT-1", "EVENT-2", "EVENT-4", "EVENT-6", "EVENT-9"])
def test_streams_are_not_judged_where_events_are_off(law_id: str) -> None:
    """Stream laws check nothing where events are off."""
    there = state(MUTE)
    junk = BlockStored(b"x", b"y", (1,), GPU)
    assert ask(law_id, stream(there, junk, BlockRemoved(b"z", CPU))) == []
