"""Blocks: plays many cases of the walker on one cache, in blocks, in several processes.

A block is a range of case numbers. Its result does not depend on the process, and results are added
in the order of the blocks, so that the number of processes changes only the time.

If a process dies in a block, the other cases are played all the same. Those before the deadly case
are played again and those after it for the first time, so that the result is that of one process
after the other, whatever the number of jobs.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import Protocol, Self, TypeVar

from attrs import Factory, define, evolve, frozen

from kvcanon.conformance.cases.case import RANKS, Case
from kvcanon.conformance.cases.draw import draw_case, is_offered, scale_of
from kvcanon.conformance.cases.draw_stored import RANKED_EVERY, draw_stored_case
from kvcanon.conformance.check.plan import CachePlan, CheckStage
from kvcanon.conformance.check.result import Finding, Grounds, Tally
from kvcanon.conformance.check.stage import ENOUGH, OUT_OF_TIME
from kvcanon.conformance.check.trial import Trial, adapter_as, finding_of
from kvcanon.conformance.corpus import read_corpus
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, takes_agree
from kvcanon.conformance.protocol.cache_names import LOADED
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import Workers

WHITE_EVERY = 2
"""One case in WHITE_EVERY is judged by the cache's states; the others from outside, far faster."""
APART_EVERY = 4
"""One case of ranks in APART_EVERY has a rank in another process, which is slow."""
COMPARED_EVERY = 8
"""One case in COMPARED_EVERY is compared with the cache to agree with, which is slow."""
STORED_COMPARED_EVERY = 3
"""One case with a store in so many is compared, on one rank and on several."""

KINDS_ENOUGH = 12
"""Findings of different fingerprints after which no further case of a cache is played."""
FINDINGS_ENOUGH = 64
"""Findings after which none is played: they hide other faults."""
SILENCES_ENOUGH = 2
"""Cases without an answer after which none is played: each takes as long as a hundred others."""
DEATHS_ENOUGH = 4
"""Processes that a cache may end: each takes as long as many cases."""
REDUCING_SHARE, REDUCING_SECONDS = 0.4, 120.0
"""The share of the remaining time that is kept to reduce findings, and the most seconds."""

Fingerprint = tuple[str, Grounds, str]


# The cases of one cache.


@frozen
class NumberedCases:
    """Cases by their numbers, of a seed or of the corpus, and how each is played on a cache."""

    base: Trial
    """The cache, the cache to agree with, and the laws."""
    seed: int = 0
    kept: tuple[Case, ...] = ()
    """The cases of the corpus, if it is those."""
    of_stores: bool = False
    """Whether the cases have a store below the host tier."""

    def trial(self, number: int) -> Trial:
        """How the case with a number is played: some are judged by states, and some compared."""
        if self.base.judges.ranks > 1:
            return self.base
        if self.of_stores:
            compared = number % STORED_COMPARED_EVERY == 1
            return self.base if compared else evolve(self.base, against=None)
        judges = evolve(self.base.judges, black_box=not self._is_white(number))
        against = self.base.against if number % COMPARED_EVERY == 1 else None
        return evolve(self.base, judges=judges, against=against)

    def case(self, number: int) -> Case:
        """The case with a number; each seed has other cases."""
        if self.kept:
            return self.kept[number]
        ranks = self.base.judges.ranks
        adapter, drawn_from = self.base.adapter, (self.seed << 40) + number
        if self.of_stores:
            on_ranks = number % RANKED_EVERY == 1 and takes_agree(adapter)
            return draw_stored_case(drawn_from, adapter.offer, RANKS if on_ranks else 1)
        scale = scale_of(number, inside=self._is_white(number) or ranks > 1)
        case = draw_case(
            drawn_from, adapter.offer, scale=scale, kind=adapter.kind, on_ranks=ranks > 1
        )
        apart = ranks > 1 and number % APART_EVERY == 1
        return evolve(case, ranks=ranks, rank_apart=apart)

    def offers(self, case: Case) -> bool:
        """Whether the cache has the configuration of a case, as all that are drawn for it."""
        return not self.kept or is_offered(case.config, self.base.adapter.offer)

    def origin(self, number: int) -> str:
        """Where the case with a number comes from, for a report."""
        if self.kept:
            return f"{CheckStage.CORPUS}, case {number}"
        if self.of_stores:
            return f"{CheckStage.STORES}, seed {self.seed}, case {number}"
        stage = CheckStage.WALKER if self.base.judges.ranks == 1 else CheckStage.RANKS
        return f"{stage}, seed {self.seed}, case {number}"

    def _is_white(self, number: int) -> bool:
        return bool(self.kept) or number % WHITE_EVERY == 0


