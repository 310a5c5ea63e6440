"""The stage of a check that plays cases of the walker on several ranks of each cache.

The cases are those that the walker plays, with the same draws; only the copies end on each rank at
another time. A case without a host tier has no copies: it is counted as not offered, as is every
case for a cache that makes no ranks.
"""

from __future__ import annotations

from itertools import count
from time import monotonic

from attrs import evolve

from kvcanon.conformance.cases.case import RANKS
from kvcanon.conformance.check.campaign import CampaignReport, CaseBlocks, search_blocks
from kvcanon.conformance.check.plan import CheckPlan, StageOutcome
from kvcanon.conformance.check.reductions import reduce_all
from kvcanon.conformance.check.stage_run import StageRun, part_numbers
from kvcanon.conformance.check.walker_stage import LEAST_SECONDS
from kvcanon.conformance.judge.judges import laws_of
from kvcanon.conformance.workers.workers import Workers
from kvcanon.spec.law import LAWS, Need

NAME = "ranks"


def rank_all(plan: CheckPlan, by: Workers, deadline: float) -> StageOutcome:
    """Play cases on several ranks of one cache after the other, in several processes."""
    run, effort = StageRun(NAME, plan, deadline), plan.effort
    for walked in run.specs():
        spec, done = evolve(walked, ranks=RANKS, against=None), count(1)

        def show(_block: int, _report: CampaignReport, name: str = spec.cache) -> None:
            plan.progress(f"{NAME}, {name}", next(done) * effort.block, effort.ranks_cases)  # noqa: B023

        if not any(Need.RANKS in each.needs for each in laws_of(plan.law_ids) or LAWS.values()):
            continue
        numbers = plan.shard.parts(part_numbers(effort.ranks_cases, effort.block))
        report, why = search_blocks(spec, CaseBlocks(numbers, effort.block, show), by, run.ends)
        reducing = max(run.ends, monotonic() + LEAST_SECONDS)
        run.add(spec.cache, report.tally, reduce_all(spec, report, by, reducing), why)
    return run.outcome(endless=False)
