"""The corpus: whole blocks of small cases, each of which plays, and says what it reaches."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from attrs import evolve

from few_cases import FEW, plan_of
from kvcanon.conformance.cases.actions import ACTIONS, UNDRAWN
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.drawn_stages import CORPUS_BLOCK
from kvcanon.conformance.check.plan import CORPUS_CASES
from kvcanon.conformance.check.trial import Trial, adapter_as
from kvcanon.conformance.corpus import read_corpus
from kvcanon.conformance.protocol.drawn_config import is_large
from kvcanon.spec.operations import METHODS


def test_the_corpus_has_whole_blocks_of_different_small_cases() -> None:
    """There are as many cases as an effort plays, in whole blocks, none of them twice."""
    kept = read_corpus()
    assert len(kept) == CORPUS_CASES
    assert len(kept) % CORPUS_BLOCK == 0
    assert max(Counter(each.case for each in kept).values()) == 1
    assert not any(is_large(each.case.config) for each in kept)
    names = {action.name for each in kept for action in each.case.actions}
    assert names <= ACTIONS.keys() | UNDRAWN.keys()


def test_each_case_says_what_it_reaches() -> None:
    """An operation, and two branches that one call of it takes."""
    for kept in read_corpus():
        operation, _, branches = kept.reaches.partition(": ")
        assert operation in METHODS.values()
        assert re.fullmatch(r".+ is (true|false|met|called).* and .+ is .+", branches)


@pytest.mark.parametrize("part", range(4))
def test_the_plain_cache_keeps_every_law_in_each_case(part: int) -> None:
    """Judged by its states, it is not accused where few cases get."""
    plain = Trial(adapter_as("reference"))
    for number, kept in list(enumerate(read_corpus()))[part::4]:
        found, tally = plain.play(kept.case)
        assert found is None, f"case {number}: {found.text}"
        assert tally.steps


def test_a_fault_that_a_case_shows_is_found_in_it() -> None:
    """A check plays the corpus by the laws, whatever its seed, and says in which case it found."""
    found = []
    for seed in (0, 7):
        plan = plan_of("faulty:Leaky", only=["corpus"], seed=seed)
        (stage,) = (result := check(plan, apart=False)).stages
        assert stage.cases
        first = result.failures[0]
        assert re.fullmatch(r"corpus, case \d+", first.origin)
        assert "ALLOC-3" in first.broken
        found.append((first.origin, first.case))
    assert found[0] == found[1]


def test_cases_that_the_cache_does_not_offer_are_counted() -> None:
    """A cache without large pages plays the other cases."""
    effort = evolve(FEW, corpus_cases=CORPUS_CASES)
    plan = plan_of("faulty:ONLY_SMALL_PAGES", only=["corpus"], effort=effort)
    (stage,) = check(plan, apart=False).stages
    assert stage.cases + stage.unoffered == CORPUS_CASES
    assert 0 < stage.unoffered < CORPUS_CASES
