"""The stage of a check that plays the vectors.

The judge plays the case of a vector, not its calls: it checks laws, and does not compare answers.
A case that shows a fault is reduced further: it was reduced for another fault. Every vector is
counted as played or as not offered, and a check that loses one is incomplete. The time limit of an
effort is not theirs: they are few, and show what each law means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from attrs import Factory, define, evolve

from kvcanon.conformance.cases.draw import is_offered
from kvcanon.conformance.check.blocks import DEATHS_ENOUGH, cases_of, play_part
from kvcanon.conformance.check.plan import CachePlan
from kvcanon.conformance.check.reduce import reduce_case, share_of
from kvcanon.conformance.check.result import Finding, Tally
from kvcanon.conformance.check.stage import ENOUGH, LOST, StageOutcome, StageRun
from kvcanon.conformance.check.triage import distinct
from kvcanon.conformance.check.trial import Trial, finding_of
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.vectors import Vector, VectorLevel, read_vectors, vector_files
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import Workers

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
    findings: list[Finding] = Factory(list)
    why_not_all: str = ""
    """Why some were not played; empty if all were."""

    def add(self, other: VectorResult) -> None:
        """Add the result of other vectors."""
        self.tally.add(other.tally)
        self.findings += other.findings
        self.why_not_all = self.why_not_all or other.why_not_all
        if sum(each.is_death for each in self.findings) >= DEATHS_ENOUGH:
            self.why_not_all = ENOUGH

    @property
    def over(self) -> bool:
        """Whether the stage ends before all vectors are played."""
        return bool(self.why_not_all)


def hold(run: StageRun) -> StageOutcome:
    """Play all vectors on one cache after the other, in several processes."""
    for name in run.plan.caches:
        cache = run.plan.of(name)
        result = _hold(run, cache)
        found = _reduced(cache, result.findings, run.by)
        asked = run.asked(len(vector_files()), 1)
        run.add(name, result.tally, found, result.why_not_all, asked)
    return run.outcome(endless=False, units="vectors")


def _hold(run: StageRun, cache: CachePlan) -> VectorResult:
    """Play all vectors on one cache."""
    by, total = run.by, VectorResult()
    # Neighbours in the list are alike, so a shard takes single vectors.
    numbers = list(run.parts(len(vector_files()), 1))
    there = len(numbers)
    parts = [numbers[first : first + PART] for first in range(0, there, PART)]

    def again(part: Sequence[int]) -> Future[VectorResult]:
        return by.next_of_all(play_vectors, cache, part)

    def deadly(part: Sequence[int], died: ProcessDied) -> tuple[int, VectorResult]:
        return _death_in(cache, part, died)

    futures = [by.executor.submit(play_vectors, cache, part) for part in parts]
    try:
        for part, future in zip(parts, futures, strict=True):
            play_part(part, future, again, deadly, total)
            run.show(cache.name, numbers.index(part[-1]) + 1, there)
            if total.over:
                break
    finally:
        for future in futures:
            future.cancel()
    read = total.tally.cases + total.tally.unoffered
    if read != there and not total.why_not_all:
        total.why_not_all = LOST
    return total


def _reduced(cache: CachePlan, findings: Sequence[Finding], by: Workers) -> Iterator[Finding]:
    """The findings, each in the smallest case that was found of its vector."""
    firsts = distinct(findings)
    steps = share_of(len(firsts))
    futures = [by.executor.submit(reduce_vector, cache, each, steps) for each in firsts]
    for first, future in zip(firsts, futures, strict=True):
        try:
            yield future.result()
        except ProcessDied:
            # A part of the case ends the process, though the whole case does not.
            yield first


def reduce_vector(cache: CachePlan, finding: Finding, steps: int) -> Finding:
    """Reduce the case of a vector that shows a fault, in any process."""
    trial = cases_of(cache).base
    if finding.black_box:
        trial = evolve(trial.from_outside(), against=None)
    smallest = None if finding.takes_its_process else reduce_case(finding, trial, steps)
    if smallest is None:
        return finding
    found = evolve(trial.found(smallest), origin=finding.origin, times=finding.times)
    return trial.seen_inside(found)


def _death_in(cache: CachePlan, part: Sequence[int], died: ProcessDied) -> tuple[int, VectorResult]:
    """The vector at which a worker died, and the finding. Raises: UsageError: nobody knows."""
    place = died.ending.noted.place
    number, outside = place.partition(b" ")[0], place.endswith(_OUTSIDE)
    if not number.isdigit() or int(number) not in part:
        raise UsageError(f"{cache.name} {died}, before it played a vector")
    vector = read_vectors()[int(number)]
    finding = evolve(
        finding_of(died.ending, vector.case, cache.name, cache.model),
        black_box=outside,
        against=None if outside else cache.model,
        origin=f"vector {vector.vector_id}",
    )
    why_not_all = NO_ANSWER if finding.is_silence else ""
    return int(number), VectorResult(Tally(cases=1), [finding], why_not_all)


def play_vectors(cache: CachePlan, numbers: Sequence[int]) -> VectorResult:
    """Play some vectors on one cache, in any process."""
    held, trial = VectorResult(), cases_of(cache).base
    vectors = dict(enumerate(read_vectors()))
    for number, vector in [(each, vectors[each]) for each in numbers if each in vectors]:
        NOTE.place(str(number).encode())
        held.add(play_vector(vector, trial))
        if any(finding.is_silence for finding in held.findings):
            held.why_not_all = NO_ANSWER
            break
    return held


def play_vector(vector: Vector, trial: Trial) -> VectorResult:
    """Play a vector on one cache: by its states, if it shows any, and perhaps from outside, too."""
    held = VectorResult()
    if not is_offered(vector.case.config, trial.adapter.offer):
        held.tally.unoffered = 1
        return held
    inside: frozenset[str] = frozenset()
    for way in _ways(vector, trial):
        NOTE.step(0, 0)
        NOTE.more(_OUTSIDE if way.judges.black_box else _INSIDE)
        finding, tally = way.play(vector.case)
        if tally.unoffered:
            held.tally.unoffered, held.tally.declined = 1, tally.declined
            return held
        held.tally.add(evolve(tally, cases=0))
        if finding is not None:
            origin = f"vector {vector.vector_id}"
            seen = way.seen_inside(evolve(finding, origin=origin))
            inside = inside or seen.inside
            held.findings.append(evolve(seen, inside=inside))
    held.tally.cases = 1
    return held


def _ways(vector: Vector, trial: Trial) -> Iterator[Trial]:
    """The ways in which a vector is played: by states, if there are any, and from outside."""
    yield trial
    if vector.level is VectorLevel.BLACK_BOX and trial.shows_states(vector.case):
        yield evolve(trial.from_outside(), against=None)
