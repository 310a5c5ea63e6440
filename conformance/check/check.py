"""The check: runs all stages on all caches, and gives every law its standing.

The time of the effort begins when every worker has loaded the caches. A stage that it cuts short
keeps its findings; the check is then incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic

from attrs import evolve

from kvcanon.conformance.check.drawn_stages import (
    draw_all,
    play_kept,
    rank_all,
    store_all,
    walk_all,
)
from kvcanon.conformance.check.essentials import always_refused, missing
from kvcanon.conformance.check.facts import CacheFacts, facts_of, load_everywhere
from kvcanon.conformance.check.plan import CheckPlan, CheckStage
from kvcanon.conformance.check.result import CacheResult, CheckResult, Finding, Standing, Tally
from kvcanon.conformance.check.stage import Progress, StageOutcome, StageRun, no_progress
from kvcanon.conformance.check.triage import distinct, folded
from kvcanon.conformance.check.vector_stage import hold
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import left_to
from kvcanon.conformance.protocol.adapter import CacheKind
from kvcanon.conformance.workers.workers import Workers, workers
from kvcanon.spec.law import LAWS, Law, Level, Need

RunStage = Callable[[StageRun], StageOutcome]

STAGES: dict[CheckStage, RunStage] = {
    CheckStage.VECTORS: hold,
    CheckStage.CORPUS: play_kept,
    CheckStage.WALKER: walk_all,
    CheckStage.MACHINE: draw_all,
    CheckStage.RANKS: rank_all,
    CheckStage.STORES: store_all,
}
"""What runs each stage."""
SHARES = {
    CheckStage.VECTORS: 0,
    CheckStage.CORPUS: 1,
    CheckStage.WALKER: 6,
    CheckStage.MACHINE: 2,
    CheckStage.RANKS: 1,
    CheckStage.STORES: 1,
}
"""The shares of the stages in the remaining time; all vectors are played, however long it takes."""
_NOT_ESSENTIAL = (CheckStage.VECTORS, CheckStage.CORPUS, CheckStage.RANKS, CheckStage.STORES)
"""The stages in which nothing has to come up."""


def check(plan: CheckPlan, *, apart: bool = True, progress: Progress = no_progress) -> CheckResult:
    """Check the caches of a plan.

    They are played in worker processes, which they may end or block; without `apart`, one job is
    done in this process. Raises: UsageError, also if no law was exercised on a cache.
    """
    if plan.store is not None:
        # Most checks keep no results, and do not wait for this import.
        from kvcanon.conformance.check.store import require_store  # noqa: PLC0415

        require_store(plan.store)
    everyone = plan.caches if plan.against is None else (*plan.caches, plan.against)
    with workers(plan.jobs, apart=apart, seed=plan.seed) as by:
        facts = [facts_of(plan.of(name), by) for name in dict.fromkeys(everyone)]
        for each in facts:
            if plan.against is not None and each.kind is CacheKind.REQUEST:
                raise UsageError(
                    f"{each.name} is a request cache, which cannot be compared; leave `against` out"
                )
        for each in facts:
            load_everywhere(plan.of(each.name), each, by)
        plan = _without_stores(plan, facts)
        narrowed = ((each.name, each.offer) for each in facts if each.ignores)
        outcomes = _run(evolve(plan, narrowed=tuple(narrowed)), by, progress)
    results = tuple(_result(each, outcomes, plan) for each in facts)
    for result in results:
        if result.name in plan.caches:
            _require_judged(result)
    shown = tuple(each for each in results if each.name in plan.caches or each.failures)
    return CheckResult(plan, shown, tuple(outcome.stage for outcome in outcomes))


def _without_stores(plan: CheckPlan, facts: Collection[CacheFacts]) -> CheckPlan:
    """The plan without the stage of stores, if none of its caches offers one."""
    if any(each.offer.stores for each in facts):
        return plan
    stages = tuple(each for each in plan.stages if each is not CheckStage.STORES)
    return evolve(plan, stages=stages)


def _require_judged(result: CacheResult) -> None:
    """Refuse a check in which no law was exercised. Raises: UsageError."""
    judged = result.failures or result.unkept or result.tally.laws
    if not judged and not result.unplayed:
        raise UsageError(f"nothing was judged of {result.name}; {_why_nothing(result)}")


def _why_nothing(result: CacheResult) -> str:
    """Why no law was exercised: no case was played, or the cache shows too little."""
    tally = result.tally
    if tally.cases:
        return f"it lacks {', '.join(result.lacks)}" if result.lacks else "no law came up"
    if tally.declined:
        refused = f"its factory refused the configuration of {tally.declined:,}"
        return f"{refused} of {tally.unoffered:,} cases; list those that it supports in an Offer"
    if tally.unoffered:
        return f"its adapter offers none of {tally.unoffered:,} cases"
    return "no case was played"


def _run(plan: CheckPlan, by: Workers, progress: Progress) -> list[StageOutcome]:
    """Run the stages one by one; each has its share of the remaining time."""
    outcomes: list[StageOutcome] = []
    end = monotonic() + plan.effort.seconds
    for at, stage in enumerate(plan.stages):
        left = sum(SHARES[each] for each in plan.stages[at:]) or 1
        deadline = monotonic() + (end - monotonic()) * SHARES[stage] / left
        run = StageRun(stage, _without_silent(plan, outcomes), by, deadline, progress)
        outcomes.append(STAGES[stage](run))
    return outcomes


def _without_silent(plan: CheckPlan, outcomes: Sequence[StageOutcome]) -> CheckPlan:
    """The plan without caches that gave no answer: further stages would only wait for them."""
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    silent = {finding.cache for finding in findings if finding.is_silence}
    return evolve(plan, caches=[name for name in plan.caches if name not in silent])


def _result(facts: CacheFacts, outcomes: Sequence[StageOutcome], plan: CheckPlan) -> CacheResult:
    """The result of all stages for one cache."""
    tallies = {each.stage.name: each.tallies.get(facts.name, Tally()) for each in outcomes}
    everything = (finding for outcome in outcomes for finding in outcome.findings)
    if plan.judges.black_box:  # No state was shown to any stage, and none may be to a replay.
        everything = (evolve(finding, black_box=True) for finding in everything)
    findings = distinct(each for each in everything if each.cache == facts.name)
    unkept = [each for each in findings if each.only_should and not plan.strict]
    result = CacheResult(
        facts.name,
        facts.profile,
        facts.lacks,
        tallies,
        {},
        folded(each for each in findings if each not in unkept),
        folded(unkept),
        unplayed=tuple(
            each.unplayed[facts.name] for each in outcomes if facts.name in each.unplayed
        ),
        offer=facts.offer,
        kind=facts.kind,
        no_engine=facts.no_engine,
        ignores=facts.ignores,
    )
    offered = [law for law in LAWS.values() if facts.offer.stores or Need.STORE not in law.needs]
    result = evolve(result, standings=_standings(offered, result.tally, findings, plan))
    return evolve(result, missing=_missing(facts.kind, result, plan))


def _standings(
    laws: Collection[Law], tally: Tally, findings: Collection[Finding], plan: CheckPlan
) -> Mapping[str, Standing]:
    """The standing of each of the laws that concern a cache."""
    broken = {law_id for finding in findings for law_id in finding.broken}
    return {law.law_id: _standing(law, tally, plan, broken) for law in laws}


def _standing(law: Law, tally: Tally, plan: CheckPlan, broken: Collection[str]) -> Standing:
    if tally.known[law.law_id]:
        return Standing.KNOWN
    if law.law_id not in broken:
        return Standing.HELD if tally.laws[law.law_id] else Standing.NOT_EXERCISED
    must = plan.strict or law.level is Level.MUST
    return Standing.BROKEN if must else Standing.NOT_KEPT


def _missing(kind: CacheKind, result: CacheResult, plan: CheckPlan) -> tuple[str, ...]:
    """The essentials that were not exercised.

    The cases of a broken cache end early, so only operations that it always refused count.
    """
    if result.failures:
        return always_refused(kind, result.tally)
    standing = Standing.NOT_EXERCISED
    exercised = {law_id for law_id, each in result.standings.items() if each is not standing}
    drawn = Tally()
    for stage, tally in result.tallies.items():
        # Half of the cases have no host tier, so that there are no ranks to compare.
        if stage not in _NOT_ESSENTIAL:
            drawn.add(tally)
    # What the profile leaves to the cache need not have come up.
    exercised |= left_to(result.profile, kind)
    return missing(kind, result.tally, drawn, exercised, plan.judges.laws or ())
