"""Looks: the cases to play on a mutant until one detects it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.draw import draw_case, scale_of
from kvcanon.conformance.check.blocks import NumberedCases
from kvcanon.conformance.check.result import Finding
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.vectors import read_vectors
from kvcanon.lab.mutants.kill_matrix import NO_LAWS, vector_trials


@frozen
class Look:
    """One case, judged in one way."""

    how: str
    """The name of a vector, or of a walker's case."""
    trial: Trial
    case: Case


@frozen
class Sighting:
    """The finding that detected a mutant, and its case."""

    finding: Finding
    how: str

    @property
    def number(self) -> int:
        """The number of the walker's case."""
        return int(self.how.removeprefix("case "))


def first_sight(looks: Iterable[Look]) -> Sighting | None:
    """Play cases until one has a finding."""
    for look in looks:
        finding, _ = look.trial.play(look.case)
        if finding is not None:
            return Sighting(finding, look.how)
    return None


def by_states(cases: NumberedCases, numbers: Iterable[int]) -> Iterator[Look]:
    """Cases judged by the laws on states; also compared, if there is another cache."""
    trial = Trial(cases.base.adapter, against=cases.base.against)
    return (_inside(cases, trial, number) for number in numbers)


def by_vectors(cases: NumberedCases) -> Iterator[Look]:
    """The vectors, each judged in every way."""
    for vector in read_vectors():
        for trial in vector_trials(vector, cases.base.adapter):
            against = None if trial.judges.black_box else cases.base.against
            yield Look(f"vector {vector.vector_id}", evolve(trial, against=against), vector.case)


def as_checked(cases: NumberedCases, numbers: Iterable[int]) -> Iterator[Look]:
    """Cases as `check` plays them: some judged by states, the others from outside."""
    for number in numbers:
        yield Look(f"case {number}", cases.trial(number), cases.case(number))


def with_store(cases: NumberedCases, numbers: Iterable[int]) -> Iterator[Look]:
    """Cases with a store below the host tier, as `check` plays them."""
    stored = evolve(cases, of_stores=True)
    for number in numbers:
        yield Look(f"stored case {number}", stored.trial(number), stored.case(number))


def compared(cases: NumberedCases, numbers: Iterable[int]) -> Iterator[Look]:
    """Cases without laws, compared with the plain cache state by state."""
    trial = Trial(cases.base.adapter, NO_LAWS, REFERENCE)
    return (_inside(cases, trial, number) for number in numbers)


def _inside(cases: NumberedCases, trial: Trial, number: int) -> Look:
    """A case judged by states, so of limited size."""
    scale = scale_of(number, inside=True)
    case = draw_case((cases.seed << 40) + number, cases.base.adapter.offer, scale=scale)
    return Look(f"case {number}", trial, case)
