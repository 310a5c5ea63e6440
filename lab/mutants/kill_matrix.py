"""The kill matrix: how soon each way of judging detects a mutant.

The matrix measures the judge, not a cache: which faults it detects, and at
what cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from time import monotonic

from attrs import frozen
from hypothesis import Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from kvcanon.conformance.cases.draw import scale_of
from kvcanon.conformance.check.machine import (
    CI,
    STEPS,
    HypothesisFailure,
    Journal,
    machine_of,
    no_local_constants,
)
from kvcanon.conformance.check.plan import Effort
from kvcanon.conformance.check.result import Finding, Tally
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.vectors import Vector, VectorLevel, read_vectors
from kvcanon.lab.mutants.faulty import case_for, judges_by_states, mutated
from kvcanon.lab.mutants.planted import MUTANTS
from kvcanon.lab.mutants.planted.entry import Mutant

NO_LAWS = JudgeConfig(black_box=True, laws=())
"""The configuration that checks no law: it finds only crashes and differences."""

FEW = 300
"""Cases after which this way of judging most likely cannot detect a fault at all."""

WHERE = Path("lab/mutants/planted/__init__.py")
"""The file that identifies a checkout."""


@frozen
class Kill:
    """How a mutant was detected."""

    seen: tuple[str, ...]
    """The ids of the broken laws, or else the kind of the finding."""
    cases: int
    """How many cases were played, with the one that detected it."""
    steps: int
    seconds: float
    where: str = ""
    """The vector that detected it, if one did."""


def find_checkout(start: Path) -> Path:
    """The checkout that a folder is in. Raises: UsageError."""
    for folder in (start, *start.parents):
        if (folder / WHERE).is_file():
            return folder
    raise UsageError(f"{start} is in no checkout of kvcanon: there is no {WHERE} above it")


def find_mutants(start: Path) -> tuple[Mutant, ...]:
    """The mutants of the checkout that a folder is in. Raises: UsageError."""
    find_checkout(start)
    return tuple(MUTANTS)


# The ways of judging.

Hunt = Callable[[Mutant, Effort, int], Kill | None]
"""Takes a mutant, an effort and a first seed."""


def hunt_inside(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By the walker, which checks every law on the cache's states."""
    trial = Trial(mutated(mutant), judges_by_states(mutant))
    return _walk(mutant, trial, effort.walker_cases, from_seed)


def hunt_outside(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By the walker, which checks only answers, events and bytes."""
    trial = Trial(mutated(mutant), JudgeConfig(black_box=True))
    cases = effort.walker_cases if mutant.founding else _few(effort)
    return _walk(mutant, trial, cases, from_seed)


def hunt_differences(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By the walker, which checks no law and compares with the plain cache."""
    return _walk(mutant, Trial(mutated(mutant), NO_LAWS, REFERENCE), _few(effort), from_seed)


def hunt_by_machine(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By cases that Hypothesis draws, judged by the laws on states."""
    began, total = monotonic(), Tally()
    trial = Trial(mutated(mutant), judges_by_states(mutant))
    wanted = effort.machine_cases or effort.run
    for run in range(-(-wanted // effort.run)):
        journal = Journal()
        machine = seed((from_seed << 16) + run)(machine_of(trial, journal))
        run_settings = settings(
            CI,
            max_examples=effort.run,
            stateful_step_count=STEPS + 1,
            # No need to shrink the failing case.
            phases=(Phase.generate,),
        )
        try:
            with no_local_constants():
                run_state_machine_as_test(machine, settings=run_settings)
        except (HypothesisFailure, Flaky):
            # A fault that hangs until the time limit may not show again in a replay.
            if journal.shortest is None:
                raise
        total.add(journal.tally)
        found = journal.shortest or journal.unkept
        if found is not None:
            return _kill(found, total, began)
    return None


def hunt_by_vectors(mutant: Mutant, _effort: Effort, _seed: int) -> Kill | None:
    """By the vectors, those of the mutant's own law first."""
    began, total = monotonic(), Tally()
    vectors = sorted(read_vectors(), key=lambda each: each.law_id != mutant.law_id)
    for vector in vectors:
        for trial in vector_trials(vector, mutated(mutant)):
            finding, tally = trial.play(vector.case)
            total.add(tally)
            if finding is not None:
                return _kill(finding, total, began, vector.vector_id)
    return None


HUNTS: Mapping[str, Hunt] = {
    "inside": hunt_inside,
    "outside": hunt_outside,
    "agreement": hunt_differences,
    "machine": hunt_by_machine,
    "vectors": hunt_by_vectors,
}
"""Every way of judging, by name."""


def vector_trials(vector: Vector, adapter: Adapter) -> Iterator[Trial]:
    """The trials of a vector on a cache with snapshots: by states, and from outside."""
    yield Trial(adapter)
    if vector.level is VectorLevel.BLACK_BOX:
        yield Trial(adapter, JudgeConfig(black_box=True))


def _few(effort: Effort) -> int:
    """The number of cases for a way of judging that cannot detect every fault."""
    return min(FEW, effort.walker_cases or FEW)


def _walk(mutant: Mutant, trial: Trial, cases: int | None, from_seed: int) -> Kill | None:
    began, total = monotonic(), Tally()
    inside = not trial.judges.black_box or trial.against is not None
    for number in islice(count(), cases):
        scale = scale_of(number, inside=inside)
        case = case_for(mutant, number, from_seed, scale)
        finding, tally = trial.play(case)
        total.add(tally)
        if finding is not None:
            return _kill(finding, total, began)
    return None


def _kill(finding: Finding, total: Tally, began: float, where: str = "") -> Kill:
    seen = finding.broken or (finding.name,)
    return Kill(seen, total.cases, total.steps, monotonic() - began, where)
