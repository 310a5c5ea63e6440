"""EVENT-8 and EVENT-11 to EVENT-14: resets, the first event, and the order of events."""

from __future__ import annotations

import pytest
from attrs import evolve

from event_cases import BACK, EMPTY, INSERT, MUTE, THROUGH, state
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, Event
from kvcanon.spec.operations import (
    Evict,
    EvictHost,
    Poll,
    Refused,
    Reset,
    TakeEvents,
    Taken,
)
from kvcanon.spec.types import (
    CPU,
    Counts,
)
from telling import ask, removes, step, stores, stream

CLEARED = AllBlocksCleared()


def test_reset_clears_holds() -> None:
    """A reset that emits one event holds."""
    assert ask("EVENT-8", step(state(), Reset(), EMPTY, events=(AllBlocksCleared(),))) == []
    assert ask("EVENT-8", step(state(MUTE), Reset(), state(MUTE, upper=None, lower=None))) == []


@pytest.mark.parametrize(
    "events", [(), (AllBlocksCleared(), AllBlocksCleared()), removes(state(), 2)], ids=len
)
def test_reset_clears_sees_anything_else(events: tuple[Event, ...]) -> None:
    """A reset that emits no AllBlocksCleared, two, or removes is reported."""
    (said,) = ask("EVENT-8", step(state(), Reset(), EMPTY, events=events))
    assert "not one AllBlocksCleared" in said


def test_reset_clears_sees_other_operations_clear() -> None:
    """AllBlocksCleared from another operation, or from a refused reset, is reported."""
    there = state()
    (said,) = ask("EVENT-8", step(there, Poll(), there, events=(AllBlocksCleared(),)))
    assert "Poll sent AllBlocksCleared" in said
    refused = Refused(OutOfSlots("", 0, 0))
    assert ask("EVENT-8", step(there, Reset(), there, refused)) == []


def test_taken_once_holds() -> None:
    """All waiting events are handed out; other operations only add to them."""
    events: tuple[Event, ...] = stores(state(), 1)
    waiting = evolve(state(), events=events[:1])
    assert ask("EVENT-11", step(waiting, TakeEvents(), state(), Taken(events[:1]))) == []
    assert ask("EVENT-11", step(waiting, INSERT, evolve(state(), events=events))) == []


def test_taken_once_sees_lost_and_repeated_events() -> None:
    """Lost, repeated and changed events are reported."""
    events: tuple[Event, ...] = stores(state(), 1)
    waiting = evolve(state(), events=events)
    (said,) = ask("EVENT-11", step(waiting, TakeEvents(), state(), Taken(events[1:])))
    assert "2 events waited" in said
    (said,) = ask("EVENT-11", step(waiting, TakeEvents(), waiting, Taken(events)))
    assert "still wait" in said
    (said,) = ask("EVENT-11", step(waiting, Poll(), evolve(waiting, events=events[1:])))
    assert "Poll changed them" in said


def test_children_leave_first_holds() -> None:
    """A prefix that is removed from its last page on holds."""
    before = state()
    events = (*removes(before, 2), *removes(before, 1))
    assert ask("EVENT-12", step(before, Evict(Counts(3)), EMPTY, events=events)) == []


def test_children_leave_first_sees_a_parent_go_first() -> None:
    """A page that is removed before one that builds on it is reported, in a node or below it."""
    before = state()
    events = (*reversed(removes(before, 1)), *removes(before, 2))
    said = ask("EVENT-12", step(before, Evict(Counts(3)), EMPTY, events=events))
    assert len(said) == 2
    assert "tokens 2..4 (node 1) was removed from GPU after the page before it" in said[0]


def test_children_leave_first_follows_the_profile() -> None:
    """By profile, a node may be removed from its front, but not before nodes below it."""
    before = state(profile=Profile(removes_end_first=False))
    front, below = tuple(reversed(removes(before, 1))), removes(before, 2)
    evict = Evict(Counts(3))
    assert ask("EVENT-12", step(before, evict, EMPTY, events=(*below, *front))) == []
    (said,) = ask("EVENT-12", step(before, evict, EMPTY, events=(*front, *below)))
    assert "tokens 4..6 (node 2) was removed from GPU after the page before it" in said
    (said,) = ask("EVENT-12", step(before, evict, EMPTY, events=(front[0], *below, front[1])))
    assert "was removed from GPU after a page of node 1, which is above it" in said


@pytest.mark.parametrize(("config", "broken"), [(BACK, False), (THROUGH, True)])
def test_children_leave_first_on_the_host(config: CacheConfig, broken: bool) -> None:
    """Under write_back pages may leave the host in any order."""
    before = state(config, upper=(None, (0, 1)), lower=(None, (2,)))
    after = state(config, upper=None, lower=None)
    events = (*reversed(removes(before, 1, CPU)), *removes(before, 2, CPU))
    said = ask("EVENT-12", step(before, EvictHost(Counts(3)), after, events=events))
    assert bool(said) is broken


@pytest.mark.parametrize("law_id", ["EVENT-7", "EVENT-8", "EVENT-10", "EVENT-12"])
def test_steps_are_not_judged_where_events_are_off(law_id: str) -> None:
    """Step laws of events demand none where events are off."""
    assert ask(law_id, step(state(MUTE, upper=None, lower=None), INSERT, state(MUTE))) == []


def test_begins_cleared_holds_for_a_cache_that_clears_first() -> None:
    """A stream that begins with AllBlocksCleared holds, and one from a later moment."""
    told = stream(state(), AllBlocksCleared(), *stores(state(), 1))
    assert ask("EVENT-13", evolve(told, begins=True)) == []
    later = stream(state(), *stores(state(), 1))
    assert ask("EVENT-13", later) == []
    mute = evolve(stream(state(MUTE)), begins=True)
    assert ask("EVENT-13", mute) == []


@pytest.mark.parametrize("events", [(), stores(state(), 1), (*stores(state(), 1), CLEARED)])
def test_begins_cleared_sees_another_beginning(events: tuple[Event, ...]) -> None:
    """A cache that begins without an event, or with a page, is reported."""
    (said,) = ask("EVENT-13", evolve(stream(state(), *events), begins=True))
    assert said.startswith("the first events of the cache are ")
    assert said.endswith("not AllBlocksCleared")


DEMOTED = state(BACK, lower=(None, (2,)))

OUT, IN_HOST = removes(state(BACK), 2), stores(state(BACK), 2, CPU)


@pytest.mark.parametrize(
    "events",
    [
        (*IN_HOST, *OUT),
        OUT,
        (*removes(state(BACK), 2, CPU), *IN_HOST, *OUT),
        (*removes(state(BACK), 1), *IN_HOST, *OUT),
        (),
    ],
    ids=["stored first", "left", "made anew", "another", "nothing"],
)
def test_moved_pages_are_never_nowhere_holds(events: tuple[Event, ...]) -> None:
    """A page that is stored on one medium before it is removed from the other holds."""
    told = step(state(BACK), Evict(Counts(1)), DEMOTED, events=events)
    assert ask("EVENT-14", told) == []


def test_moved_pages_are_never_nowhere_sees_a_gap() -> None:
    """A page that is removed from the device before it is stored on the host is reported."""
    told = step(state(BACK), Evict(Counts(1)), DEMOTED, events=(*OUT, *IN_HOST))
    (said,) = ask("EVENT-14", told)
    assert said.endswith("was removed from one medium before it was stored on CPU_PINNED")
    muted = evolve(told, after=evolve(DEMOTED, config=evolve(BACK, events=False)))
    assert ask("EVENT-14", muted) == []
