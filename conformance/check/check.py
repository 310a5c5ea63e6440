"""The check: runs all stages on all caches, and gives every law its standing.

A stage that its time limit cuts short keeps its findings, and says that it was cut short.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from time import monotonic

from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.check import machine_stage, ranks_stage, walker_stage
from kvcanon.conformance.check.effort import effort_named
from kvcanon.conformance.check.essentials import always_refused, missing
from kvcanon.conformance.check.facts import CacheFacts, facts_of
from kvcanon.conformance.check.finding import Tally
from kvcanon.conformance.check.plan import (
    CheckPlan,
    Progress,
    RunStage,
    Shard,
    StageOutcome,
    silent,
)
from kvcanon.conformance.check.reductions import distinct
from kvcanon.conformance.check.result import CacheResult, CheckResult, Failure, Standing
from kvcanon.conformance.check.store import require_store
from kvcanon.conformance.check.triage import folded
from kvcanon.conformance.check.trial import is_silence
from kvcanon.conformance.check.vector_stage import NAME as VECTORS
from kvcanon.conformance.check.vector_stage import hold
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import (
    CacheKind,
)
from kvcanon.conformance.workers.workers import Workers, workers
from kvcanon.spec.law import LAWS, Law, Level


def check(
    names: Sequence[str],
    *,
    against: str | None = None,
    effort: str = "quick",
    seed: int = 0,
    only: Collection[str] = (),
    known: Collection[str] = (),
    black_box: bool = False,
    strict: bool = False,
    jobs: int | None = None,
    minutes: float | None = None,
    store: str | None = None,
    shard: str = "1/1",
    apart: bool = True,
    progress: Progress = silent,
) -> CheckResult:
    """Check caches by their names.

    `only` names stages, laws, or both; `known` names laws that are known to be broken; with
    `strict`, broken SHOULD laws fail the check; `shard` is the part of all cases to play, as "1/4".
    Caches are played in worker processes, which they may end or block; without `apart`, one job is
    done in this process. Raises: UsageError, also if no law was exercised on a cache.
    """
    stages, law_ids = _chosen(only)
    unknown = sorted(set(known) - LAWS.keys())
    if unknown:
        raise UsageError(f"no law {unknown[0]}, which is given as known to be broken")
    plan = CheckPlan(
        names=tuple(dict.fromkeys(names)),
        effort=effort_named(effort, minutes),
        seed=seed,
        jobs=jobs or os.cpu_count() or 1,
        against=against,
        only=law_ids,
        known=frozenset(known),
        black_box=black_box,
        strict=strict,
        store=store,
        shard=Shard.parse(shard),
        progress=progress,
    )
    if plan.shard.of > 1 and store is not None:
        raise UsageError("a store deals out the cases of a deep check; leave the shard out")
    if store is not None:
        require_store(store)
    everyone = (*plan.names, *((against,) if against is not None else ()))
    with workers(plan.jobs, apart=apart, seed=seed) as by:
        facts = [facts_of(name, by, black_box=black_box) for name in dict.fromkeys(everyone)]
        for each in facts:
            if against is not None and each.kind is CacheKind.REQUEST:
                raise UsageError(
                    f"{each.name} is a request cache, which cannot be compared; leave `against` out"
                )
        outcomes = _run(plan, stages, by)
    results = tuple(_result(each, outcomes, plan) for each in facts)
    for result in results:
        if result.name in plan.names:
            _require_judged(result)
    shown = tuple(each for each in results if each.name in plan.names or each.failures)
    ran = tuple(outcome.stage for outcome in outcomes)
    return CheckResult(shown, effort, seed, ran, against, strict)


def _require_judged(result: CacheResult) -> None:
    """Refuse a check in which no law was exercised. Raises: UsageError."""
    if not result.failures and not result.unkept and not result.tally.laws:
        lacks = f"it lacks {', '.join(result.lacks)}" if result.lacks else "no case was played"
        raise UsageError(f"nothing was judged of {result.name}; {lacks}")


def _chosen(only: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stages and the laws among some names. Raises: UsageError."""
    for name in only:
        if name not in STAGES and name not in LAWS:
            near = get_close_matches(name, (*STAGES, *LAWS), n=3)
            hint = f"near it are {', '.join(near)}" if near else f"stages are {', '.join(STAGES)}"
            raise UsageError(f"no law {name}, and no stage; {hint}")
    stages = tuple(name for name in STAGES if name in only) or tuple(STAGES)
    return stages, tuple(law_id for law_id in LAWS if law_id in only)


def _run(plan: CheckPlan, stages: Sequence[str], by: Workers) -> list[StageOutcome]:
    """Run the stages one by one; each has its share of the remaining time."""
    outcomes: list[StageOutcome] = []
    end = monotonic() + plan.effort.seconds
    for at, name in enumerate(stages):
        left = sum(SHARES[each] for each in stages[at:])
        deadline = monotonic() + (end - monotonic()) * SHARES[name] / left
        outcomes.append(STAGES[name](_without_silent(plan, outcomes), by, deadline))
    return outcomes


def _without_silent(plan: CheckPlan, outcomes: Sequence[StageOutcome]) -> CheckPlan:
    """The plan without caches that gave no answer: further stages would only wait for them."""
    failures = (failure for outcome in outcomes for failure in outcome.failures)
    silent_caches = {each.finding.cache for each in failures if is_silence(each.finding)}
    return evolve(plan, names=tuple(name for name in plan.names if name not in silent_caches))


def _result(facts: CacheFacts, outcomes: Sequence[StageOutcome], plan: CheckPlan) -> CacheResult:
    """The result of all stages for one cache."""
    tallies = {each.stage.name: each.tallies.get(facts.name, Tally()) for each in outcomes}
    everything = (failure for outcome in outcomes for failure in outcome.failures)
    if plan.black_box:  # No state was shown to any stage, and none may be to a replay.
        everything = (evolve(failure, black_box=True) for failure in everything)
    failures = distinct(each for each in everything if each.finding.cache == facts.name)
    unkept = [each for each in failures if each.finding.only_should and not plan.strict]
    result = CacheResult(
        facts.name,
        facts.profile,
        facts.lacks,
        tallies,
        {},
        folded(each for each in failures if each not in unkept),
        folded(unkept),
        offer=facts.offer,
        kind=facts.kind,
    )
    result = evolve(result, standings=_standings(result.tally, failures, plan))
    return evolve(result, missing=_missing(facts.kind, result, plan))


def _standings(
    tally: Tally, failures: Collection[Failure], plan: CheckPlan
) -> Mapping[str, Standing]:
    """The standing of every law."""
    broken = {law_id for failure in failures for law_id in failure.laws}
    return {law_id: _standing(law, tally, plan, broken) for law_id, law in LAWS.items()}


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
    for name, tally in result.tallies.items():
        # Half of the cases have no host tier, so that there are no ranks to compare.
        if name not in (VECTORS, ranks_stage.NAME):
            drawn.add(tally)
    return missing(kind, result.tally, drawn, exercised, plan.only)


STAGES: dict[str, RunStage] = {
    VECTORS: hold,
    walker_stage.NAME: walker_stage.walk_all,
    machine_stage.NAME: machine_stage.draw_all,
    ranks_stage.NAME: ranks_stage.rank_all,
}
"""The stages of a check, in their order."""
SHARES = {VECTORS: 2, walker_stage.NAME: 6, machine_stage.NAME: 2, ranks_stage.NAME: 1}
"""The shares of the stages in the remaining time."""
