"""The plan of a check: what every stage is told, and what it has to tell in the end.

What readers get wrong: laws that are known to be broken are asked by vectors alone. A random case
that ran into one would end there, and hide what else there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import frozen

from kvcanon.conformance.search.campaign import Workers
from kvcanon.conformance.search.effort import Effort
from kvcanon.conformance.search.finding import Tally
from kvcanon.conformance.search.result import Failure, StageResult
from kvcanon.spec.law import LAWS

Progress = Callable[[str, int, int | None], None]
"""Is told of a stage how many of its cases are done, and of how many, if that is known."""


def silent(_stage: str, _done: int, _of: int | None) -> None:
    """Progress that nobody watches."""


@frozen
class CheckPlan:
    """What is to be checked."""

    names: tuple[str, ...]
    effort: Effort
    seed: int
    jobs: int
    against: str | None = None
    only: tuple[str, ...] = ()
    """The ids of the laws that are asked; none given, all."""
    known: frozenset[str] = frozenset()
    """The ids of laws that are known to be broken."""
    black_box: bool = False
    """Whether to judge by answers, events and bytes, though a cache may show its state."""
    strict: bool = False
    """Whether laws that should be kept must be."""
    store: str | None = None
    """Where a deep check keeps what was done: a directory, or the URL of a Redis."""
    progress: Progress = silent

    @property
    def law_ids(self) -> tuple[str, ...] | None:
        """The laws that random cases ask; None, all."""
        if not self.known:
            return self.only or None
        return tuple(law_id for law_id in self.only or LAWS if law_id not in self.known)


@frozen
class StageOutcome:
    """What came of a stage."""

    stage: StageResult
    tallies: Mapping[str, Tally]
    """By cache."""
    failures: tuple[Failure, ...]


RunStage = Callable[[CheckPlan, Workers, float], StageOutcome]
"""A stage: takes who plays, and the moment of `monotonic` at which it has to be over."""
