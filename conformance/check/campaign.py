"""The campaign: plays many cases of the walker on one cache, in blocks, in several processes.

A block is a range of case numbers. Its result does not depend on the process, and results are added
in the order of the blocks, so that the number of processes changes only the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from functools import cache
from time import monotonic

from attrs import Factory, define, evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.deaths import DEATHS_ENOUGH, finding_of, is_death
from kvcanon.conformance.check.finding import Finding, Tally
from kvcanon.conformance.check.making import adapter_in_time
from kvcanon.conformance.check.resume import play_part
from kvcanon.conformance.check.trial import Trial, is_silence
from kvcanon.conformance.check.walker import draw_case, scale_of
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig, laws_of
from kvcanon.conformance.protocol.adapter import INSIDE, Adapter
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import Workers

WHITE_EVERY = 2
"""One case in WHITE_EVERY is judged by the cache's states; the others from outside, far faster."""
COMPARED_EVERY = 4
"""One case in COMPARED_EVERY is compared with the cache to agree with, which is slow."""

FAULTS_ENOUGH = 12
"""Different faults after which the search of a cache ends."""
FINDINGS_ENOUGH = 64
"""Findings after which the search ends: they hide other faults."""
REDUCING_SHARE, REDUCING_SECONDS = 0.4, 120.0
"""The share of the remaining time that is kept to reduce findings, and the most seconds."""
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
    known: frozenset[str] = frozenset()
    """The ids of laws that are known to be broken."""
    ranks: int = 1
    """How many ranks get the calls of each case."""

    def trial(self, number: int) -> Trial:
        """How the case with a number is played."""
        if self.ranks > 1:
            judges = JudgeConfig(laws=laws_of(self.law_ids), known=self.known)
            return Trial(self.adapter, judges)
        white = self._is_white(number)
        compared = number % COMPARED_EVERY == 1
        against = self.against if compared else None
        laws = laws_of(self.law_ids)
        judges = JudgeConfig(black_box=not white, laws=laws, known=self.known)
        return Trial(self.adapter, judges, against)

    def case(self, number: int) -> Case:
        """The case with a number; each seed has other cases."""
        inside = self._is_white(number) or self.ranks > 1
        scale = scale_of(number, inside=inside)
        case = draw_case((self.seed << 40) + number, self.adapter.offer, scale=scale)
        return evolve(case, ranks=self.ranks)

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
    earlier: bool = False
    """Whether an earlier run found it, on a cache that may have changed since."""


@define
class CampaignReport:
    """The result of some blocks."""

    tally: Tally = Factory(Tally)
    found: dict[Fingerprint, FindingGroup] = Factory(dict)
    beside: dict[Fingerprint, FindingGroup] = Factory(dict)
    """The first finding of each law that was broken together with another."""
    cut: bool = False
    """Whether the time was over before all cases were played."""

    def note(self, finding: Finding, case: Case, number: int) -> None:
        """Add a finding of a case."""
        self.take(FindingGroup(finding, case, number, 1))
        for law_id in finding.broken[1:]:
            self.take_beside(FindingGroup(finding.of_law(law_id), case, number, 1))

    def add(self, later: CampaignReport) -> None:
        """Add the report of a later block."""
        self.tally.add(later.tally)
        self.cut = self.cut or later.cut
        for found in later.found.values():
            self.take(found)
        for found in later.beside.values():
            self.take_beside(found)

    @property
    def over(self) -> bool:
        """Whether no further case is to be played."""
        return self.cut or self.enough

    @property
    def enough(self) -> bool:
        """Whether enough was found to stop. Findings of SHOULD laws alone do not count."""
        found = [each for each in self.found.values() if not each.finding.only_should]
        silences = sum(each.times for each in found if is_silence(each.finding))
        deaths = sum(each.times for each in found if is_death(each.finding))
        findings = sum(each.times for each in found)
        return (
            len(found) >= FAULTS_ENOUGH
            or findings >= FINDINGS_ENOUGH
            or silences >= SILENCES_ENOUGH
            or deaths >= DEATHS_ENOUGH
        )

    def take(self, found: FindingGroup) -> None:
        """Add findings with the same fingerprint."""
        first = self.found.get(found.finding.fingerprint)
        kept = evolve(first, times=first.times + found.times) if first else found
        self.found[found.finding.fingerprint] = kept

    def take_beside(self, found: FindingGroup) -> None:
        """Add findings of a law that was broken together with another."""
        first = self.beside.get(found.finding.fingerprint)
        kept = evolve(first, times=first.times + found.times) if first else found
        self.beside[found.finding.fingerprint] = kept


