"""The check: all stages on all caches, and what is known of every law in the end.

What readers get wrong: a stage that was cut short found what it found, and says that there was more
to do. It is no smaller check that was done.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from time import monotonic

from attrs import evolve

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    RequestSubject,
    Subject,
    Unoffered,
    lacks_of,
    make_request_subject,
    make_subject,
)
from kvcanon.conformance.search.campaign import adapter_as, distinct, workers
from kvcanon.conformance.search.effort import effort_named
from kvcanon.conformance.search.finding import Tally
from kvcanon.conformance.search.plan import CheckPlan, Progress, RunStage, StageOutcome, silent
from kvcanon.conformance.search.random_stages import draw, walk
from kvcanon.conformance.search.result import CacheResult, CheckResult, Failure, Standing
from kvcanon.conformance.search.sufficiency import always_refused, missing
from kvcanon.conformance.search.trial import is_silence
from kvcanon.conformance.search.vector_stage import NAME as VECTORS
from kvcanon.conformance.search.vector_stage import hold
from kvcanon.conformance.search.walker import draw_case
from kvcanon.spec.law import LAWS, Law, Level

CONFIGS_TRIED = 200
"""How many configurations are tried until a cache is made with one."""


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
    progress: Progress = silent,
) -> CheckResult:
    """Check caches, each by its name.

    `only` names stages, laws, or both; `known` the laws that are known to be broken; where it is
    `strict`, laws that should be kept must be. Raises: UsageError, also where
    nothing was judged of a cache.
    """
    stages, law_ids = _chosen(only)
    unknown = sorted(set(known) - LAWS.keys())
    if unknown:
        raise UsageError(f"no law {unknown[0]}, which is said to be known")
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
        progress=progress,
    )
    everyone = (*plan.names, *((against,) if against else ()))
    adapters = {name: adapter_as(name, black_box=black_box) for name in everyone}
    made = {name: _made(adapter) for name, adapter in adapters.items()}
    for name, subject in made.items():
        if against is not None and isinstance(subject, RequestSubject):
            raise UsageError(f"{name} is used by requests; agreement is between caches of prefixes")
    outcomes = _run(plan, stages)
    results = tuple(_result(adapters[name], made[name], outcomes, plan) for name in made)
    for result in results:
        if result.name in plan.names:
            _require_judged(result)
    shown = tuple(each for each in results if each.name in plan.names or each.failures)
    ran = tuple(outcome.stage for outcome in outcomes)
    return CheckResult(shown, effort, seed, ran, against, strict)


def _require_judged(result: CacheResult) -> None:
    """Refuse a check in which no law was exercised. Raises: UsageError."""
    if not result.failures and not result.unkept and not result.tally.laws:
        lacks = f"it lacks {', '.join(result.lacks)}" if result.lacks else "no case came to it"
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


def _made(adapter: Adapter) -> Subject | RequestSubject:
    """One cache, to see what it has. Raises: UsageError."""
    make = make_request_subject if adapter.kind is CacheKind.REQUEST else make_subject
    for seed in range(CONFIGS_TRIED):
        try:
            return make(adapter, draw_case(seed, adapter.offer).config)
        except Unoffered:
            continue
    raise UsageError(f"{adapter.name} offers none of {CONFIGS_TRIED} configurations")


def _run(plan: CheckPlan, stages: Sequence[str]) -> list[StageOutcome]:
    """Run stages one by one; each has its share of what is left of the time."""
    outcomes: list[StageOutcome] = []
    end = monotonic() + plan.effort.seconds
    with workers(plan.jobs) as by:
        for at, name in enumerate(stages):
            left = sum(SHARES[each] for each in stages[at:])
            deadline = monotonic() + (end - monotonic()) * SHARES[name] / left
            outcomes.append(STAGES[name](_without_silent(plan, outcomes), by, deadline))
    return outcomes


def _without_silent(plan: CheckPlan, outcomes: Sequence[StageOutcome]) -> CheckPlan:
    """The plan without caches that did not answer: nothing more is to be learnt of them."""
    failures = (failure for outcome in outcomes for failure in outcome.failures)
    silent_ones = {each.finding.cache for each in failures if is_silence(each.finding)}
    return evolve(plan, names=tuple(name for name in plan.names if name not in silent_ones))


def _result(
    adapter: Adapter,
    subject: Subject | RequestSubject,
    outcomes: Sequence[StageOutcome],
    plan: CheckPlan,
) -> CacheResult:
    """What the stages found out about one cache."""
    tallies = {each.stage.name: each.tallies.get(adapter.name, Tally()) for each in outcomes}
    everything = (failure for outcome in outcomes for failure in outcome.failures)
    failures = distinct(each for each in everything if each.finding.cache == adapter.name)
    news = [each for each in failures if not each.laws or each.laws - plan.known]
    unkept = [each for each in news if each.finding.only_should and not plan.strict]
    result = CacheResult(
        adapter.name,
        adapter.profile,
        lacks_of(subject),
        tallies,
        {},
        tuple(each for each in news if each not in unkept),
        tuple(unkept),
    )
    result = evolve(result, standings=_standings(result.tally, failures, plan))
    return evolve(result, missing=_missing(adapter.kind, result, plan))


def _standings(
    tally: Tally, failures: Collection[Failure], plan: CheckPlan
) -> Mapping[str, Standing]:
    """What is known of every law of the book."""
    broken = {law_id for failure in failures for law_id in failure.laws}
    return {law_id: _standing(law, tally, plan, broken) for law_id, law in LAWS.items()}


def _standing(law: Law, tally: Tally, plan: CheckPlan, broken: Collection[str]) -> Standing:
    if law.law_id not in broken:
        return Standing.HELD if tally.laws[law.law_id] else Standing.NOT_EXERCISED
    if law.law_id in plan.known:
        return Standing.KNOWN
    must = plan.strict or law.level is Level.MUST
    return Standing.BROKEN if must else Standing.NOT_KEPT


def _missing(kind: CacheKind, result: CacheResult, plan: CheckPlan) -> tuple[str, ...]:
    """What has to come up for a cache to hold, and did not.

    The cases of a broken one end early, so that only what it was asked for tells something.
    """
    if result.failures:
        return always_refused(kind, result.tally)
    standing = Standing.NOT_EXERCISED
    exercised = {law_id for law_id, each in result.standings.items() if each is not standing}
    drawn = Tally()
    for name, tally in result.tallies.items():
        if name != VECTORS:
            drawn.add(tally)
    # What is known to be broken is asked by vectors alone.
    return missing(kind, result.tally, drawn, exercised | plan.known, plan.only)


STAGES: dict[str, RunStage] = {VECTORS: hold, "walker": walk, "machine": draw}
"""What a check consists of, in this order."""
SHARES = {VECTORS: 1, "walker": 3, "machine": 1}
"""How the time is divided among the stages that have not run yet."""
