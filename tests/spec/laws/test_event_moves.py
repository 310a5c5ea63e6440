"""EVENT-5 and EVENT-10: events for each page that comes or leaves, and no others."""

from __future__ import annotations

import pytest
from attrs import evolve

from event_cases import BACK, CONFIG, EMPTY, ENQUEUED, INSERT, KEY, MUTE, THROUGH, UPPER, state
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, Event
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    EvictHost,
    Flush,
    Free,
    HostPayload,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Poll,
    Receipt,
    Refused,
    Reset,
    TakeEvents,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import (
    CPU,
    SWA,
    Counts,
    Slots,
)
from states import node, on, state_of
from telling import ask, removes, step, stores

WINDOW = evolve(THROUGH, window_tokens=2)

EXCLUSIVE = Profile(loads_keep_host_copies=False)

QUIET: list[Operation] = [
    Match(KEY),
    Lock(KEY),
    Unlock(Receipt(1, KEY)),
    UnlockWindow(Receipt(1, KEY)),
    Allocate(Counts(1)),
    Free(Slots((5,))),
    TakeEvents(),
]


@pytest.mark.parametrize("operation", QUIET, ids=lambda each: type(each).__name__)
def test_silence_of_what_moves_no_full_data(operation: Operation) -> None:
    """Matches, locks and allocations emit no events."""
    there = state()
    assert ask("EVENT-5", step(there, operation, there)) == []
    (said,) = ask("EVENT-5", step(there, operation, there, events=stores(there, 1)))
    assert f"{type(operation).__name__} sent BlockStored" in said


def test_silence_of_a_refusal() -> None:
    """A refused call emits no events."""
    there = state()
    refused = Refused(OutOfSlots("full on GPU", 9, 1))
    assert ask("EVENT-5", step(there, INSERT, there, refused)) == []
    (said,) = ask("EVENT-5", step(there, INSERT, there, refused, stores(there, 2)))
    assert "Insert was refused and sent" in said


def test_silence_where_events_are_off() -> None:
    """A cache whose events are off emits none."""
    there = state(MUTE)
    (said,) = ask("EVENT-5", step(there, INSERT, there, events=stores(there, 1)))
    assert "events are off" in said


def test_media_of_operations_holds_for_every_way_in_and_out() -> None:
    """Pages that are stored where they came, and removed where they left, hold."""
    empty = state(THROUGH, upper=None, lower=None)
    device = state(THROUGH)
    both = state(THROUGH, upper=((0, 1), (0, 1)), lower=((2,), (2,)))
    half = state(THROUGH, upper=((0, 1), (0, 1)), lower=(None, (2,)))
    short = state(THROUGH, upper=((0, 1), (0, 1)), lower=None)
    lower, upper = stores(both, 2), stores(both, 1)
    on_host = (*stores(both, 1, CPU), *stores(both, 2, CPU))
    ways: list[tuple[Snapshot, Operation, Snapshot, tuple[Event, ...]]] = [
        (empty, INSERT, device, (*upper, *lower)),
        (half, INSERT, both, lower),
        (device, Poll(), both, on_host),
        (both, Evict(Counts(1)), half, removes(both, 2)),
        (both, Evict(Counts(1)), short, (*removes(both, 2), *removes(both, 2, CPU))),
        (half, EvictHost(Counts(1)), short, removes(both, 2, CPU)),
        (half, Flush(), both, lower),
        (short, InsertHost(KEY, 2, HostPayload((b"",))), half, stores(both, 2, CPU)),
        (half, LoadBack(KEY), short, removes(both, 2, CPU)),
    ]
    allowed = [not ask("EVENT-10", step(*way[:3], events=way[3])) for way in ways]
    # Deleting what has a host copy is no eviction from the device, and a load frees no host slot.
    assert allowed == [True, True, True, True, False, True, True, True, False]


def test_media_of_operations_sees_what_came_unsaid() -> None:
    """An insert that fills a host-only node without a store is reported (sgl#32537)."""
    before, after = state(THROUGH, lower=(None, (0,))), state(THROUGH, lower=((2,), (0,)))
    (said,) = ask("EVENT-10", step(before, INSERT, after))
    assert "tokens 4..6 (node 2) came to GPU in this Insert" in said
    assert "stored 0 times" in said


def test_media_of_operations_sees_what_left_unsaid() -> None:
    """A deleted leaf without a remove is reported."""
    (said,) = ask("EVENT-10", step(state(), Evict(Counts(1)), state(lower=None)))
    assert "tokens 4..6 (node 2) left GPU in this Evict" in said


def test_media_of_operations_sees_a_second_event() -> None:
    """A second event for a page is reported, and one for a page that did not move."""
    after = state()
    twice = (*stores(after, 1), *stores(after, 2), *stores(after, 2))
    (said,) = ask("EVENT-10", step(EMPTY, INSERT, after, events=twice))
    assert "stored 2 times" in said
    (said,) = ask("EVENT-10", step(after, INSERT, after, events=stores(after, 2)))
    assert "neither came to nor left GPU" in said


def test_media_of_operations_sees_the_wrong_medium() -> None:
    """An eviction to the host that is removed from the host is reported."""
    before = state(THROUGH, lower=((2,), (0,)))
    after = state(THROUGH, lower=(None, (0,)))
    said = ask("EVENT-10", step(before, Evict(Counts(1)), after, events=removes(before, 2, CPU)))
    assert "Evict may not remove from CPU_PINNED" in said[0]
    assert len(said) == 3


