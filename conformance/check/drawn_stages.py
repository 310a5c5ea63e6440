"""The stages of a check after the vectors: corpus, walker, ranks, stores, and Hypothesis's machine.

The corpus has cases that were drawn once and are worth playing each time, with every seed.

The cases of ranks are those that the walker plays, with the same draws; but each polls copies once
before they have ended everywhere, and copies end on each rank at another time. A case without a
host tier has no copies: it is counted as not offered, as is every case for a cache that makes no
ranks.

The cases of stores have a store below the host tier, and some of them several ranks. They are drawn
apart, so that the other cases of a seed are the same for every cache.

Hypothesis draws from the walker's actions and configurations. The walker plays far more cases;
Hypothesis builds on cases that it drew before, and reaches states that are rare by chance.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from contextlib import nullcontext
from itertools import count
from time import monotonic

from attrs import evolve

from kvcanon.conformance.cases.case import RANKS
from kvcanon.conformance.check.blocks import (
    BlocksReport,
    OnBlock,
    cases_of,
    play_blocks,
    time_to_reduce,
)
from kvcanon.conformance.check.machine import Drawing, MachineRun, draw_cases, noted_case
from kvcanon.conformance.check.plan import CachePlan, CheckPlan
from kvcanon.conformance.check.reduce import reduce_all, reduce_case
from kvcanon.conformance.check.result import Finding, Tally
from kvcanon.conformance.check.stage import ENOUGH, OUT_OF_TIME, StageOutcome, StageRun
from kvcanon.conformance.check.trial import apart, finding_of, short_limit
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.spec.law import Need

CORPUS_BLOCK = 8
"""Cases of the corpus in a block; it has whole blocks."""
RANKS_BLOCK = 4
"""Cases of ranks in a block: a quick check has few and slow ones, for all cores alike."""


def play_kept(run: StageRun) -> StageOutcome:
    """Play the cases of the corpus on one cache after the other, in several processes."""
    effort = evolve(run.plan.effort, block=CORPUS_BLOCK)
    return _play_all(run, evolve(run.plan, of_corpus=True, effort=effort), effort.corpus_cases)


def walk_all(run: StageRun) -> StageOutcome:
    """Play cases of the walker on one cache after the other, in several processes."""
    return _play_all(run, run.plan, run.plan.effort.walker_cases)


def rank_all(run: StageRun) -> StageOutcome:
    """Play cases on several ranks of each cache in turn, in several processes."""
    effort = evolve(run.plan.effort, block=min(RANKS_BLOCK, run.plan.effort.block))
    judges = evolve(run.plan.judges, ranks=RANKS)
    plan = evolve(run.plan, judges=judges, against=None, effort=effort)
    if not any(Need.RANKS in law.needs for law in plan.judges.every_law):
        return run.outcome(endless=False)
    return _play_all(run, plan, plan.effort.ranks_cases)


def store_all(run: StageRun) -> StageOutcome:
    """Play cases with a store below the host tier, of the caches that offer one."""
    plan = evolve(run.plan, of_stores=True)
    if not any(Need.STORE in law.needs for law in plan.judges.every_law):
        return run.outcome(endless=False)
    return _play_all(run, plan, plan.effort.store_cases)


def _play_all(run: StageRun, plan: CheckPlan, cases: int | None) -> StageOutcome:
    """Play so many cases on each cache, or cases until the deadline if their number is open."""
    for name in run.caches():
        cache = plan.of(name)
        show = _showing(run, name, cases, plan.effort.block)
        if cases is None and plan.store is not None:
            # Most checks keep no results, and do not wait for this import.
            from kvcanon.conformance.check.store import open_store, share_blocks  # noqa: PLC0415

            store = open_store(cache)
            report, why = share_blocks(cache, store, run.by, run.ends, show)
        else:
            blocks = run.parts(cases, plan.effort.block)
            report, why = play_blocks(cache, blocks, run.by, run.ends, show)
        found = reduce_all(cache, report, run.by)
        run.add(name, report.tally, found, why, run.asked(cases, plan.effort.block))
    return run.outcome(endless=cases is None)


def _showing(run: StageRun, name: str, cases: int | None, each: int) -> OnBlock:
    """Shows each block that is played."""
    done = count(1)

    def show(_block: int, _report: BlocksReport) -> None:
        run.show(name, next(done) * each, cases)

    return show


def draw_all(run: StageRun) -> StageOutcome:
    """Let Hypothesis draw cases for one cache after the other, in several processes."""
    for name in run.caches():
        asked = run.asked(run.plan.effort.machine_cases, run.plan.effort.run)
        run.add(name, *_draw(run, run.plan.of(name)), asked)
    return run.outcome(endless=run.plan.effort.machine_cases is None)


def _draw(run: StageRun, cache: CachePlan) -> tuple[Tally, list[Finding], str]:
    """Run the machine again and again, each time from another seed, up to the first finding.

    One of SHOULD laws alone does not end it.
    """
    plan, by, deadline = run.plan, run.by, run.ends
    tally, why = Tally(), ""
    findings: list[Finding] = []
    asked = run.asked(plan.effort.machine_cases, plan.effort.run)
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
            run.show(cache.name, tally.cases, asked)
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
    job = run.by.executor.submit(reduce_dead, cache, number, finding)
    return MachineRun((job.result(),), Tally(cases=1))


def reduce_dead(cache: CachePlan, number: int, finding: Finding) -> Finding:
    """Reduce a case that ended its process; runs in any process."""
    trial = apart(cases_of(cache).trial(number))
    with short_limit() if finding.is_silence else nullcontext():
        smallest = reduce_case(finding, trial) or evolve(finding, reduced=False)
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
    drawn = draw_cases(trial, drawing, ends=ends)
    origin = _origin(cache, number)
    return evolve(drawn, findings=tuple(evolve(each, origin=origin) for each in drawn.findings))


def _origin(cache: CachePlan, number: int) -> str:
    return f"machine, seed {cache.plan.seed}, run {number}"
