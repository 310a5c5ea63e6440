"""Exploring: level by level, from an empty cache to the last state of a scope.

A level is handed out in chunks to several processes, and what comes back is taken in by the order
of the level. So the first path to each state, and every number, is the same however many there are.

What readers get wrong: where something is broken, the level is still gone through to its end. Only
then is it known that no shorter path leads to it, and that it is the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path as File
from time import monotonic

from attrs import frozen

from kvcanon import __version__
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.search.campaign import Workers, adapter_as, workers
from kvcanon.conformance.verify.explore import frontier
from kvcanon.conformance.verify.explore.expansion import Broken, Expander, Expansion
from kvcanon.conformance.verify.explore.frontier import Path
from kvcanon.conformance.verify.explore.reach import has_to_come_up
from kvcanon.conformance.verify.explore.scope import Scope
from kvcanon.spec.law import LAWS

CHUNK = 32
"""States that a process goes on from at a time."""
SAVED_EVERY_SECONDS = 60.0

Tell = Callable[[int, int, int], None]
"""Called with the level, how many of its states were expanded, and how many there are."""


@frozen
class ExplorationSpec:
    """An exploration of a cache that is named, so that another process can make it."""

    cache: str
    scope: Scope
    law_ids: tuple[str, ...] = ()
    """The laws that are checked; none given, all."""

    def expander(self) -> Expander:
        """What goes on from states. Raises: UsageError."""
        return expander_of(adapter_as(self.cache), self.scope, self.law_ids)


def expander_of(adapter: Adapter, scope: Scope, law_ids: Sequence[str] = ()) -> Expander:
    """What goes on from the states of a cache. Raises: UsageError."""
    return Expander(adapter, scope, [LAWS[law_id] for law_id in law_ids])


@frozen
class ExplorationLimits:
    """Where to stop though there is more."""

    levels: int | None = None
    seconds: float | None = None
    """Of this run."""
    checkpoint: File | None = None
    """Where progress is kept, and from where it goes on."""


NO_LIMITS = ExplorationLimits()


@frozen
class Exploration:
    """What came of exploring a scope."""

    cache: str
    scope: Scope
    law_ids: tuple[str, ...]
    """The laws that were checked."""
    levels: tuple[int, ...]
    """How many states so many actions lead to, and no fewer."""
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
    broken: Broken | None
    """What is wrong, and the shortest path to it."""

    @property
    def exhausted(self) -> bool:
        """Whether there is no state of the scope that was not visited."""
        return not self.left and self.broken is None

    @property
    def not_exercised(self) -> tuple[str, ...]:
        """The laws that were checked and not exercised."""
        return tuple(law_id for law_id in self.law_ids if not self.laws_exercised.get(law_id))

    @property
    def missed(self) -> tuple[str, ...]:
        """Those of them whose situation has to come up in this scope."""
        return tuple(law_id for law_id in self.not_exercised if has_to_come_up(self.scope, law_id))


def explore(
    source: ExplorationSpec | Expander,
    jobs: int = 1,
    limits: ExplorationLimits = NO_LIMITS,
    tell: Tell = lambda *_: None,
) -> Exploration:
    """Visit every state of a scope, or those within limits; stop after a level with a fault.

    Several processes need a cache that is named. Raises: UsageError.
    """
    if isinstance(source, Expander) and jobs > 1:
        raise UsageError("only a cache that is named can be explored by several processes")
    run = _Run(source, limits, tell)
    with workers(jobs) as by:
        run.go(by)
    return run.result(jobs)


class _Run:
    """An exploration that is under way."""

    def __init__(
        self, source: ExplorationSpec | Expander, limits: ExplorationLimits, tell: Tell
    ) -> None:
        self._source = source
        self._expander = _expander(source)
        self._limits = limits
        self._tell = tell
        self._of = _described(self._expander)
        self._broken: Broken | None = None
        self._began = self._saved = monotonic()
        file = limits.checkpoint
        if file is not None and file.exists():
            self._progress = frontier.load(file, self._of)
        else:
            self._progress = frontier.begin(self._expander.digest(self._expander.origin.empty()))
        self._seconds_before = self._progress.seconds

    def go(self, by: Workers) -> None:
        """Go through level after level."""
        progress, limits = self._progress, self._limits
        while progress.level and self._broken is None:
            if limits.levels is not None and len(progress.levels) >= limits.levels:
                break
            self._go_through_level(by)
            if progress.at < len(progress.level):
                break
            progress.levels.append(len(progress.level))
            progress.level, progress.following, progress.at = progress.following, [], 0
        self._save()

    def result(self, jobs: int) -> Exploration:
        """What came of it."""
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
            self._broken,
        )

    def _go_through_level(self, by: Workers) -> None:
        """Hand out chunks of a level, and take in what comes of them, in their order."""
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
        except BrokenProcessPool:
            raise UsageError(
                f"{self._expander.origin.adapter.name} ended its process, in a move from one of "
                f"the states {progress.at} to {handed_out} of level {len(progress.levels)}"
            ) from None
        finally:
            for _, future in waiting:
                future.cancel()

    def _take(self, paths: Sequence[Path], found: Expansion) -> None:
        """Take in what came of going on from the next states of the level."""
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
        nearest = self._broken
        if found.broken is not None and (
            nearest is None or len(found.broken.path) < len(nearest.path)
        ):
            self._broken = found.broken
        self._tell(len(progress.levels), progress.at, len(progress.level))
        if monotonic() - self._saved > SAVED_EVERY_SECONDS:
            self._save()

    def _is_late(self) -> bool:
        limit = self._limits.seconds
        return limit is not None and monotonic() - self._began > limit

    def _save(self) -> None:
        """Keep progress, unless something is broken: it would not be found again from there."""
        self._saved = monotonic()
        self._progress.seconds = self._seconds_before + self._saved - self._began
        if self._limits.checkpoint is not None and self._broken is None:
            frontier.save(self._progress, self._limits.checkpoint, self._of)


def _described(expander: Expander) -> dict[str, str]:
    """What an exploration is of: only with the same can one go on."""
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
    """What goes on from states, once a process."""
    return source.expander()
