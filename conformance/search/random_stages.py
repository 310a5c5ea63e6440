"""The stages in which cases are random: the walker's, and those that Hypothesis draws.

What readers get wrong: both play the same actions on the same configurations. The walker plays many
more of them; Hypothesis builds on those that it drew before, and goes where chance seldom does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from time import monotonic

from attrs import evolve

from kvcanon.conformance.search.campaign import (
    ENOUGH,
    OUT_OF_TIME,
    CampaignReport,
    CaseBlocks,
    SearchSpec,
    Workers,
    distinct,
    reduce_all,
    search_blocks,
)
from kvcanon.conformance.search.finding import Tally
from kvcanon.conformance.search.machine import run_machine
from kvcanon.conformance.search.plan import CheckPlan, StageOutcome
from kvcanon.conformance.search.result import Failure, StageResult
from kvcanon.conformance.search.store import open_examples, open_store, share_blocks


def walk(plan: CheckPlan, by: Workers, deadline: float) -> StageOutcome:
    """Play cases of the walker on one cache after the other, in several processes."""
    watch = _Watch("walker", plan, deadline)
    for asked in watch.asked():
        report, why = _search(plan, asked, by, watch.ends)
        watch.add(asked.cache, report.tally, reduce_all(asked, report, by), why)
    return watch.outcome(endless=plan.effort.walker_cases is None)


def _search(
    plan: CheckPlan, asked: SearchSpec, by: Workers, deadline: float
) -> tuple[CampaignReport, str]:
    """Play the cases of an effort: so many, or until the time is over."""
    effort, done = plan.effort, count(1)

    def tell(_block: int, _report: CampaignReport) -> None:
        cases = next(done) * effort.block
        plan.progress(f"walker, {asked.cache}", cases, effort.walker_cases)

    if effort.walker_cases is None and plan.store is not None:
        store = open_store(plan.store, asked, effort.block)
        return share_blocks(asked, store, effort.block, by, deadline=deadline, done=tell)
    blocks = CaseBlocks(_numbers(effort.walker_cases, effort.block), effort.block, tell)
    return search_blocks(asked, blocks, by, deadline)


def draw(plan: CheckPlan, by: Workers, deadline: float) -> StageOutcome:
    """Let Hypothesis draw cases for one cache after the other, in several processes."""
    watch = _Watch("machine", plan, deadline)
    for asked in watch.asked():
        tally, failures, why = _draw(plan, asked, by, watch.ends)
        watch.add(asked.cache, tally, failures, why)
    return watch.outcome(endless=plan.effort.machine_cases is None)


def _draw(
    plan: CheckPlan, asked: SearchSpec, by: Workers, deadline: float
) -> tuple[Tally, tuple[Failure, ...], str]:
    """Run the machine again and again, each time from another seed; one failure is enough.

    It is not, where only a law is broken that should be kept.
    """
    tally, why = Tally(), ""
    failures: list[Failure] = []
    wanted, each = plan.effort.machine_cases, plan.effort.run
    waiting: deque[Future[tuple[Failure | None, Tally]]] = deque()
    runs = _numbers(wanted, each)
    try:
        while True:
            while not why and len(waiting) < by.jobs:
                number = next(runs, None)
                if number is None:
                    break
                if monotonic() > deadline:
                    why = OUT_OF_TIME
                else:
                    waiting.append(by.executor.submit(run_once, asked, number, each, plan.store))
            if not waiting:
                return tally, tuple(failures), why
            failure, judged = waiting.popleft().result()
            tally.add(judged)
            plan.progress(f"machine, {asked.cache}", tally.cases, wanted)
            if failure is not None:
                failures.append(failure)
                if not failure.finding.only_should:
                    return tally, tuple(failures), ENOUGH
    finally:
        for future in waiting:
            future.cancel()


def run_once(
    asked: SearchSpec, number: int, cases: int, store: str | None
) -> tuple[Failure | None, Tally]:
    """Run the machine of a number, in any process."""
    trial = asked.search().trial(number)
    database = open_examples(store, asked) if store is not None else None
    from_seed = (asked.seed << 16) + number
    failure, tally = run_machine(trial, examples=cases, from_seed=from_seed, database=database)
    if failure is not None:
        origin = f"machine, seed {asked.seed}, run {number}"
        failure = evolve(failure, origin=origin, laws=frozenset(failure.finding.broken))
    return failure, tally


def _numbers(cases: int | None, each: int) -> Iterator[int]:
    """The numbers of as many parts as there are in so many cases; without end if need be."""
    return count() if cases is None else iter(range(-(-cases // each)))


class _Watch:
    """A stage while it runs: how long each cache may take, and what came of them."""

    def __init__(self, name: str, plan: CheckPlan, deadline: float) -> None:
        self.ends = deadline
        """The moment at which the cache that is at it has to be done."""
        self._name, self._plan, self._deadline = name, plan, deadline
        self._began = monotonic()
        self._tallies: dict[str, Tally] = {}
        self._failures: list[Failure] = []
        self._cut_short: dict[str, str] = {}

    def asked(self) -> Iterator[SearchSpec]:
        """What is asked of each cache; its share of the time begins when it is taken."""
        plan = self._plan
        for at, name in enumerate(plan.names):
            left = self._deadline - monotonic()
            self.ends = monotonic() + left / (len(plan.names) - at)
            against = plan.against if plan.against != name else None
            yield SearchSpec(name, plan.seed, against, plan.law_ids, plan.black_box)

    def add(self, cache: str, tally: Tally, failures: tuple[Failure, ...], why: str) -> None:
        """Take in what came of a cache, and why it was stopped, if it was."""
        self._tallies[cache] = tally
        self._failures += failures
        if why:
            self._cut_short[cache] = why

    def outcome(self, *, endless: bool) -> StageOutcome:
        """What came of the stage; one that is endless ends with its time."""
        cut_short = "; ".join(
            f"{cache}: {why} after {self._tallies[cache].cases:,} cases"
            for cache, why in self._cut_short.items()
            if not (endless and why == OUT_OF_TIME)
        )
        tallies = self._tallies.values()
        stage = StageResult(
            self._name,
            cases=sum(tally.cases for tally in tallies),
            steps=sum(tally.steps for tally in tallies),
            seconds=monotonic() - self._began,
            cut_short=cut_short,
            unoffered=sum(tally.unoffered for tally in tallies),
        )
        return StageOutcome(stage, self._tallies, distinct(self._failures))
