"""The laws see: every planted fault is found, by random cases, in words.

Without a fault all of these cases hold, which `test_random_driver` shows at greater length.
"""

from __future__ import annotations

import re

import pytest

from kvcanon.conformance.check.finding import Finding, Grounds
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.walker import draw_case
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.vectors.vector import read_vectors
from kvcanon.lab.mutants.make_vectors import covers
from kvcanon.lab.mutants.planted import MUTANTS, Mutant
from kvcanon.lab.variants.override import overriding
from kvcanon.reference import ReferenceCache
from kvcanon.spec.law import LAWS, Level

CASES_AT_MOST = 400
HISTORICAL_BUGS_AT_LEAST = 40


def finding_in(adapter: Adapter, seed: int) -> Finding | None:
    """What is found in the case of a seed."""
    found, _ = play(draw_case(seed, Offer()), [adapter])
    return found[0] if found else None


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.name for each in MUTANTS])
def test_mutant_is_found(mutant: Mutant) -> None:
    """The law that a mutant is made to break is broken in a vector or in a random case.

    A vector is enough; `kvcanon lab mutants` says how many random cases it takes.
    """
    if covers(mutant, read_vectors()) is not None:
        return
    adapter = Adapter(mutant.name, overriding(mutant.plant))
    spoken: set[str] = set()
    for seed in range(CASES_AT_MOST):
        finding = finding_in(adapter, seed)
        if finding is not None and finding.grounds is Grounds.LAW:
            spoken |= set(finding.broken)
        if mutant.law_id in spoken:
            return
    pytest.fail(f"{mutant.law_id} did not speak; {', '.join(sorted(spoken)) or 'no law'} did")


def test_sound_cache_is_not_accused() -> None:
    """The cases that find the faults find nothing in the plain cache."""
    adapter = Adapter("reference", ReferenceCache)
    for seed in range(40):
        assert finding_in(adapter, seed) is None


def test_mutants_name_laws_that_exist() -> None:
    """Every mutant names laws of the law book."""
    assert {mutant.law_id for mutant in MUTANTS} <= LAWS.keys()


def test_every_must_has_a_mutant() -> None:
    """Every MUST law has a mutant that breaks it."""
    musts = {law.law_id for law in LAWS.values() if law.level is Level.MUST}
    assert musts <= {mutant.law_id for mutant in MUTANTS}


def test_mutants_are_modelled_on_history() -> None:
    """Mutants link to real bugs, in one form of link."""
    named = [mutant.upstream for mutant in MUTANTS if mutant.upstream != "none"]
    rows = [re.fullmatch(r"(?:([ABCD]\d+) )?[\w.-]+#\d+", upstream) for upstream in named]
    assert [upstream for upstream, row in zip(named, rows, strict=True) if row is None] == []
    assert len({row[1] for row in rows if row is not None} - {None}) >= HISTORICAL_BUGS_AT_LEAST


def test_mutants_have_names_of_their_own() -> None:
    """No two mutants have one name."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
