"""No declaration hides a planted fault: whatever a profile leaves to a cache, the fault is found.

docs/freedoms.md has the counts. By day one fault in forty is judged, at night all are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import pytest
from attrs import evolve

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.conformance.report.declarations import declaring
from kvcanon.conformance.vectors import read_vectors
from kvcanon.lab.mutants.faulty import judges_by_states, mutated
from kvcanon.lab.mutants.planted import MUTANTS, Mutant
from kvcanon.spec.config import CANON, Choosing, choices
from kvcanon.spec.law import LAWS, LawClass
from nights import at_night

OWN = {
    name: {name: Choosing.OWN} for name in choices() if isinstance(getattr(CANON, name), Choosing)
}
DECLARATIONS: Mapping[str, Mapping[str, Any]] = {
    **OWN,
    "all of them": dict.fromkeys(OWN, Choosing.OWN),
}
FAULTS = [each for each in MUTANTS if LAWS[each.law_id].law_class is not LawClass.POLICY]
BY_DAY = [each for at, each in enumerate(FAULTS) if at % 40 == 0]
CASES = 100


def is_found(mutant: Mutant, declared: Mapping[str, Any]) -> bool:
    """Whether a fault is found in the vectors of its law or in drawn cases, under a declaration."""
    adapter = declaring(mutated(mutant), evolve(CANON, **declared))
    judges = judges_by_states(mutant)
    area = f"{mutant.law_id}-"
    cases = [each.case for each in read_vectors() if each.vector_id.startswith(area)]
    drawn = (draw_case(seed, Offer()) for seed in range(CASES))
    return any(play(case, [adapter], judges)[0] for case in chain(cases, drawn))


@pytest.mark.parametrize("declared", DECLARATIONS)
@pytest.mark.parametrize(
    "mutant",
    [*BY_DAY, *at_night(*[each for each in FAULTS if each not in BY_DAY])],
    ids=lambda each: each.name,
)
def test_declaration_hides_no_fault(mutant: Mutant, declared: str) -> None:
    """A fault that breaks a law of soundness or serving is found under every declaration."""
    assert is_found(mutant, DECLARATIONS[declared])
