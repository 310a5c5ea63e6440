"""The campaign: plays many cases of the walker on one cache, in blocks, in several processes.

A block is a range of case numbers. Its result does not depend on the process, and results are added
in the order of the blocks, so that the number of processes changes only the time.

Findings are reduced after the search, once for each fingerprint, from the first case that shows it.
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
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.conformance.search.play import JudgeConfig, laws_of
from kvcanon.conformance.search.reduce import reduce_case
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.trial import Trial, is_silence, same_fault
from kvcanon.conformance.search.walker import draw_case, scale_of

WHITE_EVERY = 2
"""One case in WHITE_EVERY is judged by the cache's states; the others from outside, far faster."""
COMPARED_EVERY = 4
"""One case in COMPARED_EVERY is compared with the cache to agree with, which is slow."""

FAULTS_ENOUGH = 12
"""Different faults after which the search of a cache ends."""
FINDINGS_ENOUGH = 64
"""Findings after which the search ends: they hide other faults."""
SILENCES_ENOUGH = 2
"""Cases without an answer after which the search ends: each takes as long as a hundred others."""

Fingerprint = tuple[str, str, str]


@frozen
class Search:
    """The cases to play on one cache, and how to judge it."""

    adapter: Adapter
    seed: int = 0
    against: Adapter | None = None
    law_ids: tuple[str, ...] | None = None
    """The ids of the laws to check; None for all."""

    def trial(self, number: int) -> Trial:
        """How the case with a number is played."""
        white = self._is_white(number)
        compared = number % COMPARED_EVERY == 1
        against = self.against if compared else None
        return Trial(
            self.adapter, JudgeConfig(black_box=not white, laws=laws_of(self.law_ids)), against
        )

    def case(self, number: int) -> Case:
        """The case with a number; each seed has other cases."""
        scale = scale_of(number, inside=self._is_white(number))
        return draw_case((self.seed << 40) + number, self.adapter.offer, scale=scale)

    def _is_white(self, number: int) -> bool:
        return number % WHITE_EVERY == 0


@frozen
class FindingGroup:
    """Findings with the same fingerprint: the first of them, and how many there are."""

    finding: Finding
    case: Case
    number: int
    """The number of the case."""
    times: int
    laws: frozenset[str]
    """The ids of all laws that these findings break."""
    earlier: bool = False
    """Whether an earlier run found it, on a cache that may have changed since."""

    def and_later(self, other: FindingGroup) -> FindingGroup:
        """The same with later findings."""
        return evolve(self, times=self.times + other.times, laws=self.laws | other.laws)


@define
class CampaignReport:
    """The result of some blocks."""

    tally: Tally = Factory(Tally)
    found: dict[Fingerprint, FindingGroup] = Factory(dict)
    cut: bool = False
    """Whether the time was over before all cases were played."""

    def note(self, finding: Finding, case: Case, number: int) -> None:
        """Add a finding of a case."""
        self.take(FindingGroup(finding, case, number, 1, frozenset(finding.broken)))

    def add(self, later: CampaignReport) -> None:
        """Add the report of a later block."""
        self.tally.add(later.tally)
        for found in later.found.values():
            self.take(found)

    @property
    def enough(self) -> bool:
        """Whether enough was found to stop. Findings of SHOULD laws alone do not count."""
        found = [each for each in self.found.values() if not each.finding.only_should]
        silences = sum(each.times for each in found if is_silence(each.finding))
        findings = sum(each.times for each in found)
        return (
            len(found) >= FAULTS_ENOUGH
            or findings >= FINDINGS_ENOUGH
            or silences >= SILENCES_ENOUGH
        )

    def take(self, found: FindingGroup) -> None:
        """Add findings with the same fingerprint."""
        first = self.found.get(found.finding.fingerprint)
        self.found[found.finding.fingerprint] = first.and_later(found) if first else found


