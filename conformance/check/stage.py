"""A stage of a check: its input, the time of each cache in it, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from time import monotonic

from attrs import Factory, frozen

from kvcanon.conformance.check.plan import CheckPlan, CheckStage
from kvcanon.conformance.check.result import Finding, StageResult, Tally, Unplayed
from kvcanon.conformance.check.triage import distinct
from kvcanon.conformance.workers.workers import Workers

OUT_OF_TIME = "the time was over"
ENOUGH = "enough was found"
LOST = "some were lost"
"""Why a stage ends early."""

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a stage, its played cases, and their number if it is known."""


def no_progress(_stage: str, _done: int, _of: int | None) -> None:
    """Show no progress."""


@frozen
class StageOutcome:
    """The result of a stage."""

    stage: StageResult
    tallies: Mapping[str, Tally]
    """The counts of each cache."""
    findings: tuple[Finding, ...]
    unplayed: Mapping[str, Unplayed] = Factory(dict)
    """What it asks for more of, by cache."""


class StageRun:
    """One stage while it runs: divides its time among the caches, and collects their results."""

    def __init__(
        self,
        stage: CheckStage,
        plan: CheckPlan,
        by: Workers,
        deadline: float,
        progress: Progress = no_progress,
    ) -> None:
        self.plan, self.by, self.deadline = plan, by, deadline
        """`deadline` is the moment of `monotonic` at which the stage must end."""
        self.ends = deadline
        """The moment at which the current cache must end."""
        self._stage, self._progress = stage, progress
        self._began = monotonic()
        self._tallies: dict[str, Tally] = {}
        self._findings: list[Finding] = []
        self._cut_short: dict[str, str] = {}
        self._asked: dict[str, int] = {}

    def caches(self) -> Iterator[str]:
        """The caches in turn; the share of a cache in the time begins when it is taken."""
        names = self.plan.caches
        for at, name in enumerate(names):
            left = self.deadline - monotonic()
            self.ends = monotonic() + left / (len(names) - at)
            yield name

    def show(self, cache: str, done: int, of: int | None) -> None:
        """Show how many cases of a cache are played."""
        self._progress(f"{self._stage}, {cache}", done, of)

    def add(
        self, cache: str, tally: Tally, findings: Iterable[Finding], why: str, asked: int | None
    ) -> None:
        """Add the results of a cache: why it was cut short, if it was, and what was asked for."""
        self._tallies[cache] = tally
        self._findings += findings
        if asked is not None:
            self._asked[cache] = asked
        if why:
            self._cut_short[cache] = why

    def outcome(self, *, endless: bool, units: str = "cases") -> StageOutcome:
        """The outcome of the stage; an endless stage is not cut short by its time."""
        shard = self.plan.shard
        whys = [f"only shard {shard} was played"] if shard.of > 1 else []
        whys += [
            f"{cache}: {why} after {self._played(cache)} {units}"
            for cache, why in self._cut_short.items()
            if not (endless and why == OUT_OF_TIME)
        ]
        tallies = self._tallies.values()
        stage = StageResult(
            self._stage,
            cases=sum(tally.cases for tally in tallies),
            steps=sum(tally.steps for tally in tallies),
            seconds=monotonic() - self._began,
            cut_short="; ".join(whys),
            unoffered=sum(tally.unoffered for tally in tallies),
            declined=sum(tally.declined for tally in tallies),
            too_slow=sum(tally.too_slow for tally in tallies),
            asked=sum(self._asked.values()) if self._asked else None,
        )
        return StageOutcome(stage, self._tallies, distinct(self._findings), self._unplayed())

    def _played(self, cache: str) -> str:
        """How many cases of a cache were played, and of how many."""
        tally, asked = self._tallies[cache], self._asked.get(cache)
        return f"{tally.cases:,}" if asked is None else f"{tally.cases:,} of {asked:,}"

    def _unplayed(self) -> dict[str, Unplayed]:
        """What was cut short, by cache; an open effort asks for no number of cases."""
        short = {} if self.plan.effort.is_open else self._cut_short
        counts = {cache: self._tallies[cache] for cache in short if cache in self._asked}
        return {
            cache: Unplayed(self._stage, tally.cases + tally.unoffered, self._asked[cache])
            for cache, tally in counts.items()
        }

    def asked(self, cases: int | None, each: int) -> int | None:
        """How many cases the parts of its shard have; None if their number is open."""
        return None if cases is None else sum(each for _ in self.parts(cases, each))

    def parts(self, cases: int | None, each: int) -> Iterator[int]:
        """The numbers of this shard's parts, each of `each` cases; endless if `cases` is None."""
        numbers = count() if cases is None else iter(range(-(-cases // each)))
        return self.plan.shard.parts(numbers)
