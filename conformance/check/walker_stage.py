"""The stages of a check that play cases of the walker: on each cache, and on ranks of each cache.

The cases of ranks are those that the walker plays, with the same draws; only the copies end on each
rank at another time. A case without a host tier has no copies: it is counted as not offered, as is
every case for a cache that makes no ranks.
"""

from __future__ import annotations

from itertools import count
from time import monotonic

from attrs import evolve

from kvcanon.conformance.cases.case import RANKS
from kvcanon.conformance.check.blocks import BlocksReport, OnBlock, play_blocks
from kvcanon.conformance.check.plan import CheckPlan
from kvcanon.conformance.check.reduce import reduce_all
from kvcanon.conformance.check.stage import StageOutcome, StageRun
from kvcanon.spec.law import Need

LEAST_SECONDS = 4.0
"""The time to reduce findings that come late; the machine then has less."""


def walk_all(run: StageRun) -> StageOutcome:
    """Play cases of the walker on one cache after the other, in several processes."""
    return _play_all(run, run.plan, run.plan.effort.walker_cases)


def rank_all(run: StageRun) -> StageOutcome:
    """Play cases on several ranks of one cache after the other, in several processes."""
    plan = evolve(run.plan, judges=evolve(run.plan.judges, ranks=RANKS), against=None)
    if not any(Need.RANKS in law.needs for law in plan.judges.every_law):
        return run.outcome(endless=False)
    return _play_all(run, plan, plan.effort.ranks_cases)


def _play_all(run: StageRun, plan: CheckPlan, cases: int | None) -> StageOutcome:
    """Play so many cases on each cache, or cases until the deadline if their number is open."""
    for name in run.caches():
        cache = plan.of(name)
        show = _showing(run, name, cases)
        if cases is None and plan.store is not None:
            # Most checks keep no results, and do not wait for this import.
            from kvcanon.conformance.check.store import open_store, share_blocks  # noqa: PLC0415

            store = open_store(cache)
            report, why = share_blocks(cache, store, run.by, run.ends, show)
        else:
            blocks = run.parts(cases, plan.effort.block)
            report, why = play_blocks(cache, blocks, run.by, run.ends, show)
        reducing = max(run.ends, monotonic() + LEAST_SECONDS)
        run.add(name, report.tally, reduce_all(cache, report, run.by, reducing), why)
    return run.outcome(endless=cases is None)


def _showing(run: StageRun, name: str, cases: int | None) -> OnBlock:
    """Shows each block that is played."""
    done = count(1)

    def show(_block: int, _report: BlocksReport) -> None:
        run.show(name, next(done) * run.plan.effort.block, cases)

    return show
