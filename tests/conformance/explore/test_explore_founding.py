"""The founding bugs: exploration finds each on a shortest path, in the smallest scope."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from exploring import PLAIN, expander
from kvcanon.conformance.explore.expansion import Expander
from kvcanon.conformance.explore.exploration import ExplorationLimits, explore
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.scopes.founding import FOUNDING
from kvcanon.conformance.vectors import Vector, read_vectors
from kvcanon.lab.mutants.faulty import mutated
from kvcanon.lab.mutants.planted import MUTANTS, Mutant
from kvcanon.spec.law import LAWS

BUGS = [mutant for mutant in MUTANTS if mutant.founding]
LEAST = PLAIN.offer.least_slots
each_bug = pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])


def vector_of(bug: Mutant) -> Vector:
    """Return the last vector that exploration made: stronger laws show a bug on shorter paths."""
    found = [
        each
        for each in read_vectors()
        if each.mutant == bug.name and each.case.config == FOUNDING[bug.name].config
    ]
    return max(found, key=lambda each: each.vector_id)


def test_every_founding_bug_has_a_scope() -> None:
    """Each founding bug has one scope, and each scope one bug."""
    assert FOUNDING.keys() == {bug.name for bug in BUGS}


@each_bug
def test_exhaustion_finds_it_by_the_vector(bug: Mutant) -> None:
    """Each bug is found on the path and by the laws of its vector."""
    scope, vector = FOUNDING[bug.name], vector_of(bug)
    found = explore(expander(scope, mutated(bug)))
    assert found.finding is not None
    assert bug.law_id in found.finding.broken
    assert scope.made_for == (bug.law_id,) == (vector.law_id,)
    assert found.finding.case.actions == vector.case.actions
    assert vector.case.drain == ()


@each_bug
def test_the_plain_cache_passes_there(bug: Mutant) -> None:
    """The plain cache holds in the bug's scope, and the law is exercised."""
    limits = ExplorationLimits(levels=len(vector_of(bug).case.actions))
    found = explore(expander(FOUNDING[bug.name]), limits=limits)
    assert found.finding is None
    assert not found.missed


@pytest.mark.nightly
@each_bug
def test_no_smaller_scope_shows_it(bug: Mutant) -> None:
    """With one slot, page or prompt less the bug is not found."""
    for scope in smaller(FOUNDING[bug.name]):
        by = Expander(mutated(bug), scope, [LAWS[bug.law_id]])
        limits = ExplorationLimits(levels=len(vector_of(bug).case.actions))
        assert explore(by, limits=limits).finding is None


def smaller(scope: Scope) -> Iterator[Scope]:
    """Yield scopes with one slot, page or prompt less."""
    config, fans = scope.config, scope.fans
    for pool in ("device_slots", "host_slots"):
        counts = getattr(config, pool)
        for component in ("full", "swa"):
            left = getattr(counts, component) - 1
            if left >= (LEAST if (pool, component) == ("device_slots", "full") else 0):
                less = evolve(config, **{pool: evolve(counts, **{component: left})})
                yield evolve(scope, config=less)
    for at, fan in enumerate(fans):
        if fan > 1:
            yield evolve(scope, fans=(*fans[:at], fan - 1, *fans[at + 1 :]))
    if len(fans) > 1:
        yield evolve(scope, fans=fans[:-1])
