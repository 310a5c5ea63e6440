"""A stage of random cases while it runs: the time of each cache, and the results so far."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from time import monotonic

from kvcanon.conformance.check.campaign import OUT_OF_TIME, SearchSpec
from kvcanon.conformance.check.finding import Tally
from kvcanon.conformance.check.plan import CheckPlan, StageOutcome
from kvcanon.conformance.check.reductions import distinct
from kvcanon.conformance.check.result import Failure, StageResult


class StageRun:
    """Divides the time of a stage among the caches, and collects their results."""

    def __init__(self, name: str, plan: CheckPlan, deadline: float) -> None:
        self.ends = deadline
        """The moment of `monotonic` at which the current cache must end."""
        self._name, self._plan, self._deadline = name, plan, deadline
        self._began = monotonic()
        self._tallies: dict[str, Tally] = {}
        self._failures: list[Failure] = []
        self._cut_short: dict[str, str] = {}

    def specs(self) -> Iterator[SearchSpec]:
        """The search of each cache; the cache's share of the time begins when it is taken."""
        plan = self._plan
        for at, name in enumerate(plan.names):
            left = self._deadline - monotonic()
            self.ends = monotonic() + left / (len(plan.names) - at)
            against = plan.against if plan.against != name else None
            known = tuple(sorted(plan.known))
            yield SearchSpec(name, plan.seed, against, plan.law_ids, plan.black_box, known)

    def add(self, cache: str, tally: Tally, failures: tuple[Failure, ...], why: str) -> None:
        """Add the results of a cache; `why` says why it was cut short, if it was."""
        self._tallies[cache] = tally
        self._failures += failures
        if why:
            self._cut_short[cache] = why

    def outcome(self, *, endless: bool, units: str = "cases") -> StageOutcome:
        """The outcome of the stage; an endless stage is not cut short by its time."""
        shard = self._plan.shard
        whys = [f"only shard {shard} was played"] if shard.of > 1 else []
        whys += [
            f"{cache}: {why} after {self._tallies[cache].cases:,} {units}"
            for cache, why in self._cut_short.items()
            if not (endless and why == OUT_OF_TIME)
        ]
        tallies = self._tallies.values()
        stage = StageResult(
            self._name,
            cases=sum(tally.cases for tally in tallies),
            steps=sum(tally.steps for tally in tallies),
            seconds=monotonic() - self._began,
            cut_short="; ".join(whys),
            unoffered=sum(tally.unoffered for tally in tallies),
        )
        return StageOutcome(stage, self._tallies, distinct(self._failures))


def part_numbers(cases: int | None, each: int) -> Iterator[int]:
    """The numbers of the parts into which cases are divided; endless for None."""
    return count() if cases is None else iter(range(-(-cases // each)))
