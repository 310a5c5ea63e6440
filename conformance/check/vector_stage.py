"""The stage of a check that plays the vectors.

The judge plays the case of a vector, not its calls: it checks laws, and does not compare answers.
Every vector is counted as played or as not offered; a check that loses one fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from time import monotonic

from attrs import Factory, define, evolve

from kvcanon.conformance.check.campaign import ENOUGH, OUT_OF_TIME, SearchSpec, adapter_as
from kvcanon.conformance.check.deaths import DEATHS_ENOUGH, finding_of, is_death
from kvcanon.conformance.check.finding import Tally
from kvcanon.conformance.check.plan import CheckPlan, StageOutcome
from kvcanon.conformance.check.result import Failure
from kvcanon.conformance.check.resume import play_part
from kvcanon.conformance.check.stage_run import StageRun
from kvcanon.conformance.check.trial import Trial, is_silence
from kvcanon.conformance.check.walker import is_offered
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig, laws_of
from kvcanon.conformance.vectors.vector import Vector, VectorLevel, read_vectors, vector_files
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import Workers

NAME = "vectors"
PART = 12
"""Vectors that one process plays in a row."""
NO_ANSWER = "it gave no answer"

_INSIDE, _OUTSIDE = b" by states", b" from outside"
"""What a worker notes each time that it plays a vector."""


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
        if sum(is_death(each.finding) for each in self.failures) >= DEATHS_ENOUGH:
            self.why_not_all = ENOUGH

    @property
    def over(self) -> bool:
        """Whether no further vector is to be played."""
        return bool(self.why_not_all)


def hold(plan: CheckPlan, by: Workers, deadline: float) -> StageOutcome:
    """Play all vectors on one cache after the other, in several processes. Raises: UsageError."""
    run = StageRun(NAME, plan, deadline)
    for name in plan.names:
        result = _hold(plan, name, by, deadline)
        run.add(name, result.tally, tuple(result.failures), result.why_not_all)
    return run.outcome(endless=False, units="vectors")


def _hold(plan: CheckPlan, name: str, by: Workers, deadline: float) -> VectorResult:
    """Play all vectors on one cache. Raises: UsageError: some were neither played nor counted."""
    known = tuple(sorted(plan.known))
    asked = SearchSpec(name, plan.seed, plan.against, plan.law_ids, plan.black_box, known)
    if plan.against == name:
        asked = evolve(asked, against=None)
    total, every = VectorResult(), len(vector_files())
    # Neighbours in the list are alike, so a shard takes single vectors.
    numbers = list(plan.shard.parts(iter(range(every))))
    there = len(numbers)
    parts = [numbers[first : first + PART] for first in range(0, there, PART)]

    def again(part: Sequence[int]) -> Future[VectorResult]:
        return by.next_of_all(play_vectors, asked, part, deadline)

    def deadly(part: Sequence[int], died: ProcessDied) -> tuple[int, VectorResult]:
        return _failure_at(asked, part, died)

    futures = [by.executor.submit(play_vectors, asked, part, deadline) for part in parts]
    try:
        for part, future in zip(parts, futures, strict=True):
            play_part(part, future, again, deadly, total)
            plan.progress(f"{NAME}, {name}", numbers.index(part[-1]) + 1, there)
            if total.over:
                break
    finally:
        for future in futures:
            future.cancel()
    read = total.tally.cases + total.tally.unoffered
    if read != there and not total.why_not_all:
        raise UsageError(f"{read} of {there} vectors were read, and nobody knows why")
    return total


def _failure_at(
    asked: SearchSpec, part: Sequence[int], died: ProcessDied
) -> tuple[int, VectorResult]:
    """The vector at which a worker died, and the failure. Raises: UsageError: nobody knows."""
    place = died.ending.noted.place
    number, outside = place.partition(b" ")[0], place.endswith(_OUTSIDE)
    if not number.isdigit() or int(number) not in part:
        raise UsageError(f"{asked.cache} {died}, before it played a vector")
    finding = finding_of(died.ending, asked.cache, asked.against)
    vector = read_vectors()[int(number)]
    failure = Failure(
        finding,
        vector.case,
        f"vector {vector.vector_id}",
        1,
        black_box=outside,
        against=None if outside else asked.against,
    )
    why_not_all = NO_ANSWER if is_silence(finding) else ""
    return int(number), VectorResult(Tally(cases=1), [failure], why_not_all)


def play_vectors(asked: SearchSpec, numbers: Sequence[int], deadline: float) -> VectorResult:
    """Play some vectors on one cache, in any process."""
    held = VectorResult()
    adapter = adapter_as(asked.cache, black_box=asked.black_box)
    against = adapter_as(asked.against) if asked.against else None
    vectors = dict(enumerate(read_vectors()))
    for number, vector in [(each, vectors[each]) for each in numbers if each in vectors]:
        if monotonic() > deadline:
            held.why_not_all = OUT_OF_TIME
            break
        NOTE.place(str(number).encode())
        trial, known = Trial(adapter, against=against), frozenset(asked.known)
        held.add(play_vector(vector, trial, asked.law_ids or (), known))
        if any(is_silence(failure.finding) for failure in held.failures):
            held.why_not_all = NO_ANSWER
            break
    return held


def play_vector(
    vector: Vector, trial: Trial, law_ids: Sequence[str] = (), known: frozenset[str] = frozenset()
) -> VectorResult:
    """Play a vector on one cache: by its states, if it shows any, and perhaps from outside, too.

    All laws are checked, unless some are given; those that are known to be broken end no case.
    """
    held = VectorResult()
    if not is_offered(vector.case.config, trial.adapter.offer):
        held.tally.unoffered = 1
        return held
    judges = JudgeConfig(laws=laws_of(law_ids or None), known=known)
    inside: frozenset[str] = frozenset()
    for way in _ways(vector, evolve(trial, judges=judges)):
        NOTE.step(0, 0)
        NOTE.more(_OUTSIDE if way.judges.black_box else _INSIDE)
        finding, tally = way.play(vector.case)
        if tally.unoffered:
            held.tally.unoffered = 1
            return held
        held.tally.add(evolve(tally, cases=0))
        if finding is not None:
            inside = inside or way.laws_inside(vector.case, finding)
            held.failures.append(
                Failure(
                    finding,
                    vector.case,
                    f"vector {vector.vector_id}",
                    1,
                    black_box=way.judges.black_box,
                    against=way.against.name if way.against else None,
                    inside=inside,
                )
            )
    held.tally.cases = 1
    return held


def _ways(vector: Vector, trial: Trial) -> Iterator[Trial]:
    """The ways in which a vector is played: by states, if there are any, and from outside."""
    yield trial
    if vector.level is VectorLevel.BLACK_BOX and trial.shows_states(vector.case):
        yield evolve(trial.from_outside(), against=None)
