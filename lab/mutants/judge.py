"""Judges a mutant by laws, then by comparison with the plain cache, until one detects it.

Cheap cases come first, since most mutants are detected at once. A mutant that only the comparison
detects is judged by the laws again, in enough cases to call it a gap in the laws.

Crashes and hangs count as detected too, but separately, since no law detects them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from time import monotonic

from attrs import evolve, frozen

from kvcanon.conformance.check.blocks import NumberedCases
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.errors import describe_exception
from kvcanon.lab.mutants.detection import MutantVerdict, Sight, verdict_of
from kvcanon.lab.mutants.looks import (
    Look,
    Sighting,
    as_checked,
    by_states,
    by_vectors,
    compared,
    first_sight,
    with_store,
)
from kvcanon.lab.mutants.place import MutantPlace
from kvcanon.lab.mutants.planted_package import mutant_of


@frozen
class Budget:
    """The most cases to play on a mutant, for each way of judging."""

    first: int
    """Cases judged by states, played first."""
    checked: int
    """Cases played as `check` plays them."""
    stored: int
    """Cases with a store below the host tier."""
    compared: int
    """Cases compared with the plain cache."""
    inside: int
    """Cases judged by states, for a mutant that only the comparison detected so far."""


BUDGETS = {
    "quick": Budget(first=12, checked=250, stored=64, compared=150, inside=300),
    "standard": Budget(first=12, checked=2_000, stored=300, compared=1_000, inside=2_000),
}
"""By effort. With `quick` two CPU cores judge 300 mutants in about 20 minutes."""


def accused(seed: int, budget: Budget) -> str | None:
    """The violation of the unchanged plain cache in the cases of a seed; None if there is none.

    A law that it breaks would detect every mutant that reaches that case.
    """
    cases = NumberedCases(Trial(mutant_of(None)), seed)
    looks = chain(_by_laws(cases, budget), by_states(cases, range(budget.first, budget.inside)))
    seen = first_sight(looks)
    return None if seen is None else f"{seen.how}: {seen.finding.name}"


def judge(place: MutantPlace, seed: int, budget: Budget) -> MutantVerdict:
    """Judge the mutant of a place."""
    began = monotonic()
    return evolve(_judged(place, seed, budget), seconds=monotonic() - began)


def _judged(place: MutantPlace, seed: int, budget: Budget) -> MutantVerdict:
    try:
        adapter = mutant_of(place)
    except Exception as error:  # noqa: BLE001  # A mutant may raise anything.
        return MutantVerdict(
            place, Sight.CRASH, (type(error).__name__,), "made", describe_exception(error)
        )
    cases = NumberedCases(Trial(adapter), seed)
    seen = first_sight(_by_laws(cases, budget)) or _by_comparison(cases, budget)
    return verdict_of(place, seen)


def _by_laws(cases: NumberedCases, budget: Budget) -> Iterator[Look]:
    yield from by_states(cases, range(budget.first))
    yield from by_vectors(cases)
    yield from as_checked(cases, range(budget.checked))
    yield from with_store(cases, range(budget.stored))


def _by_comparison(cases: NumberedCases, budget: Budget) -> Sighting | None:
    """A law's finding for a mutant that differs from the plain cache, or else the difference."""
    different = first_sight(compared(cases, range(budget.compared)))
    if different is None:
        return None
    # The case that showed the difference comes first.
    numbers: Iterable[int] = (different.number, *range(budget.first, budget.inside))
    return first_sight(by_states(cases, numbers)) or different
