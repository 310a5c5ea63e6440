"""The stage of a check that plays the vectors.

The judge plays the case of a vector, not its calls: it checks laws, and does not compare answers.
Every vector is counted as played or as not offered; a check that loses one fails. Laws that are
known to be broken are checked last and by themselves, so that they do not hide other broken laws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from time import monotonic

from attrs import Factory, define, evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Unoffered, make_subject
from kvcanon.conformance.search.campaign import (
    OUT_OF_TIME,
    SearchSpec,
    Workers,
    adapter_as,
)
from kvcanon.conformance.search.finding import Tally
from kvcanon.conformance.search.plan import CheckPlan, StageOutcome
from kvcanon.conformance.search.play import JudgeConfig
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.stage_run import StageRun
from kvcanon.conformance.search.trial import Trial, is_silence
from kvcanon.conformance.search.walker import is_offered
from kvcanon.conformance.vectors.vector import Vector, VectorLevel, read_vectors, vector_files
from kvcanon.spec.law import LAWS, Need

NAME = "vectors"
PART = 12
"""Vectors that one process plays in a row."""


@define
class VectorResult:
    """What was found in some vectors on one cache."""

    tally: Tally = Factory(Tally)
    """A vector counts as one case, though it may be played in several ways."""
    failures: list[Failure] = Factory(list)
    why_not_all: str = ""
    """Why some were not played; empty if all were."""

    def add(self, other: VectorResult) -> None:
        """Add the result of other vectors."""
        self.tally.add(other.tally)
        self.failures += other.failures
        self.why_not_all = self.why_not_all or other.why_not_all


def hold(plan: CheckPlan, by: Workers, deadline: float) -> StageOutcome:
    """Play all vectors on one cache after the other, in several processes. Raises: UsageError."""
    run = StageRun(NAME, plan, deadline)
    for name in plan.names:
        result = _hold(plan, name, by, deadline)
        run.add(name, result.tally, tuple(result.failures), result.why_not_all)
    return run.outcome(endless=False, units="vectors")


def _hold(plan: CheckPlan, name: str, by: Workers, deadline: float) -> VectorResult:
    """Play all vectors on one cache. Raises: UsageError: some were neither played nor counted."""
    asked = SearchSpec(name, plan.seed, plan.against, plan.only or None, plan.black_box)
    if plan.against == name:
        asked = evolve(asked, against=None)
    total, every = VectorResult(), len(vector_files())
    # Neighbours in the list are alike, so a shard takes single vectors.
    numbers = list(plan.shard.parts(iter(range(every))))
    there = len(numbers)
    parts = [numbers[first : first + PART] for first in range(0, there, PART)]
    futures = [
        by.executor.submit(play_vectors, asked, plan.known, part, deadline) for part in parts
    ]
    try:
        for part, future in zip(parts, futures, strict=True):
            total.add(future.result())
            plan.progress(f"{NAME}, {name}", numbers.index(part[-1]) + 1, there)
    except BrokenProcessPool:
        raise UsageError(f"{name} ended its process, in one of the vectors") from None
    finally:
        for future in futures:
            future.cancel()
    read = total.tally.cases + total.tally.unoffered
    if read != there and not total.why_not_all:
        raise UsageError(f"{read} of {there} vectors were read, and nobody knows why")
    return total


def play_vectors(
    asked: SearchSpec, known: frozenset[str], numbers: Sequence[int], deadline: float
) -> VectorResult:
    """Play some vectors on one cache, in any process."""
    held = VectorResult()
    adapter = adapter_as(asked.cache, black_box=asked.black_box)
    against = adapter_as(asked.against) if asked.against else None
    for vector in (read_vectors()[number] for number in numbers):
        if monotonic() > deadline:
            held.why_not_all = OUT_OF_TIME
            break
        held.add(play_vector(vector, Trial(adapter, against=against), asked.law_ids or (), known))
        if any(is_silence(failure.finding) for failure in held.failures):
            held.why_not_all = "it gave no answer"
            break
    return held


def play_vector(
    vector: Vector, trial: Trial, law_ids: Sequence[str] = (), known: frozenset[str] = frozenset()
) -> VectorResult:
    """Play a vector on one cache: by its states, if it shows any, and perhaps from outside, too.

    All laws are checked, unless some are given; those that are known to be broken come last.
    """
    held = VectorResult()
    if not is_offered(vector.case.config, trial.adapter.offer):
        held.tally.unoffered = 1
        return held
    for way in _ways(vector.level, vector.case, trial, law_ids or tuple(LAWS), known):
        finding, tally = way.play(vector.case)
        if tally.unoffered:
            held.tally.unoffered = 1
            return held
        held.tally.add(evolve(tally, cases=0))
        if finding is not None:
            held.failures.append(
                Failure(
                    finding,
                    vector.case,
                    f"vector {vector.vector_id}",
                    1,
                    black_box=way.judges.black_box,
                    against=way.against.name if way.against else None,
                    laws=frozenset(finding.broken),
                )
            )
    held.tally.cases = 1
    return held


def _ways(
    level: VectorLevel, case: Case, trial: Trial, law_ids: Sequence[str], known: frozenset[str]
) -> Iterator[Trial]:
    """The ways in which a vector is played: with which laws, and by states or from outside."""
    for asked in (
        [law_id for law_id in law_ids if law_id not in known],
        [law_id for law_id in law_ids if law_id in known],
    ):
        if not asked:
            continue
        laws = tuple(LAWS[law_id] for law_id in asked)
        yield evolve(trial, judges=JudgeConfig(laws=laws))
        if level is VectorLevel.BLACK_BOX and _shows_states(trial.adapter, case):
            yield evolve(trial, judges=JudgeConfig(black_box=True, laws=laws), against=None)


def _shows_states(adapter: Adapter, case: Case) -> bool:
    """Whether a cache shows its states."""
    if Need.SNAPSHOT in adapter.hides or adapter.kind is CacheKind.REQUEST:
        return False
    try:
        return Need.SNAPSHOT in make_subject(adapter, case.config).shows
    except (UsageError, Unoffered):
        return False
