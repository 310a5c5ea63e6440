"""The stage of a check that plays cases of the walker on each cache."""

from __future__ import annotations

from itertools import count
from time import monotonic

from kvcanon.conformance.check.campaign import (
    CampaignReport,
    CaseBlocks,
    SearchSpec,
    search_blocks,
)
from kvcanon.conformance.check.plan import CheckPlan, StageOutcome
from kvcanon.conformance.check.reductions import reduce_all
from kvcanon.conformance.check.stage_run import StageRun, part_numbers
from kvcanon.conformance.check.store import open_store, share_blocks
from kvcanon.conformance.workers.workers import Workers

NAME = "walker"
LEAST_SECONDS = 4.0
"""The time to reduce findings that come late; the machine then has less."""


def walk_all(plan: CheckPlan, by: Workers, deadline: float) -> StageOutcome:
    """Play cases of the walker on one cache after the other, in several processes."""
    run = StageRun(NAME, plan, deadline)
    for spec in run.specs():
        report, why = _search(plan, spec, by, run.ends)
        deadline = max(run.ends, monotonic() + LEAST_SECONDS)
        run.add(spec.cache, report.tally, reduce_all(spec, report, by, deadline), why)
    return run.outcome(endless=plan.effort.walker_cases is None)


def _search(
    plan: CheckPlan, spec: SearchSpec, by: Workers, deadline: float
) -> tuple[CampaignReport, str]:
    """Play the cases of an effort, or cases until the deadline if their number is open."""
    effort, done = plan.effort, count(1)

    def show(_block: int, _report: CampaignReport) -> None:
        cases = next(done) * effort.block
        plan.progress(f"{NAME}, {spec.cache}", cases, effort.walker_cases)

    if effort.walker_cases is None and plan.store is not None:
        store = open_store(plan.store, spec, effort.block)
        return share_blocks(spec, store, effort.block, by, deadline=deadline, done=show)
    numbers = plan.shard.parts(part_numbers(effort.walker_cases, effort.block))
    blocks = CaseBlocks(numbers, effort.block, show)
    return search_blocks(spec, blocks, by, deadline)
