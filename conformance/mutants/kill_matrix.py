"""The kill matrix: how soon each way of judging finds a planted fault.

The faults lie with the tests of the checkout, which no installed package has; so they are looked up
from the current folder. That a fault is found says little about a cache: it says that the judge
would have found it there, and at what cost.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from time import monotonic
from typing import Protocol

from attrs import frozen
from hypothesis import Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.search.effort import Effort
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.conformance.search.hypothesis_constants import no_local_constants
from kvcanon.conformance.search.machine import CI, STEPS, HypothesisFailure, Journal, machine_of
from kvcanon.conformance.search.play import JudgeConfig
from kvcanon.conformance.search.trial import Trial
from kvcanon.conformance.search.walker import draw_case, scale_of
from kvcanon.conformance.variants.override import Plant, overriding
from kvcanon.conformance.vectors.recording import PLAIN
from kvcanon.conformance.vectors.vector import Vector, VectorLevel, read_vectors
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import TransferEngine

NO_LAWS = JudgeConfig(black_box=True, laws=())
"""JudgeConfig who ask no law: what they find is a crash, or a difference from another cache."""

FEW = 300
"""Cases after which a fault that has not been seen most likely cannot be, in that way."""

WHERE = Path("tests/meta/mutants/__init__.py")
"""What shows that a folder is a checkout."""


class Mutant(Protocol):
    """A fault and the law that it breaks; `tests/meta/mutants/entry.py` makes them."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def law_id(self) -> str:
        """The law that it is made to break."""

    @property
    def plant(self) -> Plant:
        """Puts the fault in place; says in its docstring what goes wrong."""

    @property
    def upstream(self) -> str:
        """The historical bug that it is modelled on, or "none"."""

    @property
    def founding(self) -> bool:
        """Whether it is one of the bugs for which the canon was begun."""


@frozen
class Kill:
    """How a mutant was found."""

    seen: tuple[str, ...]
    """The ids of the laws that spoke; or else what it was that showed."""
    cases: int
    """As many were played, the one included in which it showed."""
    steps: int
    seconds: float
    where: str = ""
    """The vector, if it was one."""


def find_checkout(start: Path) -> Path:
    """The checkout that a folder is in. Raises: UsageError."""
    for folder in (start, *start.parents):
        if (folder / WHERE).is_file():
            return folder
    raise UsageError(f"{start} is in no checkout of kvcanon: there is no {WHERE} above it")


def find_mutants(start: Path) -> tuple[Mutant, ...]:
    """The mutants of the checkout that a folder is in. Raises: UsageError."""
    folder = find_checkout(start)
    if (tests := str(folder / "tests")) not in sys.path:
        sys.path.insert(0, tests)
    try:
        found: Sequence[Mutant] = import_module("meta.mutants").MUTANTS
    except Exception as error:
        raise UsageError(f"the mutants cannot be imported: {describe_exception(error)}") from error
    return tuple(found)


def mutated(mutant: Mutant) -> Adapter:
    """Caches with the fault, each planted anew, so that none remembers another's calls."""

    def make(config: CacheConfig, engine: TransferEngine | None = None) -> Cache:
        return overriding(mutant.plant)(config, engine)

    return Adapter(mutant.name, make)


def what_goes_wrong(mutant: Mutant) -> str:
    """What a cache with the fault does, in a sentence."""
    return " ".join((inspect.getdoc(mutant.plant) or mutant.name).split("\n\n")[0].split())


# The ways to find one.

Hunt = Callable[[Mutant, Effort, int], Kill | None]
"""Takes a mutant, how much may be played, and a seed."""


def hunt_inside(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By the walker, who asks every law about the cache's states."""
    return _walk(Trial(mutated(mutant)), effort.walker_cases, from_seed)


def hunt_outside(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By the walker, from answers, events and bytes alone."""
    trial = Trial(mutated(mutant), JudgeConfig(black_box=True))
    cases = effort.walker_cases if mutant.founding else _few(effort)
    return _walk(trial, cases, from_seed)


def hunt_differences(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By the walker, who asks no law, and compares with the plain cache."""
    return _walk(Trial(mutated(mutant), NO_LAWS, PLAIN), _few(effort), from_seed)


def hunt_by_machine(mutant: Mutant, effort: Effort, from_seed: int) -> Kill | None:
    """By cases that Hypothesis draws, judged by the laws on states."""
    began, total = monotonic(), Tally()
    trial = Trial(mutated(mutant))
    wanted = effort.machine_cases or effort.run
    for run in range(-(-wanted // effort.run)):
        journal = Journal()
        machine = seed((from_seed << 16) + run)(machine_of(trial, journal))
        run_settings = settings(
            CI,
            max_examples=effort.run,
            stateful_step_count=STEPS + 1,
            # What is found need not be reduced here.
            phases=(Phase.generate,),
        )
        try:
            with no_local_constants():
                run_state_machine_as_test(machine, settings=run_settings)
        except (HypothesisFailure, Flaky):
            # A fault that takes as long as patience lasts may not show again when it is asked for.
            if journal.shortest is None:
                raise
        total.add(journal.tally)
        found = journal.shortest or journal.unkept
        if found is not None:
            return _kill(found.finding, total, began)
    return None


def hunt_by_vectors(mutant: Mutant, _effort: Effort, _seed: int) -> Kill | None:
    """By the vectors: those of its own law first."""
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
"""Every way, by name."""


def vector_trials(vector: Vector, adapter: Adapter) -> Iterator[Trial]:
    """How a vector is played on a cache that shows its states: by these, and from outside."""
    yield Trial(adapter)
    if vector.level is VectorLevel.BLACK_BOX:
        yield Trial(adapter, JudgeConfig(black_box=True))


def _few(effort: Effort) -> int:
    """How many cases are played in a way in which not every fault can be seen."""
    return min(FEW, effort.walker_cases or FEW)


def _walk(trial: Trial, cases: int | None, from_seed: int) -> Kill | None:
    began, total = monotonic(), Tally()
    inside = not trial.judges.black_box or trial.against is not None
    for number in islice(count(), cases):
        scale = scale_of(number, inside=inside)
        case = draw_case((from_seed << 40) + number, trial.adapter.offer, scale=scale)
        finding, tally = trial.play(case)
        total.add(tally)
        if finding is not None:
            return _kill(finding, total, began)
    return None


def _kill(finding: Finding, total: Tally, began: float, where: str = "") -> Kill:
    seen = finding.broken or (finding.name,)
    return Kill(seen, total.cases, total.steps, monotonic() - began, where)
