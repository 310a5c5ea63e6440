"""Explores level by level, from an empty cache to the last state of a scope.

Several processes expand chunks of a level, and the results are merged in the order of the level. So
the first path to each state, and every count, is the same for any number of processes.

After a failure the level is still finished. Only then is it certain that the reported path is the
first of the shortest ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path as File
from time import monotonic

from attrs import evolve, frozen

from kvcanon import __version__
from kvcanon.conformance.check.result import Finding, shorter
from kvcanon.conformance.check.trial import Trial, adapter_as
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore import frontier
from kvcanon.conformance.explore.expansion import Expander, Expansion
from kvcanon.conformance.explore.frontier import Path
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.workers import Workers, workers
from kvcanon.spec.law import LAWS

CHUNK = 32
"""How many states a process expands at a time."""
SAVED_EVERY_SECONDS = 60.0

Tell = Callable[[int, int, int], None]
"""Called with the level, the number of its expanded states, and the number of its states."""


@frozen
class ExplorationSpec:
    """An exploration of a cache given by name, so that another process can make the cache."""

    cache: str
    scope: Scope
    law_ids: tuple[str, ...] = ()
    """The laws to check; if empty, all."""

    def expander(self) -> Expander:
        """Make the expander. Raises: UsageError."""
        laws = [LAWS[law_id] for law_id in self.law_ids]
        return Expander(adapter_as(self.cache), self.scope, laws)


@frozen
class ExplorationLimits:
    """When to stop before the scope is exhausted."""

    levels: int | None = None
    seconds: float | None = None
    """For this run alone."""
    checkpoint: File | None = None
    """The file that progress is saved to and resumed from."""


NO_LIMITS = ExplorationLimits()


@frozen
class Exploration:
    """The result of exploring a scope."""

    cache: str
    scope: Scope
    law_ids: tuple[str, ...]
    """The laws that were checked."""
    levels: tuple[int, ...]
    """How many states each level has: those that need exactly that many actions."""
    states: int
    edges: int
    steps: int
    """Operations of the cache on these edges, each of which was judged."""
    laws_exercised: Mapping[str, int]
    """How often each law was exercised, where it was."""
    seconds: float
    """By the clock, in all runs."""
    cpu_seconds: float
    jobs: int
    left: int
    """States that were visited and not gone on from; 0 where the scope is exhausted."""
    finding: Finding | None
    """What is wrong, in the case that has the shortest path to it."""

    @property
    def exhausted(self) -> bool:
        """Whether every state of the scope was visited."""
        return not self.left and self.finding is None

    @property
    def not_exercised(self) -> tuple[str, ...]:
        """The laws that were checked and not exercised."""
        return tuple(law_id for law_id in self.law_ids if not self.laws_exercised.get(law_id))

    @property
    def missed(self) -> tuple[str, ...]:
        """The laws not exercised that this scope has to exercise."""
        return tuple(filter(self.scope.has_to_exercise, self.not_exercised))


def explore(
    source: ExplorationSpec | Expander,
    jobs: int = 1,
    limits: ExplorationLimits = NO_LIMITS,
    tell: Tell = lambda *_: None,
) -> Exploration:
    """Visit every state of a scope, or those within limits; stop after a level with a failure.

    With several jobs, `source` must be an `ExplorationSpec`. Raises: UsageError.
    """
    if isinstance(source, Expander) and jobs > 1:
        raise UsageError("only a cache that is named can be explored by several processes")
    run = _Run(source, limits, tell)
    with workers(jobs) as by:
        run.go(by)
    return run.result(jobs)


UNSEEN = "The guard, under which the path was played once more, sees nothing of it."


def as_guarded(finding: Finding, adapter: Adapter, law_ids: Sequence[str]) -> Finding:
    """A finding of an exploration as the guard reports it, or else as the explorer did.

    The path is shortest in actions. An action of a client may call several operations, so the case
    is played under the guard to find which of them breaks the law.
    """
    guarded, _ = Trial(adapter, JudgeConfig(laws=law_ids or None)).play(finding.case)
    if guarded is None:
        return evolve(finding, words=f"{finding.words}\n{UNSEEN}")
    return evolve(guarded, origin=finding.origin)


class _Run:
    """A running exploration."""

    def __init__(
        self, source: ExplorationSpec | Expander, limits: ExplorationLimits, tell: Tell
    ) -> None:
        self._source = source
        self._expander = _expander(source)
        self._limits = limits
        self._tell = tell
        self._of = _described(self._expander)
        self._finding: Finding | None = None
        self._began = self._saved = monotonic()
        file = limits.checkpoint
        if file is not None and file.exists():
            self._progress = frontier.load(file, self._of)
        else:
            self._progress = frontier.begin(self._expander.digest(self._expander.origin.empty()))
        self._seconds_before = self._progress.seconds

    def go(self, by: Workers) -> None:
        """Expand level after level."""
        progress, limits = self._progress, self._limits
        while progress.level and self._finding is None:
            if limits.levels is not None and len(progress.levels) >= limits.levels:
                break
            self._go_through_level(by)
            if progress.at < len(progress.level):
                break
            progress.levels.append(len(progress.level))
            progress.level, progress.following, progress.at = progress.following, [], 0
        self._save()

    def result(self, jobs: int) -> Exploration:
        """The result so far."""
        progress, expander = self._progress, self._expander
        return Exploration(
            expander.origin.adapter.name,
            expander.scope,
            expander.book.law_ids,
            (*progress.levels, *([len(progress.level)] if progress.level else [])),
            len(progress.visited),
            progress.edges,
            progress.steps,
            dict(sorted(progress.laws_exercised.items())),
            progress.seconds,
            progress.cpu_seconds,
            jobs,
            len(progress.level) - progress.at + len(progress.following),
            self._finding,
        )

    def _go_through_level(self, by: Workers) -> None:
        """Submit chunks of a level, and merge their results in order."""
        progress = self._progress
        whole, handed_out = len(progress.level), progress.at
        size = max(1, min(CHUNK, whole // (4 * by.jobs)))
        waiting: deque[tuple[list[Path], Future[Expansion]]] = deque()
        try:
            while True:
                while len(waiting) < 2 * by.jobs and handed_out < whole and not self._is_late():
                    coded = progress.level[handed_out : handed_out + size]
                    paths = [progress.codes.path(each) for each in coded]
                    waiting.append((paths, by.executor.submit(_expand, self._source, paths)))
                    handed_out += len(paths)
                if not waiting:
                    return
                paths, future = waiting[0]
                self._take(paths, future.result())
                waiting.popleft()
        except ProcessDied as died:
            raise UsageError(
                f"{self._expander.origin.adapter.name} {died}, in a move from one of "
                f"the states {progress.at} to {handed_out} of level {len(progress.levels)}"
            ) from None
        finally:
            for _, future in waiting:
                future.cancel()

    def _take(self, paths: Sequence[Path], found: Expansion) -> None:
        """Merge the expansion of the next states of the level."""
        progress = self._progress
        new = progress.visited.enter([edge.digest for _, edge in found.edges])
        for (index, edge), is_new in zip(found.edges, new, strict=True):
            if is_new:
                before = progress.level[progress.at + index]
                progress.following.append(before + progress.codes.code(edge.action))
        progress.at += len(paths)
        progress.edges += found.moves
        progress.steps += found.steps
        progress.laws_exercised.update(found.laws_exercised)
        progress.cpu_seconds += found.cpu_seconds
        if found.finding is not None:
            self._finding = shorter(self._finding, found.finding)
        self._tell(len(progress.levels), progress.at, len(progress.level))
        if monotonic() - self._saved > SAVED_EVERY_SECONDS:
            self._save()

    def _is_late(self) -> bool:
        limit = self._limits.seconds
        return limit is not None and monotonic() - self._began > limit

    def _save(self) -> None:
        """Save progress, unless a law is broken: a resumed run would not find the failure again."""
        self._saved = monotonic()
        self._progress.seconds = self._seconds_before + self._saved - self._began
        if self._limits.checkpoint is not None and self._finding is None:
            frontier.save(self._progress, self._limits.checkpoint, self._of)


def _described(expander: Expander) -> dict[str, str]:
    """What identifies an exploration. A checkpoint can be resumed only with equal values."""
    return {
        "cache": expander.origin.adapter.name,
        "scope": repr(expander.scope),
        "laws": " ".join(expander.book.law_ids),
        "version": __version__,
    }


def _expand(source: ExplorationSpec | Expander, paths: list[Path]) -> Expansion:
    return _expander(source).expand(paths)


def _expander(source: ExplorationSpec | Expander) -> Expander:
    return source if isinstance(source, Expander) else _made(source)


@cache
def _made(source: ExplorationSpec) -> Expander:
    """The expander, made once per process."""
    return source.expander()
