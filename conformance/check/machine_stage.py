"""The stage of a check in which Hypothesis draws cases for each cache.

The actions and configurations are those of the walker. The walker plays far more cases; Hypothesis
builds on cases that it drew before, and reaches states that are rare by chance.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from contextlib import nullcontext
from time import monotonic

from attrs import evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.campaign import ENOUGH, OUT_OF_TIME, SearchSpec, time_to_reduce
from kvcanon.conformance.check.deaths import PLAYS, REDUCED_SECONDS, apart, finding_of, is_death
from kvcanon.conformance.check.finding import Finding, Tally
from kvcanon.conformance.check.machine import MachineRun, draw_cases, noted_case
from kvcanon.conformance.check.plan import CheckPlan, StageOutcome
from kvcanon.conformance.check.reduce import reduce_until
from kvcanon.conformance.check.result import Failure
from kvcanon.conformance.check.stage_run import StageRun, part_numbers
from kvcanon.conformance.check.store import open_examples
from kvcanon.conformance.check.time_limit import LIMIT
from kvcanon.conformance.check.trial import is_silence
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.workers import Workers

NAME = "machine"


def draw_all(plan: CheckPlan, by: Workers, deadline: float) -> StageOutcome:
    """Let Hypothesis draw cases for one cache after the other, in several processes."""
    run = StageRun(NAME, plan, deadline)
    for spec in run.specs():
        tally, failures, why = _draw(plan, spec, by, run.ends)
        run.add(spec.cache, tally, failures, why)
    return run.outcome(endless=plan.effort.machine_cases is None)


def _draw(
    plan: CheckPlan, spec: SearchSpec, by: Workers, deadline: float
) -> tuple[Tally, tuple[Failure, ...], str]:
    """Run the machine again and again, each time from another seed, up to the first failure.

    A failure of SHOULD laws alone does not end it.
    """
    tally, why = Tally(), ""
    failures: list[Failure] = []
    wanted, each = plan.effort.machine_cases, plan.effort.run
    waiting: deque[tuple[int, Future[MachineRun]]] = deque()
    runs = plan.shard.parts(part_numbers(wanted, each))
    try:
        while True:
            while not why and len(waiting) < by.jobs:
                number = next(runs, None)
                if number is None:
                    break
                if monotonic() > deadline:
                    why = OUT_OF_TIME
                else:
                    future = by.executor.submit(run_once, spec, number, each, plan.store, deadline)
                    waiting.append((number, future))
            if not waiting:
                return tally, tuple(failures), why
            drawn = _result(spec, by, *waiting.popleft(), deadline)
            tally.add(drawn.tally)
            plan.progress(f"{NAME}, {spec.cache}", tally.cases, wanted)
            failures += drawn.failures
            if any(not failure.finding.only_should for failure in drawn.failures):
                return tally, tuple(failures), ENOUGH
            why = OUT_OF_TIME if drawn.cut else why
    finally:
        for _, future in waiting:
            future.cancel()


def _result(
    spec: SearchSpec, by: Workers, number: int, future: Future[MachineRun], deadline: float
) -> MachineRun:
    """The result of a run; the case that ended its process is a failure."""
    try:
        return future.result()
    except ProcessDied as died:
        case = noted_case(died.ending.noted.place)
        finding = finding_of(died.ending, spec.cache, spec.against)
    failure = by.executor.submit(reduce_dead, spec, number, case, finding, deadline).result()
    return MachineRun((failure,), Tally(cases=1), cut=False)


def reduce_dead(
    spec: SearchSpec, number: int, case: Case, finding: Finding, deadline: float
) -> Failure:
    """Reduce a case that ended its process; runs in any process."""
    trial = apart(spec.search().trial(number))
    plays = PLAYS if is_death(finding) else None
    with LIMIT.at_most(REDUCED_SECONDS) if is_silence(finding) else nullcontext():
        smallest = reduce_until(case, finding, trial, deadline, plays)
    if smallest is not None:
        case, finding = smallest.case, smallest.finding
    return Failure(
        finding,
        case,
        _origin(spec, number),
        1,
        black_box=trial.judges.black_box,
        against=trial.against.name if trial.against else None,
        reduced=smallest is not None and smallest.done,
    )


def run_once(
    spec: SearchSpec, number: int, cases: int, store: str | None, deadline: float
) -> MachineRun:
    """Run the machine from the seed with a number; runs in any process."""
    trial = spec.search().trial(number)
    database = open_examples(store, spec) if store is not None else None
    from_seed = (spec.seed << 16) + number
    drawn = draw_cases(
        trial,
        examples=cases,
        from_seed=from_seed,
        database=database,
        ends=deadline - time_to_reduce(deadline),
        deadline=deadline,
    )
    origin = _origin(spec, number)
    failures = tuple(evolve(failure, origin=origin) for failure in drawn.failures)
    return evolve(drawn, failures=failures)


def _origin(spec: SearchSpec, number: int) -> str:
    return f"machine, seed {spec.seed}, run {number}"
