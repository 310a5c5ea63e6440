"""Planting: a copy of the plain cache with one change, beside the plain cache."""

from __future__ import annotations

import sys
from typing import cast

import pytest

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.adapter import make_subject
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.lab.mutants.detection import Sight
from kvcanon.lab.mutants.finder import all_places
from kvcanon.lab.mutants.judge import Budget, judge
from kvcanon.lab.mutants.planted_package import mutant_of
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig

FEW = Budget(first=8, checked=8, stored=4, compared=8, inside=8)


def test_a_copy_without_a_change_does_the_same() -> None:
    """An unchanged copy of the plain cache agrees with it in every case."""
    copy = mutant_of(None)
    for number in range(6):
        finding, _ = Trial(copy, against=REFERENCE).play(draw_case(number, copy.offer))
        assert finding is None


def test_copies_share_no_module_with_the_plain_cache() -> None:
    """A mutant runs in modules of its own, and sys.modules does not keep them."""
    made = make_subject(mutant_of(None), CacheConfig()).cache
    cache = cast("ReferenceCache", made)
    assert not isinstance(cache, ReferenceCache)
    assert "kvcanon_mutant" in type(cache._state).__module__
    assert not any(name.startswith("kvcanon_mutant") for name in sys.modules)


@pytest.mark.parametrize(
    ("place_id", "sight"),
    [
        # Slots of duplicates are not freed.
        ("insert._free:remove-call:1", Sight.LAW),
        # The hashes of pages are never computed.
        ("events.hash_pages:false:1", Sight.CRASH),
        # The ids of nodes and receipts begin with 2.
        ("state.State:plus-one:2", Sight.NOBODY),
    ],
)
def test_a_mutant_is_seen_by_whom_it_should_be(place_id: str, sight: Sight) -> None:
    """A mutant is found by a law, by a crash or not at all, depending on its change."""
    verdict = judge(all_places()[place_id], 0, FEW)
    assert verdict.sight is sight
    assert bool(verdict.seen) is (sight is not Sight.NOBODY)


def test_every_place_is_of_another_line_or_change() -> None:
    """The line of every place differs after its change."""
    for place in all_places().values():
        assert place.old != place.new, place.place_id


def test_engines_and_texts_have_no_places() -> None:
    """The transfer engine, which the judge replaces, is not mutated."""
    places = all_places().values()
    assert {place.module for place in places}.isdisjoint({"engine", "__init__"})
    assert len(places) > 1_000
