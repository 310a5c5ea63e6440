"""The check: all stages on all caches, and what is known of every law in the end.

What readers get wrong: a stage that was cut short found what it found, and says that there was more
to do. It is no smaller check that was done.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from time import monotonic

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.adapters.adapter import Capability, Subject, Unoffered
from kvcanon.conformance.faults import Fault
from kvcanon.conformance.judging.campaign import (
    ENOUGH,
    Blocks,
    Named,
    Report,
    Workers,
    adapter_as,
    distinct,
    reduce_all,
    search_blocks,
    workers,
)
from kvcanon.conformance.judging.effort import effort_named
from kvcanon.conformance.judging.finding import Tally
from kvcanon.conformance.judging.plan import Outcome, Plan, Progress, RunStage, silent
from kvcanon.conformance.judging.play import make_judged
from kvcanon.conformance.judging.result import CacheResult, CheckResult, Failure, Stage, Standing
from kvcanon.conformance.judging.store import open_store, share_blocks
from kvcanon.conformance.judging.walker import draw_case
from kvcanon.spec.law import LAWS, Need

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
    jobs: int | None = None,
    minutes: float | None = None,
    store: str | None = None,
    progress: Progress = silent,
) -> CheckResult:
    """Check caches, each by its name.

    `only` names stages, laws, or both; `known` the laws that are known to be broken. Raises: Fault,
    also where nothing was judged of a cache.
    """
    stages, law_ids = _chosen(only)
    unknown = sorted(set(known) - LAWS.keys())
    if unknown:
        raise Fault(f"no law {unknown[0]}, which is said to be known")
    plan = Plan(
        names=tuple(dict.fromkeys(names)),
        effort=effort_named(effort, minutes),
        seed=seed,
        jobs=jobs or os.cpu_count() or 1,
        against=against,
        only=law_ids,
        known=frozenset(known),
        store=store,
        progress=progress,
    )
    made = {name: _made(name) for name in (*plan.names, *((against,) if against else ()))}
    outcomes = _run(plan, stages)
    results = tuple(_result(name, made[name], outcomes, plan.known) for name in made)
    for result in results:
        if result.name in plan.names and not result.failures and not result.tally.laws:
            raise Fault(f"nothing was judged of {result.name}; it lacks {', '.join(result.lacks)}")
    shown = tuple(each for each in results if each.name in plan.names or each.failures)
    ran = tuple(outcome.stage for outcome in outcomes)
    return CheckResult(shown, effort, seed, ran, against)


def _chosen(only: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stages and the laws among some names. Raises: Fault."""
    for name in only:
        if name not in STAGES and name not in LAWS:
            raise Fault(f"no law {name}, and no stage; the stages are {', '.join(STAGES)}")
    stages = tuple(name for name in STAGES if name in only) or tuple(STAGES)
    return stages, tuple(law_id for law_id in LAWS if law_id in only)


def _made(name: str) -> Subject:
    """One cache of this name, to see what it has. Raises: Fault."""
    adapter = adapter_as(name)
    for seed in range(CONFIGS_TRIED):
        try:
            return make_judged(adapter, draw_case(seed, adapter.offer).config)[0]
        except Unoffered:
            continue
    raise Fault(f"{name} offers none of {CONFIGS_TRIED} configurations")


def _run(plan: Plan, stages: Sequence[str]) -> list[Outcome]:
    """Run stages one by one; each has its share of what is left of the time."""
    outcomes = []
    end = monotonic() + plan.effort.seconds
    for at, name in enumerate(stages):
        left = sum(SHARES[each] for each in stages[at:])
        deadline = monotonic() + (end - monotonic()) * SHARES[name] / left
        outcomes.append(STAGES[name](plan, deadline))
    return outcomes


def _result(
    name: str, subject: Subject, outcomes: Sequence[Outcome], known: Collection[str]
) -> CacheResult:
    """What the stages found out about one cache."""
    tally = Tally()
    for outcome in outcomes:
        tally.add(outcome.tallies.get(name, Tally()))
    everything = (failure for outcome in outcomes for failure in outcome.failures)
    failures = distinct(each for each in everything if each.finding.cache == name)
    lacks = [each.value for each in Capability if each not in subject.can]
    lacks += [each.value for each in Need if each not in subject.shows]
    return CacheResult(
        name,
        adapter_as(name).profile,
        tuple(dict.fromkeys(lacks)),
        tally,
        _standings(tally, failures, known),
        failures,
    )


def _standings(
    tally: Tally, failures: Collection[Failure], known: Collection[str]
) -> Mapping[str, Standing]:
    """What is known of every law of the book."""
    broken = {law_id for failure in failures for law_id in failure.laws}
    standings = {}
    for law_id in LAWS:
        if law_id in known:
            standings[law_id] = Standing.KNOWN
        elif law_id in broken:
            standings[law_id] = Standing.BROKEN
        else:
            standings[law_id] = Standing.HELD if tally.laws[law_id] else Standing.NOT_JUDGED
    return standings


# The walker.


def walk(plan: Plan, deadline: float) -> Outcome:
    """Play cases of the walker on one cache after the other, in several processes."""
    tallies: dict[str, Tally] = {}
    failures: list[Failure] = []
    cut_short = []
    start = monotonic()
    with workers(plan.jobs) as by:
        for at, name in enumerate(plan.names):
            ends = monotonic() + (deadline - monotonic()) / (len(plan.names) - at)
            against = plan.against if plan.against != name else None
            asked = Named(name, plan.seed, against, plan.law_ids)
            report, why = _search(plan, asked, by, ends)
            tallies[name] = report.tally
            failures += reduce_all(asked, report, by)
            if why == ENOUGH or (why and plan.effort.walker_cases is not None):
                cut_short.append(f"{name}: {why} after {report.tally.cases:,} cases")
    cases = sum(tally.cases for tally in tallies.values())
    steps = sum(tally.steps for tally in tallies.values())
    stage = Stage("walker", cases, steps, monotonic() - start, "; ".join(cut_short))
    return Outcome(stage, tallies, distinct(failures))


def _search(plan: Plan, asked: Named, by: Workers, deadline: float) -> tuple[Report, str]:
    """Play the cases of an effort: so many, or until the time is over."""
    effort, done = plan.effort, count(1)

    def tell(_block: int, _report: Report) -> None:
        cases = next(done) * effort.block
        plan.progress(f"walker, {asked.cache}", cases, effort.walker_cases)

    if effort.walker_cases is not None:
        numbers: Iterator[int] = iter(range(-(-effort.walker_cases // effort.block)))
    elif plan.store is None:
        numbers = count()
    else:
        store = open_store(plan.store, asked, effort.block)
        return share_blocks(asked, store, effort.block, by, deadline=deadline, done=tell)
    return search_blocks(asked, Blocks(numbers, effort.block, tell), by, deadline)


STAGES: dict[str, RunStage] = {"walker": walk}
"""What a check consists of, in this order."""
SHARES = {"walker": 2.0}
"""How the time is divided among stages that have not run yet."""