def play_block(search: Search, numbers: Collection[int], deadline: float) -> CampaignReport:
    """Play the cases of a block until the deadline, a moment of `monotonic`."""
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
    """Reduce findings to the smallest case, judged from outside if that shows the fault.

    None if an earlier run found it, and the cache does not show it any more.
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
    """Keep the shortest failure for each fingerprint: reduced cases may show the same fault."""
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
    """A search with caches by name, so that another process can make them."""

    cache: str
    seed: int = 0
    against: str | None = None
    law_ids: tuple[str, ...] | None = None
    black_box: bool = False

    def search(self) -> Search:
        """Make the search. Raises: UsageError."""
        against = adapter_as(self.against) if self.against else None
        adapter = adapter_as(self.cache, black_box=self.black_box)
        return Search(adapter, self.seed, against, self.law_ids)


def adapter_as(name: str, *, black_box: bool = False) -> Adapter:
    """Load an adapter, and give it the name from the command line, for reports.

    As a black box it shows answers, events and bytes only. Raises: UsageError.
    """
    adapter = evolve(load_adapter(name), name=name)
    return evolve(adapter, hides=adapter.hides | INSIDE) if black_box else adapter


AnySearch = Search | SearchSpec
Does = ParamSpec("Does")
Done = TypeVar("Done")


class _Here(Executor):
    """Runs what is submitted at once, in this process."""

    def submit(
        self, fn: Callable[Does, Done], /, *args: Does.args, **kwargs: Does.kwargs
    ) -> Future[Done]:
        done: Future[Done] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@frozen
class Workers:
    """The processes that play cases."""

    executor: Executor
    jobs: int


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """Start worker processes; `jobs` of 1 uses this process."""
    if jobs == 1:
        yield Workers(_Here(), 1)
        return
    # A spawned process inherits no threads and no locks.
    context = get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_interrupts)
    try:
        yield Workers(pool, jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """Leave interrupts to the parent process, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


OnBlock = Callable[[int, CampaignReport], None]
"""Called with the number and the report of each block, in the order of the blocks."""


@frozen
class CaseBlocks:
    """The blocks of a campaign, as they are given to workers."""

    numbers: Iterator[int]
    """The numbers of the blocks to play."""
    cases_each: int
    done: OnBlock

    def cases(self, block: int) -> range:
        """The numbers of a block's cases."""
        return range(block * self.cases_each, (block + 1) * self.cases_each)


OUT_OF_TIME = "the time was over"
ENOUGH = "enough was found"


def search_blocks(
    search: AnySearch, blocks: CaseBlocks, by: Workers, deadline: float
) -> tuple[CampaignReport, str]:
    """Play blocks until none are left, enough was found, or the time is over.

    Returns the report, and why the search ended early, or else "". Raises: UsageError.
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
                waiting.append((block, by.executor.submit(_play, search, cases, deadline)))
            if not waiting:
                return total, cut_short
            block, future = waiting[0]
            report = future.result()
            waiting.popleft()
            blocks.done(block, report)
            total.add(report)
            if report.cut:
                # The blocks that still wait end at once.
                cut_short = OUT_OF_TIME
            if total.enough:
                return total, ENOUGH
    except BrokenProcessPool:
        first, last = blocks.cases(waiting[0][0])[0], blocks.cases(waiting[-1][0])[-1]
        name = _made(search).adapter.name
        raise UsageError(
            f"{name} ended its process, in one of the cases {first} to {last}"
        ) from None
    finally:
        for _, future in waiting:
            future.cancel()


def reduce_all(search: AnySearch, report: CampaignReport, by: Workers) -> tuple[Failure, ...]:
    """Reduce all findings, in the order of their first cases."""
    firsts = sorted(report.found.values(), key=lambda found: found.number)
    futures = [by.executor.submit(_reduce, search, found) for found in firsts]
    failures = [future.result() for future in futures]
    return distinct(failure for failure in failures if failure is not None)


def _play(search: AnySearch, numbers: range, deadline: float) -> CampaignReport:
    return play_block(_made(search), numbers, deadline)


def _reduce(search: AnySearch, found: FindingGroup) -> Failure | None:
    return reduced(_made(search), found)


def _made(search: AnySearch) -> Search:
    return search if isinstance(search, Search) else _made_from(search)


@cache
def _made_from(spec: SearchSpec) -> Search:
    """Make a search once in each process: making an adapter may start a child process."""
    return spec.search()


def forget_searches() -> None:
    """Forget the searches of this process: a name may stand for another cache from now on."""
    _made_from.cache_clear()
