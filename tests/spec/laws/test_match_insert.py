"""MATCH-6 and MATCH-7: what is found after an insert, and while it is loaded."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.operations import Insert, Inserted
from kvcanon.spec.snapshot import (
    ComponentState,
    Snapshot,
)
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    Counts,
    Slots,
    TransferId,
)
from match_cases import HELD, KEY, LOWER, RECURRENT, UPPER, loading, match, matched, path
from states import node, on
from telling import ask, step


def insert(
    before: Snapshot, after: Snapshot, slots: Slots, present: int, start: int | None = None
) -> list[str]:
    """What the law reports of an insert of `KEY`, from page `start` or from where slots begin."""
    begin = len(KEY) - len(slots.full) if start is None else start
    outcome = Inserted(present, Counts(), Counts())
    return ask("MATCH-6", step(before, Insert(KEY, begin, slots), after, outcome))


def below(full: ComponentState, swa: ComponentState | None = None) -> Snapshot:
    """`UPPER`, and the last two pages of `KEY` with this data."""
    return path(UPPER, node(2, 1, [3, 4], full=full, swa=swa))


BROUGHT = Slots((2, 3), (2, 3))


@pytest.mark.parametrize(
    ("before", "slots", "present"),
    [
        (path(UPPER), BROUGHT, 2),
        (below(on([2, 3])), Slots((8, 9), (2, 3)), 4),
        (below(on(None, [2, 3])), BROUGHT, 2),
        (path(), Slots((0, 1, 2, 3), (0, 1, 2, 3)), 0),
        (HELD, Slots(), 4),
    ],
    ids=["new leaf", "healed", "back on the device", "new prompt", "nothing new"],
)
def test_match_6_inserted_key_holds(before: Snapshot, slots: Slots, present: int) -> None:
    """An insert after which all its data is there holds."""
    assert insert(before, HELD, slots, present) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (path(UPPER), "only 2 of 4 inserted pages are in the tree afterwards"),
        (below(on(None, [2, 3])), "full data of page 2 of an inserted key is not on GPU"),
        (below(on([2, 3], [2, 3], loading=8), on([2, 3])), "full data of page 2"),
        (below(on([2, 3])), "swa data of page 2"),
        (
            path(evolve(UPPER, data={FULL: on([0, 1])}), LOWER),
            "swa data of page 0 of an inserted key",
        ),
    ],
    ids=["not there", "host", "loading", "not healed", "lost"],
)
def test_match_6_missing_data_is_named(after: Snapshot, said: str) -> None:
    """An insert that loses what it brought, or what was there, is reported."""
    found = insert(path(UPPER), after, BROUGHT, 2)
    assert any(said in each for each in found), found
    assert all("afterwards" in each for each in found)


def test_match_6_leaf_without_window_data_may_be_dropped() -> None:
    """By profile, a new leaf without window data may be gone, and no other leaf."""
    kept = path(UPPER)
    dropped = evolve(kept, profile=Profile(tombstone_leaves=False))
    assert insert(kept, dropped, Slots((2, 3)), 2) == []
    assert insert(kept, kept, Slots((2, 3)), 2) != []
    assert insert(kept, dropped, BROUGHT, 2) != []
    half = evolve(path(UPPER, node(2, 1, [3], full=on([2]))), profile=dropped.profile)
    assert insert(kept, half, Slots((2, 3)), 2) != []


def test_match_6_window_data_that_nobody_brought_may_lack() -> None:
    """Window data that the request had freed need not be there."""
    tombstone = below(on([2, 3]))
    assert insert(path(UPPER), tombstone, Slots((2, 3)), 2) == []
    half = path(
        UPPER,
        node(2, 1, [3], full=on([2])),
        node(3, 2, [4], full=on([3]), swa=on([3])),
    )
    assert insert(path(UPPER), half, Slots((2, 3), (3,)), 2) == []
    assert insert(path(UPPER), half, BROUGHT, 2) != []


def test_match_6_windows_out_of_reach_may_be_freed_where_the_profile_says_so() -> None:
    """By profile, new window data before the last window may be freed, not what was there."""
    dropping = Profile(unreachable_windows_kept=False)
    brought = Slots((0, 1, 2, 3), (0, 1, 2, 3))
    bare = evolve(path(evolve(UPPER, data={FULL: on([0, 1])}), LOWER), profile=dropping)
    assert insert(path(), bare, brought, 0) == []
    assert insert(path(), evolve(bare, profile=CANON), brought, 0) != []
    (said,) = insert(path(UPPER), bare, BROUGHT, 2)
    assert "swa data of page 0" in said
    assert "it was there before" in said
    reached = evolve(below(on([2, 3])), profile=dropping)
    assert insert(path(UPPER), reached, BROUGHT, 2) != []


def test_match_6_hole_under_an_insert_is_named() -> None:
    """An insert above pages that are not there is reported."""
    after = path(evolve(UPPER, data={FULL: on(None, [0, 1])}), LOWER)
    found = insert(after, after, Slots(), 0, start=4)
    assert any("full data of page 0" in each and "builds on it" in each for each in found)


def test_match_6_load_in_flight_keeps_its_slots() -> None:
    """An insert that takes window slots of a load in flight is reported."""
    loading = below(on([2, 3]), on([2, 3], [2, 3], loading=8))
    assert insert(loading, loading, Slots(), 4) == []
    (first, *_) = insert(loading, below(on([2, 3]), on(None, [2, 3])), Slots(), 4)
    assert "swa data of page 2" in first
    assert "it was there before" in first


@pytest.mark.parametrize("had", [None, 0], ids=["brought", "was there"])
def test_match_6_keeps_the_state_at_the_end(had: int | None) -> None:
    """A missing mamba state that an insert brought, or that was there, is reported."""

    def with_state(slot: int | None) -> Snapshot:
        data = {FULL: on([2, 3]), MAMBA: on() if slot is None else on([slot])}
        upper = evolve(UPPER, data={FULL: on([0, 1])})
        return path(upper, evolve(LOWER, data=data), config=RECURRENT)

    brought = Slots(mamba=(1,) if had is None else ())
    assert insert(with_state(had), with_state(1), brought, 4) == []
    (said,) = insert(with_state(had), with_state(None), brought, 4)
    assert "mamba data of page 3" in said
    assert ("brought" in said) is (had is None)


def test_match_6_present_pages_are_those_of_before() -> None:
    """A wrong count of pages that were there is reported."""
    (said,) = insert(path(UPPER), HELD, BROUGHT, 3)
    assert "says that 3 of its 4 pages had full data on GPU before, and 2 had" in said


@pytest.mark.parametrize(
    ("state", "prefix_pages", "pending"),
    [
        (loading(upper=None, lower=None), 4, ()),
        (loading(upper=8, lower=9), 4, (8, 9)),
        (loading(upper=8, lower=8), 4, (8,)),
        (loading(upper=8, lower=9), 2, (8,)),
        (loading(upper=8, lower=9), 3, (9, 8)),
        (loading(upper=8, lower=9), 0, ()),
    ],
    ids=["none", "two", "one", "behind the prefix", "any order", "nothing usable"],
)
def test_match_7_names_the_loads_of_the_prefix(
    state: Snapshot, prefix_pages: int, pending: tuple[TransferId, ...]
) -> None:
    """A match that leaves out a load of its prefix, or names another, is reported."""
    assert match("MATCH-7", state, matched(prefix_pages, 0, pending=pending)) == []
    (said,) = match("MATCH-7", state, matched(prefix_pages, 0, pending=(*pending, 77)))
    assert "77" in said
    if pending:
        (said,) = match("MATCH-7", state, matched(prefix_pages, 0, pending=pending[1:]))
        assert f"{sorted(pending)} are loading them" in said
        assert match("MATCH-7", state, matched(prefix_pages, 0, pending=pending * 2)) != []
