"""The stage of a check in which Hypothesis draws cases for each cache.

The actions and configurations are those of the walker. The walker plays far more cases; Hypothesis
builds on cases that it drew before, and reaches states that are rare by chance.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from time import monotonic

from attrs import evolve

from kvcanon.conformance.search.campaign import ENOUGH, OUT_OF_TIME, SearchSpec, Workers
from kvcanon.conformance.search.finding import Tally
from kvcanon.conformance.search.machine import run_machine
from kvcanon.conformance.search.plan import CheckPlan, StageOutcome
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.stage_run import StageRun, part_numbers
from kvcanon.conformance.search.store import open_examples

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
    waiting: deque[Future[tuple[Failure | None, Tally]]] = deque()
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
                    waiting.append(by.executor.submit(run_once, spec, number, each, plan.store))
            if not waiting:
                return tally, tuple(failures), why
            failure, judged = waiting.popleft().result()
            tally.add(judged)
            plan.progress(f"{NAME}, {spec.cache}", tally.cases, wanted)
            if failure is not None:
                failures.append(failure)
                if not failure.finding.only_should:
                    return tally, tuple(failures), ENOUGH
    finally:
        for future in waiting:
            future.cancel()


def run_once(
    spec: SearchSpec, number: int, cases: int, store: str | None
) -> tuple[Failure | None, Tally]:
    """Run the machine from the seed with a number; runs in any process."""
    trial = spec.search().trial(number)
    database = open_examples(store, spec) if store is not None else None
    from_seed = (spec.seed << 16) + number
    failure, tally = run_machine(trial, examples=cases, from_seed=from_seed, database=database)
    if failure is not None:
        origin = f"machine, seed {spec.seed}, run {number}"
        failure = evolve(failure, origin=origin, laws=frozenset(failure.finding.broken))
    return failure, tally
