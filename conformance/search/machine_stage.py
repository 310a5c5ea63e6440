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
from kvcanon.conformance.processes.ending import ProcessDied
from kvcanon.conformance.processes.workers import Workers
from kvcanon.conformance.search.campaign import ENOUGH, OUT_OF_TIME, SearchSpec
from kvcanon.conformance.search.deaths import PLAYS, REDUCED_SECONDS, apart, finding_of, is_death
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.conformance.search.machine import noted_case, run_machine
from kvcanon.conformance.search.plan import CheckPlan, StageOutcome
from kvcanon.conformance.search.reduce import reduce_case
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.stage_run import StageRun, part_numbers
from kvcanon.conformance.search.store import open_examples
from kvcanon.conformance.search.time_limit import LIMIT
from kvcanon.conformance.search.trial import is_silence

NAME = "machine"

RunResult = tuple[Failure | None, Tally]


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
    waiting: deque[tuple[int, Future[RunResult]]] = deque()
    runs = part_numbers(wanted, each)
    try:
        while True:
            while not why and len(waiting) < by.jobs:
                number = next(runs, None)
                if number is None:
                    break
                if monotonic() > deadline:
                    why = OUT_OF_TIME
                else:
                    future = by.executor.submit(run_once, spec, number, each, plan.store)
                    waiting.append((number, future))
            if not waiting:
                return tally, tuple(failures), why
            failure, judged = _result(spec, by, *waiting.popleft())
            tally.add(judged)
            plan.progress(f"{NAME}, {spec.cache}", tally.cases, wanted)
            if failure is not None:
                failures.append(failure)
                if not failure.finding.only_should:
                    return tally, tuple(failures), ENOUGH
    finally:
        for _, future in waiting:
            future.cancel()


def _result(spec: SearchSpec, by: Workers, number: int, future: Future[RunResult]) -> RunResult:
    """The result of a run; the case that ended its process is a failure."""
    try:
        return future.result()
    except ProcessDied as died:
        case = noted_case(died.ending.noted.place)
        finding = finding_of(died.ending, spec.cache, spec.against)
    return by.executor.submit(reduce_dead, spec, number, case, finding).result(), Tally(cases=1)


def reduce_dead(spec: SearchSpec, number: int, case: Case, finding: Finding) -> Failure:
    """Reduce a case that ended its process; runs in any process."""
    trial = apart(spec.search().trial(number))
    with LIMIT.at_most(REDUCED_SECONDS) if is_silence(finding) else nullcontext():
        smallest = reduce_case(case, finding, trial, PLAYS if is_death(finding) else None)
    case, finding = smallest or (case, finding)
    against = trial.against.name if trial.against else None
    black_box = trial.judges.black_box
    return Failure(finding, case, _origin(spec, number), 1, black_box=black_box, against=against)


def run_once(
    spec: SearchSpec, number: int, cases: int, store: str | None
) -> tuple[Failure | None, Tally]:
    """Run the machine from the seed with a number; runs in any process."""
    trial = spec.search().trial(number)
    database = open_examples(store, spec) if store is not None else None
    from_seed = (spec.seed << 16) + number
    failure, tally = run_machine(trial, examples=cases, from_seed=from_seed, database=database)
    if failure is not None:
        failure = evolve(
            failure, origin=_origin(spec, number), laws=frozenset(failure.finding.broken)
        )
    return failure, tally


def _origin(spec: SearchSpec, number: int) -> str:
    return f"machine, seed {spec.seed}, run {number}"
