"""The plan of a check, which every stage gets, and the outcome, which every stage returns.

Laws that are known to be broken are checked in every stage, and end no case, so that they hide no
other fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from attrs import frozen

from kvcanon.conformance.check.effort import Effort
from kvcanon.conformance.check.finding import Tally
from kvcanon.conformance.check.result import Failure, StageResult
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.workers import Workers

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a stage, its played cases, and their number if it is known."""


def silent(_stage: str, _done: int, _of: int | None) -> None:
    """Show no progress."""


@frozen
class Shard:
    """A part of a check: jobs that play the shards 1/4 to 4/4 play the whole check together.

    Vectors, the walker's cases and the machine's runs are dealt out in turn.
    """

    number: int = 1
    of: int = 1

    @staticmethod
    def parse(text: str) -> Shard:
        """The shard of a text such as "1/4". Raises: UsageError."""
        found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text)
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"no shard {text!r}; give one as 1/4, of the shards 1/4 to 4/4")
        return Shard(int(found[1]), int(found[2]))

    def parts(self, parts: Iterator[int]) -> Iterator[int]:
        """The parts of this shard."""
        return (part for part in parts if part % self.of == self.number - 1)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@frozen
class CheckPlan:
    """The caches to check, and how."""

    names: tuple[str, ...]
    effort: Effort
    seed: int
    jobs: int
    against: str | None = None
    only: tuple[str, ...] = ()
    """The ids of the laws to check; empty for all."""
    known: frozenset[str] = frozenset()
    """The ids of laws that are known to be broken."""
    black_box: bool = False
    """Whether to judge by answers, events and bytes, even if a cache shows its state."""
    strict: bool = False
    """Whether broken SHOULD laws fail the check."""
    store: str | None = None
    """Where a deep check keeps its results: a directory, or the URL of a Redis."""
    shard: Shard = Shard()
    """The part of all cases to play."""
    progress: Progress = silent

    @property
    def law_ids(self) -> tuple[str, ...] | None:
        """The ids of the laws to check; None for all."""
        return self.only or None


@frozen
class StageOutcome:
    """The result of a stage."""

    stage: StageResult
    tallies: Mapping[str, Tally]
    """The counts of each cache."""
    failures: tuple[Failure, ...]


RunStage = Callable[[CheckPlan, Workers, float], StageOutcome]
"""A stage; it gets the moment of `monotonic` at which it must end."""