def cases_of(cache: CachePlan) -> NumberedCases:
    """The cases of a cache. Raises: UsageError.

    In a black-box check the adapter itself shows no states, to no case.
    """
    base = _base_of(cache.name, cache.model, cache.plan.judges)
    if cache.narrowed is not None:
        base = evolve(base, adapter=evolve(base.adapter, offer=cache.narrowed))
    kept = tuple(each.case for each in read_corpus()) if cache.plan.of_corpus else ()
    return NumberedCases(base, cache.plan.seed, kept, cache.plan.of_stores)


@functools.cache
def _base_of(name: str, model: str | None, judges: JudgeConfig) -> Trial:
    """Load the adapters once in each process: making one may start a child process."""
    adapter = adapter_as(name, black_box=judges.black_box)
    against = None if model is None else adapter_as(model)
    return Trial(adapter, evolve(judges, black_box=False), against)


@contextmanager
def local_caches(*adapters: Adapter) -> Iterator[None]:
    """Let a check in this process load adapters by their own names. Raises: UsageError.

    So caches that have no name to import can be checked, such as closures of a test. A cache with
    the same name is not found meanwhile.
    """
    names = [adapter.name for adapter in adapters]
    if len(set(names)) < len(names):
        raise UsageError(f"two caches are named {names[0]!r}; give their adapters different names")
    earlier = dict(LOADED)
    LOADED.update(zip(names, adapters, strict=True))
    _base_of.cache_clear()
    try:
        yield
    finally:
        LOADED.clear()
        LOADED.update(earlier)
        _base_of.cache_clear()


# What some cases found.


@define
class BlocksReport:
    """The result of some blocks."""

    tally: Tally = Factory(Tally)
    found: dict[Fingerprint, Finding] = Factory(dict)
    """The first finding of each fingerprint, with how many there are."""
    beside: dict[Fingerprint, Finding] = Factory(dict)
    """The first finding of each law that was broken together with another."""
    cut: bool = False
    """Whether the time was over before all cases were played."""

    def note(self, finding: Finding) -> None:
        """Add a finding."""
        _take(self.found, finding)
        for law_id in finding.broken[1:]:
            _take(self.beside, finding.of_law(law_id))

    def add(self, later: BlocksReport) -> None:
        """Add the report of a later block."""
        self.tally.add(later.tally)
        self.cut = self.cut or later.cut
        for finding in later.found.values():
            _take(self.found, finding)
        for finding in later.beside.values():
            _take(self.beside, finding)

    @property
    def over(self) -> bool:
        """Whether no further case is to be played."""
        return self.cut or self.enough

    @property
    def enough(self) -> bool:
        """Whether enough was found to stop. Findings of SHOULD laws alone do not count."""
        found = [each for each in self.found.values() if not each.only_should]
        silences = sum(each.times for each in found if each.is_silence)
        deaths = sum(each.times for each in found if each.is_death)
        findings = sum(each.times for each in found)
        return (
            len(found) >= KINDS_ENOUGH
            or findings >= FINDINGS_ENOUGH
            or silences >= SILENCES_ENOUGH
            or deaths >= DEATHS_ENOUGH
        )


def _take(findings: dict[Fingerprint, Finding], later: Finding) -> None:
    """Add a finding, or count it with the first of its fingerprint."""
    first = findings.get(later.fingerprint)
    kept = evolve(first, times=first.times + later.times) if first else later
    findings[later.fingerprint] = kept


def play_cases(cache: CachePlan, numbers: Collection[int], deadline: float) -> BlocksReport:
    """Play some cases of a cache until the deadline, a moment of `monotonic`."""
    report, cases = BlocksReport(), cases_of(cache)
    for number in numbers:
        if monotonic() > deadline:
            report.cut = True
            break
        NOTE.place(str(number).encode())
        case = cases.case(number)
        if not cases.offers(case):
            report.tally.unoffered += 1
            continue
        finding, tally = cases.trial(number).play(case)
        report.tally.add(tally)
        if finding is not None:
            report.note(evolve(finding, case_number=number))
            if report.enough:
                break
    return report


