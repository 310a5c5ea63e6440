"""LOAD-1 to LOAD-3, LOAD-6, LOAD-7: what a load-back evicts, decides and leaves alone."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    LoadBack,
    LoadDecision,
    LoadedBack,
    Refused,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Counts,
)
from kvcanon.spec.views import Step
from load_cases import (
    BRIEF,
    COLD,
    COMING,
    ENQUEUED,
    KEY,
    LOADED,
    NO_ROOM,
    ROOMY,
    STEM,
    STEM_HELD,
    changed,
    cold,
    coming,
    config,
    loaded,
)
from states import ROOT, node, on, state_of
from telling import ask, step

LAWS_OF_LOADS = ["LOAD-1", "LOAD-2", "LOAD-3", "LOAD-4", "LOAD-5", "LOAD-6", "LOAD-7"]

SHORT_OF_SWA = config(Counts(full=8, swa=2, mamba=4))
"""Window slots for the load alone: those that others have must be evicted."""

WIDE = node(5, ROOT, [8, 9], full=on([4, 5]), swa=on([0, 1]))
"""Another prompt, a leaf with window data."""

PLAIN = node(6, ROOT, [7], full=on([6]))
"""Another prompt, a leaf without window data."""

SMALL = config(Counts(full=8, swa=1, mamba=4))
"""Never room for the window."""

STATELESS = config(Counts(full=8, swa=2, mamba=0))
"""Never room for the state."""

THRESHOLD = config(Counts(full=8, swa=8), threshold=3)

LAWFUL: dict[str, Step] = {
    "room enough": loaded(cold(PLAIN), coming(PLAIN)),
    "a leaf leaves for its window data": loaded(
        cold(WIDE, PLAIN, room=SHORT_OF_SWA),
        coming(PLAIN, room=SHORT_OF_SWA),
        evolve(LOADED, evicted=Counts(2, 2)),
    ),
    "nothing to load": loaded(coming(), coming(), LoadedBack(LoadDecision.NOTHING_TO_LOAD)),
    "over the quota": loaded(cold(), cold(), LoadedBack(LoadDecision.OVER_QUOTA), quota=1),
    "below the threshold": loaded(
        state_of(THRESHOLD, STEM, BRIEF),
        state_of(THRESHOLD, STEM, BRIEF),
        LoadedBack(LoadDecision.BELOW_THRESHOLD),
    ),
    "no room": loaded(cold(room=SMALL), cold(room=SMALL), LoadedBack(NO_ROOM)),
    "no room, and a leaf has left in vain": loaded(
        cold(WIDE, PLAIN, room=STATELESS),
        cold(PLAIN, room=STATELESS),
        LoadedBack(NO_ROOM, evicted=Counts(2, 2)),
    ),
}


@pytest.mark.parametrize("law_id", [*LAWS_OF_LOADS, "REC-3"])
@pytest.mark.parametrize("lawful", LAWFUL.values(), ids=list(LAWFUL))
def test_lawful_loads(law_id: str, lawful: Step) -> None:
    """Correct load-backs hold."""
    assert ask(law_id, lawful) == []


@pytest.mark.parametrize("law_id", LAWS_OF_LOADS)
def test_refused_loads_are_not_judged_here(law_id: str) -> None:
    """A refused load-back is not checked."""
    refused = Refused(PrefixNotCached(4, 2))
    assert ask(law_id, step(cold(), LoadBack(KEY), coming(), refused)) == []


def test_load_1_full_pages_for_window_slots_are_named() -> None:
    """Full pages without window data that leave for window slots are reported."""
    before, after = cold(WIDE, PLAIN, room=SHORT_OF_SWA), coming(room=SHORT_OF_SWA)
    (said,) = ask("LOAD-1", loaded(before, after))
    assert said == (
        "node 6 (tokens 0..1) lost 1 full slots to a load that needed 2 full and had 3 free; swa: "
        "2 needed, 0 free; mamba: 1 needed, 4 free"
    )
    # That states are short excuses nothing that has no state.
    (said,) = ask("LOAD-1", loaded(cold(PLAIN, room=STATELESS), cold(room=STATELESS)))
    assert said.startswith("node 6 (tokens 0..1) lost 1 full slots to a load that needed 2 full")


def test_rec_3_nothing_leaves_once_there_is_room() -> None:
    """A load-back that evicts too much, or the wrong leaf, is reported."""
    second = node(7, ROOT, [6], full=on([7]), swa=on([2]))
    room = config(Counts(full=8, swa=4, mamba=4))
    before = cold(WIDE, second, room=room)
    assert ask("REC-3", loaded(before, coming(second, room=room))) == []
    assert ask("REC-3", loaded(before, coming(room=room))) == [
        "LoadBack: full data of page 0 in node 7 (tokens 0..1) left GPU, and should not have",
        "LoadBack: swa data of page 0 in node 7 (tokens 0..1) left GPU, and should not have",
    ]
    said = ask("REC-3", loaded(before, coming(WIDE, room=room)))
    assert said[0] == (
        "LoadBack: full data of pages 0..1 in node 5 (tokens 0..2) should have left GPU, and did "
        "not"
    )


def test_rec_3_what_is_held_for_the_load_makes_no_room() -> None:
    """A load-back may evict window data before its own window, but none of its window."""
    stem = changed(STEM, SWA, on([0, 1], [0, 1]))
    room = config(Counts(full=8, swa=3, mamba=4))
    before = state_of(room, stem, COLD)
    arrived = changed(COMING, SWA, on([2, 0], [2, 3], lock_refs=1, loading=7))
    after = coming(tip=arrived, room=room)
    assert ask("REC-3", loaded(before, after)) == []
    kept = changed(STEM_HELD, SWA, on([0, 1], [0, 1]))
    (said,) = ask("REC-3", loaded(before, coming(stem=kept, tip=COMING, room=room)))
    assert said.startswith("LoadBack: swa data of pages 0..1 in node 1")
    assert said.endswith("should have left GPU, and did not")


def test_load_1_full_slots_may_be_short() -> None:
    """Full pages may leave where full slots are short."""
    room = config(Counts(full=3, swa=4, mamba=4))
    lone = node(6, ROOT, [7], full=on([2]))
    another = node(7, ROOT, [6], full=on([3]))
    before = cold(lone, room=room)
    assert ask("LOAD-1", loaded(before, cold(room=room), LoadedBack(NO_ROOM))) == []
    room = config(Counts(full=5, swa=4, mamba=4))
    before = cold(lone, another, room=room)
    assert ask("LOAD-1", loaded(before, coming(another, room=room))) == []
    assert ask("LOAD-1", loaded(before, coming(room=room))) == []
    assert ask("REC-3", loaded(before, coming(another, room=room))) == []
    (said,) = ask("REC-3", loaded(before, coming(room=room)))
    assert said == (
        "LoadBack: full data of page 0 in node 7 (tokens 0..1) left GPU, and should not have"
    )


@pytest.mark.parametrize(
    ("stem", "said"),
    [
        (
            changed(STEM, FULL, on(None, [0, 1])),
            "page 0 of the key that was to be loaded; its full",
        ),
        (changed(STEM, FULL, on([0, 1])), "its full slot on CPU_PINNED was 0 and is none"),
        (changed(STEM, FULL, on([1, 0], [0, 1])), "its full slot on GPU was 0 and is 1"),
    ],
)
def test_load_2_own_victims_are_named(stem: NodeState, said: str) -> None:
    """A load-back that evicts data of its own key is reported, on either medium."""
    found = ask("LOAD-2", loaded(cold(), coming(stem=stem)))
    assert len(found) == 2
    assert said in found[0]
    assert len(ask("LOAD-2", loaded(cold(), state_of(ROOMY, stem, COLD), LoadedBack(NO_ROOM)))) == 2


def test_load_2_window_and_state_are_its_own() -> None:
    """Window data before the window may leave; that of the window and the state may not."""
    stem = changed(STEM, SWA, on([4, 5], [0, 1]))
    before = state_of(ROOMY, stem, COLD)
    assert ask("LOAD-2", loaded(before, coming(stem=changed(STEM_HELD, SWA, on())))) == []
    tip = changed(changed(COMING, SWA, on([0, 1])), MAMBA, on([1]))
    said = ask("LOAD-2", loaded(before, coming(tip=tip)))
    assert len(said) == 3
    assert "page 3 in node 2 (tokens 2..4) is page 3 of the key that was to be loaded" in said[2]
    assert said[2].endswith("its mamba slot on CPU_PINNED was 0 and is none")


def test_load_3_other_failures_are_named() -> None:
    """A load-back that is not enqueued and keeps locks, or evicts, is reported."""
    over = LoadedBack(LoadDecision.OVER_QUOTA)
    said = ask("LOAD-3", loaded(cold(), coming(), over, quota=0))
    assert any("page 0 in node 1 (tokens 0..2): full lock_refs was 0 and is 1" in s for s in said)
    (said_evicted,) = ask("LOAD-3", loaded(cold(PLAIN), cold(), over))[:1]
    assert said_evicted == "page 0 in node 6 (tokens 0..1) vanished"


def test_load_3_only_the_evicted_differ() -> None:
    """A load-back without enough slots that changes more than its victims is reported."""
    before = cold(WIDE, PLAIN, room=STATELESS)
    failed = LoadedBack(NO_ROOM)
    said = ask("LOAD-3", loaded(before, state_of(STATELESS, STEM_HELD, COLD, PLAIN), failed))
    assert said[0] == "page 0 in node 1 (tokens 0..2): full lock_refs was 0 and is 1"
    touched = evolve(PLAIN, hit_count=9)
    (said_hit,) = ask("LOAD-3", loaded(before, cold(touched, room=STATELESS), failed))
    assert said_hit == "page 0 in node 6 (tokens 0..1): hit_count was 0 and is 9"


@pytest.mark.parametrize(
    ("before", "quota", "told", "right"),
    [
        (cold(), None, LoadDecision.NOTHING_TO_LOAD, "enqueued or no_room"),
        (cold(), 2, LoadDecision.OVER_QUOTA, "enqueued or no_room"),
        (cold(), 1, ENQUEUED, "over_quota"),
        (coming(), None, ENQUEUED, "nothing_to_load"),
        (state_of(THRESHOLD, STEM, BRIEF), None, ENQUEUED, "below_threshold"),
        (state_of(THRESHOLD, STEM, BRIEF), 1, ENQUEUED, "below_threshold or over_quota"),
        (state_of(THRESHOLD, STEM, COLD), None, LoadDecision.BELOW_THRESHOLD, "enqueued"),
    ],
)
def test_load_6_other_reasons_are_named(
    before: Snapshot, quota: int | None, told: LoadDecision, right: str
) -> None:
    """A reason that does not apply is reported, and an enqueue against one that does."""
    (said,) = ask("LOAD-6", loaded(before, before, LoadedBack(told), quota=quota))
    assert f"the decision was {told}, expected {right}" in said


def test_load_6_two_reasons_are_equal() -> None:
    """Of two reasons that apply, either may be given."""
    before = state_of(THRESHOLD, STEM, BRIEF)
    for told in (LoadDecision.BELOW_THRESHOLD, LoadDecision.OVER_QUOTA):
        assert ask("LOAD-6", loaded(before, before, LoadedBack(told), quota=1)) == []


def test_load_6_room_that_is_there_is_named() -> None:
    """The reason "no room" is reported where enough slots are free or could be freed."""
    (said,) = ask("LOAD-6", loaded(cold(), cold(), LoadedBack(NO_ROOM)))
    assert said == (
        "2 full, 2 swa and 1 mamba slots have to be loaded, and there is room or could be made: "
        "14 full, 16 swa and 4 mamba slots are free, and the decision was no_room"
    )
    short = cold(WIDE, room=SHORT_OF_SWA)
    assert len(ask("LOAD-6", loaded(short, short, LoadedBack(NO_ROOM)))) == 1


def test_load_6_pages_before_the_window_need_no_window_data() -> None:
    """Window data before the last window need not be loaded."""
    here = state_of(ROOMY, STEM, node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3])))
    assert ask("LOAD-6", loaded(here, here, LoadedBack(LoadDecision.NOTHING_TO_LOAD))) == []
    shorter = KEY.prefix(3)
    (said,) = ask("LOAD-6", loaded(here, here, LoadedBack(LoadDecision.OVER_QUOTA), key=shorter))
    assert said.startswith("0 full, 1 swa and 0 mamba slots have to be loaded")
    whole = evolve(here, profile=Profile(window_lock_exact=False))
    (said,) = ask("LOAD-6", loaded(whole, whole, LoadedBack(LoadDecision.OVER_QUOTA), key=shorter))
    assert said.startswith("0 full, 2 swa and 0 mamba slots have to be loaded")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (coming(evolve(PLAIN, hit_count=2)), "hit_count was 0 and is 2"),
        (coming(changed(PLAIN, FULL, on([9]))), "its full slot on GPU was 6 and is 9"),
        (coming(PLAIN, stem=evolve(STEM_HELD, hit_count=3)), "hit_count was 0 and is 3"),
        (
            coming(
                PLAIN,
                tip=changed(COMING, FULL, on([2, 3], [2, 3], lock_refs=1, loading=7, backing=8)),
            ),
            "full backup in flight was none and is 8",
        ),
    ],
)
def test_load_7_other_changes_are_named(after: Snapshot, words: str) -> None:
    """A load-back that changes other nodes, or hits and backups of its path, is reported."""
    found = ask("LOAD-7", loaded(cold(PLAIN), after))
    assert found
    assert all(words in each for each in found)


def test_load_7_locked_victims_are_named() -> None:
    """A load-back that evicts locked data is reported."""
    locked = changed(PLAIN, FULL, on([6], lock_refs=1))
    (said,) = ask("LOAD-7", loaded(cold(locked), coming()))
    assert said == (
        "page 0 in node 6 (tokens 0..1), with 1 full lock_refs: its full slot on GPU was 6 and is "
        "none"
    )
