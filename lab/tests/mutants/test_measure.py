"""The measure: what is counted, what is skipped, and when a bar is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.cli.mutants_mechanical import counts
from kvcanon.lab.mutants.detection import MutantVerdict, Sight
from kvcanon.lab.mutants.equivalents import (
    LIST,
    Core,
    Reviewed,
    ReviewKind,
    read_reviewed,
    require_places,
)
from kvcanon.lab.mutants.finder import all_places
from kvcanon.lab.mutants.place import MutantPlace
from kvcanon.lab.mutants.sample import draw_sample
from kvcanon.lab.mutants.score import Measure
from kvcanon.spec.law import LAWS
from paths import ROOT


def measured(*sights: Sight, core: Core = Core.REFERENCE, **reviewed: ReviewKind) -> Measure:
    """Return a measure of mutants m0, m1, ... with these results."""
    places = [MutantPlace(f"m{number}", "a.py", 1, "old", "new") for number in range(len(sights))]
    verdicts = tuple(map(MutantVerdict, places, sights))
    entries = {name: Reviewed(name, kind, "because") for name, kind in reviewed.items()}
    return Measure(core, 0, "quick", 99, verdicts, entries)


def test_survivors_do_not_count_where_nothing_shows() -> None:
    """A survivor that no method finds does not lower the share of the laws."""
    found = measured(Sight.LAW, Sight.CRASH, Sight.DEAD, Sight.AGREEMENT, Sight.NOBODY)
    assert found.percent == 75
    assert not found.reached


def test_a_mutant_counts_for_the_strictest_class_that_sees_it() -> None:
    """A mutant that breaks laws of several classes is counted once, for the strictest."""
    found = measured(Sight.LAW, Sight.LAW, Sight.LAW, Sight.CRASH)
    broken = [("REC-1", "TREE-1"), ("REC-1", "RES-1"), ("REC-1",), ("KeyError",)]
    seen = zip(found.verdicts, broken, strict=True)
    found = evolve(found, verdicts=tuple(evolve(each, seen=laws) for each, laws in seen))
    classes = [LAWS[law_id].law_class.value for law_id in ("TREE-1", "RES-1", "REC-1")]
    assert classes == ["sound", "serving", "policy"]
    assert list(counts(found).values())[:4] == [1, 1, 1, 1]


def test_of_the_native_core_every_survivor_counts() -> None:
    """In the native core every survivor that is not reviewed lowers the share."""
    sights = (Sight.LAW, Sight.AGREEMENT, Sight.DEAD, Sight.NOBODY)
    assert measured(*sights, core=Core.NATIVE).percent == 75


@pytest.mark.parametrize("sight", [Sight.LAW, Sight.AGREEMENT])
def test_a_mutant_that_is_equal_and_seen_is_stale(sight: Sight) -> None:
    """A mutant that is listed as equivalent and was found is a stale entry."""
    found = measured(Sight.LAW, sight, m1=ReviewKind.EQUAL)
    assert [verdict.place.place_id for verdict in found.stale] == ["m1"]
    assert found.percent == 100
    assert not found.reached


def test_a_lawful_mutant_may_differ_and_break_no_law() -> None:
    """A lawful mutant may differ in a comparison; one that breaks a law is stale."""
    assert measured(Sight.LAW, Sight.AGREEMENT, m1=ReviewKind.LAWFUL).reached
    assert not measured(Sight.LAW, Sight.CRASH, m1=ReviewKind.LAWFUL).reached


def test_reviewed_mutants_do_not_count() -> None:
    """Reviewed mutants do not lower the share in the native core."""
    found = measured(Sight.LAW, Sight.NOBODY, core=Core.NATIVE, m1=ReviewKind.EQUAL)
    assert found.percent == 100
    assert found.reached


def test_a_sample_is_drawn_by_ids() -> None:
    """An edit of one function does not change the sample of the others."""
    places = [MutantPlace(f"m{number}", "a.py", number, "old", "new") for number in range(100)]
    sample = {place.place_id for place in draw_sample(places, 20, 1)}
    moved = [evolve(place, line=place.line + 1) for place in places[1:]]
    assert len(sample & {place.place_id for place in draw_sample(moved, 20, 1)}) >= 19
    assert sample != {place.place_id for place in draw_sample(places, 20, 2)}
    assert len(draw_sample(places, None, 1)) == 100


def test_the_list_of_this_checkout_is_of_places_that_there_are() -> None:
    """Every entry of the checkout's list is of an existing place."""
    reviewed = read_reviewed(ROOT, Core.REFERENCE)
    require_places(reviewed, all_places())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[reference]\n", "cannot be read"),
        ("[reference.equal]\na = 1\n", "cannot be read"),
        ('[reference.dull]\na = "b"\n', "dull"),
        ('[native.equal]\na = "b"\n', ""),
        ('[reference.equal]\na = "b"\na = "c"\n', "cannot be read"),
        ('[reference.equal]\na = "b"\n[reference.lawful]\na = "b"\n', "under both kinds"),
    ],
)
def test_a_list_that_cannot_be_read_is_a_fault(tmp_path: Path, text: str, said: str) -> None:
    """A mistake in the list is a usage error, and entries of other cores are skipped."""
    path = tmp_path / LIST
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    if not said:
        assert read_reviewed(tmp_path, Core.REFERENCE) == {}
        return
    with pytest.raises(UsageError, match=said):
        read_reviewed(tmp_path, Core.REFERENCE)


def test_an_entry_of_no_place_is_a_fault() -> None:
    """An entry of a place that is gone is a usage error with its id."""
    entries = {"gone.f:true:1": Reviewed("gone.f:true:1", ReviewKind.EQUAL, "because")}
    with pytest.raises(UsageError, match=r"gone\.f:true:1, which is no place"):
        require_places(entries, all_places())