def case_of(cache: CachePlan, number: int) -> Case:
    """One case of a cache, for a process that must not load the cache itself."""
    return cases_of(cache).case(number)


# Several processes.

OnBlock = Callable[[int, BlocksReport], None]
"""Called with the number and the report of each block, in the order of the blocks."""


def play_blocks(
    cache: CachePlan, blocks: Iterator[int], by: Workers, deadline: float, done: OnBlock
) -> tuple[BlocksReport, str]:
    """Play blocks of a cache until none are left, enough was found, or the time is over.

    If there are findings, it ends earlier, so that time is left to reduce them. Returns the report,
    and why it ended early, or else "". Raises: UsageError.
    """
    waiting: deque[tuple[int, range, Future[BlocksReport]]] = deque()
    total, cut_short, each = BlocksReport(), "", cache.plan.effort.block
    early = deadline - time_to_reduce(deadline)
    try:
        while True:
            ends = early if total.found else deadline
            while not cut_short and len(waiting) < 2 * by.jobs - 1:
                block = next(blocks, None)
                if block is None:
                    break
                numbers = range(block * each, (block + 1) * each)
                future = by.executor.submit(play_cases, cache, numbers, ends)
                waiting.append((block, numbers, future))
            if not waiting:
                return total, cut_short
            block, numbers, future = waiting[0]
            report = _report_of(cache, numbers, future, by, deadline)
            waiting.popleft()
            done(block, report)
            total.add(report)
            if report.cut:
                # The blocks that still wait end at once.
                cut_short = OUT_OF_TIME
            if total.enough:
                return total, ENOUGH
    finally:
        for _, _, future in waiting:
            future.cancel()


def time_to_reduce(deadline: float) -> float:
    """The seconds before a deadline that are kept to reduce findings, if there are any."""
    return max(0.0, min((deadline - monotonic()) * REDUCING_SHARE, REDUCING_SECONDS))


# Cases that end their process.


def _report_of(
    cache: CachePlan, numbers: range, future: Future[BlocksReport], by: Workers, deadline: float
) -> BlocksReport:
    """The report of a block, also if a case ends its process. Raises: UsageError."""

    def submit(some: Sequence[int]) -> Future[BlocksReport]:
        return by.next_of_all(play_cases, cache, some, deadline)

    def deadly(some: Sequence[int], died: ProcessDied) -> tuple[int, BlocksReport]:
        place = died.ending.noted.place
        if not place.isdigit() or int(place) not in some:
            raise UsageError(f"{cache.name} {died}, before it played a case")
        number = int(place)
        report = BlocksReport(Tally(cases=1))
        case = by.next_of_all(case_of, cache, number).result()
        ended = finding_of(died.ending, case, cache.name, cache.model)
        report.note(evolve(ended, case_number=number))
        return number, report

    return play_part(numbers, future, submit, deadly, BlocksReport())


class Addable(Protocol):
    """The result of some cases, to which that of later ones is added."""

    def add(self, later: Self, /) -> None:
        """Add the result of later cases."""

    @property
    def over(self) -> bool:
        """Whether no further case is to be played."""


Result = TypeVar("Result", bound=Addable)


def play_part(
    part: Sequence[int],
    first: Future[Result],
    submit: Callable[[Sequence[int]], Future[Result]],
    deadly: Callable[[Sequence[int], ProcessDied], tuple[int, Result]],
    total: Result,
) -> Result:
    """Add the results of a part to a total, whose first try has begun.

    `deadly` says in which case of a part a process died, and with which result. Raises: as it does.
    """
    pieces: deque[Sequence[int] | Result] = deque([part])
    future: Future[Result] | None = first
    while pieces and not total.over:
        piece = pieces.popleft()
        if not isinstance(piece, Sequence):
            total.add(piece)
            continue
        try:
            total.add((future or submit(piece)).result())
        except ProcessDied as died:
            number, result = deadly(piece, died)
            at = piece.index(number)
            before, after = piece[:at], piece[at + 1 :]
            pieces.extendleft([each for each in (after, result, before) if each or each is result])
        future = None
    return total
