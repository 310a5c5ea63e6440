"""The vectors see: each planted fault makes its own law speak in one that was made for that law.

How soon random cases find the same faults, `kvcanon lab mutants` prints.
"""

from __future__ import annotations

import re
from itertools import count

import pytest
from attrs import evolve

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.vectors import FOLDER, read_vectors
from kvcanon.lab.mutants.faulty import case_for, mutated
from kvcanon.lab.mutants.kill_matrix import (
    NO_LAWS,
    find_mutants,
    hunt_by_machine,
    hunt_by_vectors,
    hunt_differences,
)
from kvcanon.lab.mutants.make_vectors import Candidate, covers, vectors_of
from kvcanon.lab.mutants.planted import MUTANTS, STORE_MUTANTS, Mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import ReferenceCache, cache, evict
from kvcanon.reference.state import State
from kvcanon.spec.law import LAWS, Level
from kvcanon.spec.operations import Evicted
from kvcanon.spec.types import Counts

HISTORICAL_BUGS_AT_LEAST = 40


EVERY = (*MUTANTS, *STORE_MUTANTS)


@pytest.mark.parametrize("mutant", STORE_MUTANTS, ids=[each.name for each in STORE_MUTANTS])
def test_a_quick_check_finds_each_fault_of_the_tier(mutant: Mutant) -> None:
    """A fault of the tier is found by the law that it is made to break, within a quick check."""
    trial = Trial(mutated(mutant))
    for number in range(EFFORTS["quick"].store_cases):
        finding, _ = trial.play(case_for(mutant, number))
        if finding is not None:
            assert mutant.law_id in finding.broken
            return
    pytest.fail("no case of a quick check shows it")


@pytest.mark.parametrize("mutant", EVERY, ids=[each.name for each in EVERY])
def test_a_vector_makes_its_law_speak(mutant: Mutant) -> None:
    """Each mutant of a law is shown by one of the law's vectors; `make vectors` adds one."""
    assert covers(mutant, read_vectors()) is not None


def test_mutants_name_laws_that_exist() -> None:
    """Every mutant names laws of the law book."""
    assert {mutant.law_id for mutant in MUTANTS} <= LAWS.keys()


def test_every_must_has_a_mutant() -> None:
    """Every MUST law has a mutant that breaks it."""
    musts = {law.law_id for law in LAWS.values() if law.level is Level.MUST}
    assert musts <= {mutant.law_id for mutant in (*MUTANTS, *STORE_MUTANTS)}


def test_mutants_are_modelled_on_history() -> None:
    """Mutants link to real bugs, in one form of link."""
    named = [mutant.upstream for mutant in MUTANTS if mutant.upstream != "none"]
    rows = [re.fullmatch(r"(?:([ABCD]\d+) )?[\w.-]+#\d+", upstream) for upstream in named]
    assert [upstream for upstream, row in zip(named, rows, strict=True) if row is None] == []
    assert len({row[1] for row in rows if row is not None} - {None}) >= HISTORICAL_BUGS_AT_LEAST


def test_mutants_have_names_of_their_own() -> None:
    """No two mutants have one name."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_law_that_a_mutant_breaks_has_a_witness() -> None:
    """The page of every law with a mutant has a case in which it is broken."""
    broken = {mutant.law_id for mutant in MUTANTS if LAWS[mutant.law_id].level is Level.MUST}
    assert broken <= {vector.law_id for vector in read_vectors()}


def test_the_command_finds_these_mutants() -> None:
    """The kill matrix is of the mutants of this folder."""
    assert [each.name for each in find_mutants(FOLDER)] == [each.name for each in MUTANTS]


def test_the_first_vectors_are_of_its_own_law() -> None:
    """The matrix names a vector of the mutant's own law first."""
    mutant = next(each for each in MUTANTS if each.founding)
    kill = hunt_by_vectors(mutant, EFFORTS["quick"], 0)
    assert kill is not None
    (shown,) = (each for each in read_vectors() if each.vector_id == kill.where)
    assert shown.law_id == mutant.law_id


def test_fault_that_shows_now_and_then_is_found() -> None:
    """A fault that shows only at times is found, and the matrix goes on."""
    calls = count()
    evict_rightly = evict.evict

    def moody(patch: Overrides) -> None:
        def evict_now_and_then(state: State, counts: Counts) -> Counts:
            if next(calls) % 37 == 36:
                raise RuntimeError("not in the mood")
            return evict_rightly(state, counts)

        patch.setattr(cache, "evict", evict_now_and_then)

    mutant = Mutant("moody", "EVICT-1", moody, "none")
    kill = hunt_by_machine(mutant, EFFORTS["quick"], 0)
    assert kill is not None
    assert kill.seen == ("RuntimeError",)


def test_new_vectors_take_no_id_that_is_in_use() -> None:
    """A new vector gets an id that no other vector has."""
    some = read_vectors()[0]
    there = {f"{some.law_id}-a", f"{some.law_id}-c"}
    like = [Candidate(some.mutant, some.level, some.case)] * 2
    ids = [vector.vector_id for vector in vectors_of(some.law_id, like, there)]
    assert ids == [f"{some.law_id}-d", f"{some.law_id}-e"]


class Endless(ReferenceCache):
    """Says that a page came free, whether there was one or not."""

    def evict(self, counts: Counts) -> Evicted:
        """Evict, and say that all of it was there."""
        return evolve(super().evict(counts), freed=counts)


def test_a_drain_ends_whatever_the_cache_says() -> None:
    """The drain of a cache that claims to free for ever ends."""
    finding, tally = Trial(Adapter("endless", Endless), NO_LAWS).play(draw_case(0, Offer()))
    assert finding is None
    assert tally.steps


def test_a_state_that_is_none_is_a_difference() -> None:
    """A state that is no tree counts as a difference, and does not raise."""
    (mutant,) = (each for each in MUTANTS if each.name == "nothing_new_becomes_a_leaf")
    kill = hunt_differences(mutant, EFFORTS["quick"], 0)
    assert kill is not None
    assert kill.seen == ("state",)