def play_block(search: Search, numbers: Collection[int], deadline: float) -> CampaignReport:
    """Play the cases of a block until the deadline, a moment of `monotonic`."""
    report = CampaignReport()
    for number in numbers:
        if monotonic() > deadline:
            report.cut = True
            break
        NOTE.place(str(number).encode())
        case = search.case(number)
        finding, tally = search.trial(number).play(case)
        report.tally.add(tally)
        if finding is not None:
            report.note(finding, case, number)
            if report.enough:
                break
    return report


# Several processes.


@frozen
class SearchSpec:
    """A search with caches by name, so that another process can make them."""

    cache: str
    seed: int = 0
    against: str | None = None
    law_ids: tuple[str, ...] | None = None
    black_box: bool = False
    known: tuple[str, ...] = ()
    """The ids of laws that are known to be broken."""
    ranks: int = 1
    """How many ranks get the calls of each case."""

    def search(self) -> Search:
        """Make the search. Raises: UsageError."""
        against = adapter_as(self.against) if self.against else None
        adapter = adapter_as(self.cache, black_box=self.black_box)
        return Search(adapter, self.seed, against, self.law_ids, frozenset(self.known), self.ranks)


def adapter_as(name: str, *, black_box: bool = False) -> Adapter:
    """Load an adapter, and give it the name from the command line, for reports.

    As a black box it shows answers, events and bytes only. Raises: UsageError.
    """
    adapter = evolve(adapter_in_time(name), name=name)
    return evolve(adapter, hides=adapter.hides | INSIDE) if black_box else adapter


AnySearch = Search | SearchSpec


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

    If there are findings, it ends earlier, so that time is left to reduce them. Returns the report,
    and why the search ended early, or else "". Raises: UsageError.
    """
    waiting: deque[tuple[int, Future[CampaignReport]]] = deque()
    total, cut_short = CampaignReport(), ""
    early = deadline - time_to_reduce(deadline)
    try:
        while True:
            ends = early if total.found else deadline
            while not cut_short and len(waiting) < 2 * by.jobs - 1:
                block = next(blocks.numbers, None)
                if block is None:
                    break
                cases = blocks.cases(block)
                waiting.append((block, by.executor.submit(_play, search, cases, ends)))
            if not waiting:
                return total, cut_short
            block, future = waiting[0]
            report = _report_of(search, blocks.cases(block), future, by, deadline)
            waiting.popleft()
            blocks.done(block, report)
            total.add(report)
            if report.cut:
                # The blocks that still wait end at once.
                cut_short = OUT_OF_TIME
            if total.enough:
                return total, ENOUGH
    finally:
        for _, future in waiting:
            future.cancel()


def _report_of(
    search: AnySearch, cases: range, future: Future[CampaignReport], by: Workers, deadline: float
) -> CampaignReport:
    """The report of a block, also if a case ends its process. Raises: UsageError."""

    def submit(some: Sequence[int]) -> Future[CampaignReport]:
        return by.next_of_all(_play, search, some, deadline)

    def deadly(some: Sequence[int], died: ProcessDied) -> tuple[int, CampaignReport]:
        number, finding = _died_at(search, some, died)
        report = CampaignReport(Tally(cases=1))
        report.note(finding, by.next_of_all(_case, search, number).result(), number)
        return number, report

    return play_part(cases, future, submit, deadly, CampaignReport())


def _died_at(search: AnySearch, cases: Sequence[int], died: ProcessDied) -> tuple[int, Finding]:
    """The case at which a process died, and the finding. Raises: UsageError: nobody knows."""
    cache, against = names_in(search)
    place = died.ending.noted.place
    if not place.isdigit() or int(place) not in cases:
        raise UsageError(f"{cache} {died}, before it played a case")
    return int(place), finding_of(died.ending, cache, against)


def time_to_reduce(deadline: float) -> float:
    """The seconds before a deadline that are kept to reduce findings, if there are any."""
    return max(0.0, min((deadline - monotonic()) * REDUCING_SHARE, REDUCING_SECONDS))


def names_in(search: AnySearch) -> tuple[str, str | None]:
    """The names of the cache and of the one to agree with."""
    if isinstance(search, SearchSpec):
        return search.cache, search.against
    return search.adapter.name, search.against.name if search.against is not None else None


def _case(search: AnySearch, number: int) -> Case:
    return made(search).case(number)


def _play(search: AnySearch, numbers: Sequence[int], deadline: float) -> CampaignReport:
    return play_block(made(search), numbers, deadline)


def made(search: AnySearch) -> Search:
    """The search, made in this process if its caches are given by name. Raises: UsageError."""
    return search if isinstance(search, Search) else _made_from(search)


@cache
def _made_from(spec: SearchSpec) -> Search:
    """Make a search once in each process: making an adapter may start a child process."""
    return spec.search()


def forget_searches() -> None:
    """Forget the searches of this process: a name may stand for another cache from now on."""
    _made_from.cache_clear()