@pytest.mark.parametrize(("config", "holds"), [(BACK, True), (THROUGH, False)])
def test_media_of_operations_lets_write_back_copy_in_vain(config: CacheConfig, holds: bool) -> None:
    """Only under write_back may an eviction copy a page to the host and then evict the copy."""
    before, after = state(config), state(config, lower=None)
    copied = stores(before, 2, CPU)
    events: tuple[Event, ...] = (*copied, *removes(before, 2), *removes(before, 2, CPU))
    assert (not ask("EVENT-10", step(before, Evict(Counts(1)), after, events=events))) is holds


def test_media_of_operations_takes_back_what_was_said_too_early() -> None:
    """A load-back that was stored at its enqueue, and failed, is removed."""
    before = state(THROUGH, lower=((2,), (0,)), profile=ENQUEUED, loading=9)
    after = state(THROUGH, lower=(None, (0,)), profile=ENQUEUED)
    assert ask("EVENT-10", step(before, Poll(), after, events=removes(before, 2))) == []
    assert ask("EVENT-10", step(before, Poll(), after))


def test_media_of_operations_holds_for_what_arrived() -> None:
    """An insert that stores what it placed holds."""
    after = state()
    events = (*stores(after, 1), *stores(after, 2))
    assert ask("EVENT-10", step(EMPTY, INSERT, after, events=events)) == []


def test_media_of_operations_sees_a_backup_in_flight() -> None:
    """A backup that is stored at its enqueue is reported (sgl#22894)."""
    before = state(THROUGH)
    after = state(THROUGH, lower=((2,), (0,)), backing=9)
    said = ask("EVENT-10", step(before, INSERT, after, events=stores(after, 2, CPU)))
    assert "Insert may not store on CPU_PINNED" in said[0]
    assert "tokens 4..6 (node 2), whose slots transfer 9 has yet to fill, neither came" in said[1]


def test_media_of_operations_sees_what_is_nowhere() -> None:
    """A store of a page that is not in the tree, or has no slot there, is reported."""
    before, after = state(lower=None), state(lower=None)
    (said,) = ask("EVENT-10", step(before, INSERT, after, events=stores(state(), 2)))
    assert ", which is not in the tree, neither came to nor left GPU in this Insert" in said
    copied = InsertHost(KEY, 2, HostPayload((b"",)))
    there = state(THROUGH)
    (said,) = ask("EVENT-10", step(there, copied, there, events=stores(there, 2, CPU)))
    assert "tokens 4..6 (node 2) neither came to nor left CPU_PINNED in this InsertHost" in said


def test_media_of_operations_forgives_what_was_removed_again() -> None:
    """A page that a write_back eviction copied and then evicted is stored and removed."""
    before, after = state(BACK), state(BACK, lower=None)
    copied = stores(before, 2, CPU)
    events: tuple[Event, ...] = (*copied, *removes(before, 2), *removes(before, 2, CPU))
    assert ask("EVENT-10", step(before, Evict(Counts(1)), after, events=events)) == []


@pytest.mark.parametrize(("profile", "broken"), [(CANON, True), (ENQUEUED, False)])
def test_media_of_operations_follows_the_profile(profile: Profile, broken: bool) -> None:
    """By profile, a load-back is stored at its enqueue."""
    before = state(THROUGH, lower=(None, (0,)), profile=profile)
    after = state(THROUGH, lower=((2,), (0,)), profile=profile, loading=9)
    said = ask("EVENT-10", step(before, LoadBack(KEY), after, events=stores(after, 2)))
    assert bool(said) is broken


def test_media_of_operations_keeps_silent_of_a_window() -> None:
    """An eviction of window data alone emits nothing: the page keeps its full data (sgl#24718)."""
    leaf = node(1, 0, UPPER, full=on((0, 1)), swa=on((0, 1)), page_size=2)
    before = state_of(WINDOW, leaf)
    after = state_of(WINDOW, evolve(leaf, data={**leaf.data, SWA: on()}))
    evict = Evict(Counts(swa=2))
    assert ask("EVENT-10", step(before, evict, after)) == []
    said = ask("EVENT-10", step(before, evict, after, events=removes(before, 1)))
    assert len(said) == 2
    assert "(node 1) neither came to nor left GPU in this Evict; it was stored 0 times" in said[0]


@pytest.mark.parametrize(("profile", "broken"), [(CANON, True), (EXCLUSIVE, False)])
def test_media_of_operations_lets_exclusive_tiers_leave_the_host(
    profile: Profile, broken: bool
) -> None:
    """By profile, the host copy may go in the poll that settles its load-back."""
    before = state(BACK, lower=((2,), (0,)), loading=9, profile=profile)
    events: tuple[Event, ...] = (*stores(before, 2), *removes(before, 2, CPU))
    said = ask("EVENT-10", step(before, Poll(), state(BACK, profile=profile), events=events))
    assert bool(said) is broken


def test_media_of_operations_says_nothing_of_a_cut() -> None:
    """A cut emits nothing."""
    before = state_of(CONFIG, node(1, 0, (1, 2, 3, 4), full=on((0, 1)), page_size=2))
    after = state_of(
        CONFIG,
        node(2, 0, (1, 2), full=on((0,)), page_size=2),
        node(1, 2, (3, 4), full=on((1,)), page_size=2),
    )
    assert ask("EVENT-10", step(before, Match(KEY), after)) == []


def test_media_of_operations_leaves_resets_alone() -> None:
    """Resets are not checked here but by EVENT-8."""
    assert ask("EVENT-10", step(state(), Reset(), EMPTY, events=(AllBlocksCleared(),))) == []
