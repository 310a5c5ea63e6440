"""The campaign: many cases of the walker on one cache, in blocks, by several processes at once.

A block is a run of case numbers. It comes out the same wherever it is played, and blocks are taken
in by their order, so that the number of processes changes nothing but the time.

What readers get wrong: what is found is reduced after the search, once for each fingerprint. The
case that counts is the first one, not the one that some process happened to be done with first.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from time import monotonic
from typing import ParamSpec, TypeVar

from attrs import Factory, define, evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import INSIDE, Adapter
from kvcanon.conformance.protocol.loading import load_adapter
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.conformance.search.play import JudgeConfig, laws_of
from kvcanon.conformance.search.reduce import reduce_case
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.trial import Trial, is_silence, same_fault
from kvcanon.conformance.search.walker import draw_case, scale_of

WHITE_EVERY = 2
"""One case in so many is judged by the cache's states; the others from outside, far faster."""
COMPARED_EVERY = 4
"""Where caches must agree, one case in so many is compared, at the cost of all their states."""

FAULTS_ENOUGH = 12
"""Different faults after which a cache is not searched any further."""
FINDINGS_ENOUGH = 64
"""Findings after which it is not, either: they hide what else there is."""
SILENCES_ENOUGH = 2
"""Cases without an answer after which it is not: each takes as long as a hundred others."""

Fingerprint = tuple[str, str, str]


@frozen
class Search:
    """What is asked of one cache."""

    adapter: Adapter
    seed: int = 0
    against: Adapter | None = None
    law_ids: tuple[str, ...] | None = None
    """The laws that are asked; None, all."""

    def trial(self, number: int) -> Trial:
        """How the case of a number is played."""
        white = self._is_white(number)
        compared = number % COMPARED_EVERY == 1
        against = self.against if compared else None
        return Trial(
            self.adapter, JudgeConfig(black_box=not white, laws=laws_of(self.law_ids)), against
        )

    def case(self, number: int) -> Case:
        """The case of a number; those of another seed are others."""
        scale = scale_of(number, inside=self._is_white(number))
        return draw_case((self.seed << 40) + number, self.adapter.offer, scale=scale)

    def _is_white(self, number: int) -> bool:
        return number % WHITE_EVERY == 0


@frozen
class FindingGroup:
    """Findings of one fingerprint: how many, and the first of them."""

    finding: Finding
    case: Case
    number: int
    """Of the case."""
    times: int
    laws: frozenset[str]
    """The ids of all laws that were broken in them."""
    earlier: bool = False
    """Whether it is of an earlier run, of a cache that may have changed since."""

    def and_later(self, other: FindingGroup) -> FindingGroup:
        """The same with what was found later."""
        return evolve(self, times=self.times + other.times, laws=self.laws | other.laws)


@define
class CampaignReport:
    """What came of some blocks."""

    tally: Tally = Factory(Tally)
    found: dict[Fingerprint, FindingGroup] = Factory(dict)
    cut: bool = False
    """Whether the time was over before all cases were played."""

    def note(self, finding: Finding, case: Case, number: int) -> None:
        """Take in a finding of a case."""
        self.take(FindingGroup(finding, case, number, 1, frozenset(finding.broken)))

    def add(self, later: CampaignReport) -> None:
        """Take in what came of a later block."""
        self.tally.add(later.tally)
        for found in later.found.values():
            self.take(found)

    @property
    def enough(self) -> bool:
        """Whether there is no point in going on. What only should be kept hides nothing else."""
        found = [each for each in self.found.values() if not each.finding.only_should]
        silences = sum(each.times for each in found if is_silence(each.finding))
        findings = sum(each.times for each in found)
        return (
            len(found) >= FAULTS_ENOUGH
            or findings >= FINDINGS_ENOUGH
            or silences >= SILENCES_ENOUGH
        )

    def take(self, found: FindingGroup) -> None:
        """Take in findings of one fingerprint."""
        first = self.found.get(found.finding.fingerprint)
        self.found[found.finding.fingerprint] = first.and_later(found) if first else found


def play_block(search: Search, numbers: Collection[int], deadline: float) -> CampaignReport:
    """Play the cases of a block, up to the deadline, a moment of `monotonic`."""
    report = CampaignReport()
    for number in numbers:
        if monotonic() > deadline:
            report.cut = True
            break
        case = search.case(number)
        finding, tally = search.trial(number).play(case)
        report.tally.add(tally)
        if finding is not None:
            report.note(finding, case, number)
            if report.enough:
                break
    return report


def reduced(search: Search, found: FindingGroup) -> Failure | None:
    """What was found, in the smallest case; judged from outside if that is enough to see it.

    None if it was found in an earlier run, and the cache does not do it any more.
    """
    trial = search.trial(found.number)
    origin = f"walker, seed {search.seed}, case {found.number}"
    case, finding = found.case, found.finding
    smallest = reduce_case(case, finding, trial)
    if smallest is not None:
        case, finding = smallest
        outside = trial.from_outside()
        seen, _ = outside.play(case)
        if seen is not None and same_fault(finding, seen):
            trial, finding = outside, seen
    elif found.earlier:
        return None
    else:
        origin += ", which does not show it every time"
    return Failure(
        finding,
        case,
        origin,
        found.times,
        black_box=trial.judges.black_box,
        against=trial.against.name if trial.against else None,
        laws=found.laws | set(finding.broken),
    )


