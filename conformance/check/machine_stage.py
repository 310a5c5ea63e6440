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

from kvcanon.conformance.check.blocks import cases_of, time_to_reduce
from kvcanon.conformance.check.machine import Drawing, MachineRun, draw_cases, noted_case
from kvcanon.conformance.check.plan import CachePlan
from kvcanon.conformance.check.reduce import reduce_case
from kvcanon.conformance.check.result import Finding, Tally
from kvcanon.conformance.check.stage import ENOUGH, OUT_OF_TIME, StageOutcome, StageRun
from kvcanon.conformance.check.trial import apart, finding_of, short_limit
from kvcanon.conformance.workers.ending import ProcessDied


def draw_all(run: StageRun) -> StageOutcome:
    """Let Hypothesis draw cases for one cache after the other, in several processes."""
    for name in run.caches():
        run.add(name, *_draw(run, run.plan.of(name)))
    return run.outcome(endless=run.plan.effort.machine_cases is None)


def _draw(run: StageRun, cache: CachePlan) -> tuple[Tally, list[Finding], str]:
    """Run the machine again and again, each time from another seed, up to the first finding.

    One of SHOULD laws alone does not end it.
    """
    plan, by, deadline = run.plan, run.by, run.ends
    tally, why = Tally(), ""
    findings: list[Finding] = []
    waiting: deque[tuple[int, Future[MachineRun]]] = deque()
    runs = run.parts(plan.effort.machine_cases, plan.effort.run)
    try:
        while True:
            while not why and len(waiting) < by.jobs:
                number = next(runs, None)
                if number is None:
                    break
                if monotonic() > deadline:
                    why = OUT_OF_TIME
                else:
                    future = by.executor.submit(run_once, cache, number, deadline)
                    waiting.append((number, future))
            if not waiting:
                return tally, findings, why
            drawn = _result(run, cache, *waiting.popleft())
            tally.add(drawn.tally)
            run.show(cache.name, tally.cases, plan.effort.machine_cases)
            findings += drawn.findings
            if any(not finding.only_should for finding in drawn.findings):
                return tally, findings, ENOUGH
            why = OUT_OF_TIME if drawn.cut else why
    finally:
        for _, future in waiting:
            future.cancel()


def _result(run: StageRun, cache: CachePlan, number: int, future: Future[MachineRun]) -> MachineRun:
    """The result of a run; the end of its process is a finding."""
    try:
        return future.result()
    except ProcessDied as died:
        case = noted_case(died.ending.noted.place)
        finding = finding_of(died.ending, case, cache.name, cache.model)
    job = run.by.executor.submit(reduce_dead, cache, number, finding, run.ends)
    return MachineRun((job.result(),), Tally(cases=1))


def reduce_dead(cache: CachePlan, number: int, finding: Finding, deadline: float) -> Finding:
    """Reduce a case that ended its process; runs in any process."""
    trial = apart(cases_of(cache).trial(number))
    with short_limit() if finding.is_silence else nullcontext():
        smallest = reduce_case(finding, trial, deadline) or evolve(finding, reduced=False)
    return evolve(trial.found(smallest), origin=_origin(cache, number))


def run_once(cache: CachePlan, number: int, deadline: float) -> MachineRun:
    """Run the machine from the seed with a number; runs in any process."""
    plan, database = cache.plan, None
    if plan.store is not None:
        # Most checks keep no results, and do not wait for this import.
        from kvcanon.conformance.check.store import open_examples  # noqa: PLC0415

        database = open_examples(cache)
    drawing = Drawing(plan.effort.run, from_seed=(plan.seed << 16) + number, database=database)
    trial, ends = cases_of(cache).trial(number), deadline - time_to_reduce(deadline)
    drawn = draw_cases(trial, drawing, ends=ends, deadline=deadline)
    origin = _origin(cache, number)
    return evolve(drawn, findings=tuple(evolve(each, origin=origin) for each in drawn.findings))


def _origin(cache: CachePlan, number: int) -> str:
    return f"machine, seed {cache.plan.seed}, run {number}"