def distinct(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """One failure for each fingerprint, the shortest: reducing shows that some are of one fault."""
    kept: dict[Fingerprint, Failure] = {}
    for failure in failures:
        fingerprint = failure.finding.fingerprint
        other = kept.get(fingerprint)
        kept[fingerprint] = failure if other is None else _joined(other, failure)
    return tuple(kept.values())


def _joined(one: Failure, other: Failure) -> Failure:
    shorter = min(one, other, key=lambda each: len(each.case.actions))
    return evolve(shorter, times=one.times + other.times, laws=one.laws | other.laws)


# Several processes.


@frozen
class SearchSpec:
    """A search whose caches are named, so that another process can make them."""

    cache: str
    seed: int = 0
    against: str | None = None
    law_ids: tuple[str, ...] | None = None
    black_box: bool = False

    def search(self) -> Search:
        """The search. Raises: UsageError."""
        against = adapter_as(self.against) if self.against else None
        adapter = adapter_as(self.cache, black_box=self.black_box)
        return Search(adapter, self.seed, against, self.law_ids)


def adapter_as(name: str, *, black_box: bool = False) -> Adapter:
    """The adapter of this name, called by it, so that a report leads back to it.

    As a black box it shows answers, events and bytes, whatever else it has. Raises: UsageError.
    """
    adapter = evolve(load_adapter(name), name=name)
    return evolve(adapter, hides=adapter.hides | INSIDE) if black_box else adapter


Asked = Search | SearchSpec
Does = ParamSpec("Does")
Done = TypeVar("Done")


class _Here(Executor):
    """Does what is submitted at once, in this process."""

    def submit(
        self, fn: Callable[Does, Done], /, *args: Does.args, **kwargs: Does.kwargs
    ) -> Future[Done]:
        done: Future[Done] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@frozen
class Workers:
    """Who plays, and how many of them."""

    executor: Executor
    jobs: int


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """As many processes, or this one if one is enough."""
    if jobs == 1:
        yield Workers(_Here(), 1)
        return
    # A fresh process has no threads and no locks of this one's.
    context = get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_interrupts)
    try:
        yield Workers(pool, jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """An interrupt is for the process that the user sees; it ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


Tell = Callable[[int, CampaignReport], None]
"""Is told what came of each block, in their order."""


@frozen
class CaseBlocks:
    """The blocks of a campaign, as they are handed out."""

    numbers: Iterator[int]
    """Of the blocks to play; it ends where the campaign does."""
    cases_each: int
    done: Tell

    def cases(self, block: int) -> range:
        """The numbers of a block's cases."""
        return range(block * self.cases_each, (block + 1) * self.cases_each)


OUT_OF_TIME = "the time was over"
ENOUGH = "enough was found"


def search_blocks(
    asked: Asked, blocks: CaseBlocks, by: Workers, deadline: float
) -> tuple[CampaignReport, str]:
    """Play blocks until there are none left, enough was found, or the time is over.

    Returns what came of them, and why it ended before it was done, if it did. Raises: UsageError.
    """
    waiting: deque[tuple[int, Future[CampaignReport]]] = deque()
    total, cut_short = CampaignReport(), ""
    try:
        while True:
            while not cut_short and len(waiting) < 2 * by.jobs - 1:
                block = next(blocks.numbers, None)
                if block is None:
                    break
                cases = blocks.cases(block)
                waiting.append((block, by.executor.submit(_play, asked, cases, deadline)))
            if not waiting:
                return total, cut_short
            block, future = waiting[0]
            report = future.result()
            waiting.popleft()
            blocks.done(block, report)
            total.add(report)
            if report.cut:
                # Those that still wait are over at once.
                cut_short = OUT_OF_TIME
            if total.enough:
                return total, ENOUGH
    except BrokenProcessPool:
        first, last = blocks.cases(waiting[0][0])[0], blocks.cases(waiting[-1][0])[-1]
        name = _search(asked).adapter.name
        raise UsageError(
            f"{name} ended its process, in one of the cases {first} to {last}"
        ) from None
    finally:
        for _, future in waiting:
            future.cancel()


def reduce_all(asked: Asked, report: CampaignReport, by: Workers) -> tuple[Failure, ...]:
    """What was found, each in its smallest case, in the order of the first cases."""
    firsts = sorted(report.found.values(), key=lambda found: found.number)
    futures = [by.executor.submit(_reduce, asked, found) for found in firsts]
    failures = [future.result() for future in futures]
    return distinct(failure for failure in failures if failure is not None)


def _play(asked: Asked, numbers: range, deadline: float) -> CampaignReport:
    return play_block(_search(asked), numbers, deadline)


def _reduce(asked: Asked, found: FindingGroup) -> Failure | None:
    return reduced(_search(asked), found)


def _search(asked: Asked) -> Search:
    return asked if isinstance(asked, Search) else _named(asked)


@cache
def _named(asked: SearchSpec) -> Search:
    """The search, once a process: to make an adapter may start a child."""
    return asked.search()
