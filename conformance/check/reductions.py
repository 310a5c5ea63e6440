"""Reductions: the failures of a campaign, each with its shortest case.

Findings are reduced after the search, once for each fingerprint, from the first case that shows it,
and once more for each law that no reduced case breaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from math import inf
from time import monotonic

from attrs import evolve, frozen

from kvcanon.conformance.check.campaign import (
    AnySearch,
    CampaignReport,
    FindingGroup,
    Search,
    made,
)
from kvcanon.conformance.check.deaths import PLAYS, REDUCED_SECONDS, apart, is_death
from kvcanon.conformance.check.reduce import reduce_until
from kvcanon.conformance.check.result import Failure
from kvcanon.conformance.check.time_limit import LIMIT, CacheSilent
from kvcanon.conformance.check.trial import is_silence, same_fault
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import Workers


def reduced(
    search: Search, found: FindingGroup, deadline: float = inf, *, in_copies: bool = False
) -> Failure | None:
    """Reduce findings to the smallest case, judged from outside if that shows the fault.

    `in_copies` plays each case in a copy of this process. None if an earlier run found it, and the
    cache does not show it any more.
    """
    trial = search.trial(found.number)
    if in_copies:
        trial = apart(trial)
    stage = "walker" if search.ranks == 1 else "ranks"
    origin = f"{stage}, seed {search.seed}, case {found.number}"
    case, finding = found.case, found.finding
    plays = PLAYS if is_death(finding) else None
    smallest = reduce_until(case, finding, trial, deadline, plays)
    if smallest is not None:
        case, finding = smallest.case, smallest.finding
        outside = trial.from_outside()
        seen = None if monotonic() > deadline else outside.play(case)[0]
        if seen is not None and same_fault(finding, seen):
            trial, finding = outside, seen.of_law(finding.name) if finding.broken else seen
    elif found.earlier:
        return None
    else:
        origin += ", which does not show it every time"
    # States tell nothing of a process that ended, and take long where there is no answer.
    unseen = monotonic() > deadline or is_death(finding) or is_silence(finding)
    inside = frozenset() if unseen else trial.laws_inside(case, finding)
    return Failure(
        finding,
        case,
        origin,
        found.times,
        black_box=trial.judges.black_box,
        against=trial.against.name if trial.against else None,
        inside=inside,
        reduced=smallest is not None and smallest.done,
    )


def length_of(failure: Failure) -> tuple[bool, int, int]:
    """How long a failure is to read: the number of its operations, and of its actions.

    A failure of a call that must be refused counts as longer: it tells less.
    """
    finding = failure.finding
    return finding.is_unlawful_call, finding.operation, len(failure.case.actions)


def distinct(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Keep the shortest failure of each fingerprint and of each case, the shortest first.

    A case is named after the law for which it was found most often. A longer one is also kept if it
    alone breaks some law, and is named after that law.
    """
    kept: list[Failure] = []
    for failure in sorted(failures, key=length_of):
        same = [each for each in kept if each.finding.fingerprint == failure.finding.fingerprint]
        same += [each for each in kept if _is_same_call(each, failure)]
        if not same:
            kept.append(failure)
            continue
        kept[kept.index(same[0])] = _merged(same[0], failure)
        cache = failure.finding.cache
        shown = {law_id for each in kept if each.finding.cache == cache for law_id in each.laws}
        only_here = [law_id for law_id in failure.finding.broken if law_id not in shown]
        if only_here:
            kept.append(evolve(failure, finding=failure.finding.of_law(only_here[0])))
    return tuple(kept)


def _merged(kept: Failure, other: Failure) -> Failure:
    """The failure that is kept of two that show the same."""
    more_often = kept.case == other.case and other.times > kept.times
    return evolve(other if more_often else kept, times=kept.times + other.times)


def _is_same_call(one: Failure, other: Failure) -> bool:
    """Whether two failures break the same laws at the same call of the same case."""
    ours, theirs = one.finding, other.finding
    same_laws = bool(ours.broken) and set(ours.broken) == set(theirs.broken)
    same_place = one.case == other.case and ours.operation == theirs.operation
    return same_laws and same_place and ours.cache == theirs.cache


def reduce_all(
    search: AnySearch, report: CampaignReport, by: Workers, deadline: float = inf
) -> tuple[Failure, ...]:
    """Reduce all findings until a deadline, in the order of their first cases.

    So every law that was broken is shown by a case: after the first findings of each fingerprint,
    those of laws that none of the reduced cases breaks.
    """

    def reduce(findings: Iterable[FindingGroup], later: int) -> Iterator[Failure]:
        firsts = sorted(findings, key=lambda found: found.number)
        shares = [Share(deadline, by.jobs, left + later) for left in range(len(firsts), 0, -1)]
        futures = [
            by.executor.submit(_reduce, search, found, share)
            for found, share in zip(firsts, shares, strict=True)
        ]
        for found, share, future in zip(firsts, shares, futures, strict=True):
            try:
                failure = future.result()
            except ProcessDied:
                # A part of the case ends the process, though the whole case does not.
                failure = by.executor.submit(_reduce_in_copies, search, found, share).result()
            if failure is not None:
                yield failure

    beside = {key: found for key, found in report.beside.items() if key not in report.found}
    failures = [*reduce(report.found.values(), len(beside))]
    shown = {law_id for failure in failures for law_id in failure.laws}
    failures += reduce((each for each in beside.values() if each.finding.name not in shown), 0)
    return distinct(failures)


@frozen
class Share:
    """The share of one reduction in the remaining time."""

    deadline: float
    jobs: int
    left: int
    """How many reductions are not done when this one begins."""

    def ends(self) -> float:
        """The moment of `monotonic` at which the reduction ends, if it begins now."""
        if self.deadline == inf:
            return inf
        now = monotonic()
        return now + max(0.0, self.deadline - now) * min(1.0, self.jobs / self.left)


def _reduce(search: AnySearch, found: FindingGroup, share: Share) -> Failure | None:
    silent = found.finding.name == CacheSilent.__name__
    if is_death(found.finding) or (silent and NOTE.shared):
        return _reduce_in_copies(search, found, share)
    return reduced(made(search), found, share.ends())


def _reduce_in_copies(search: AnySearch, found: FindingGroup, share: Share) -> Failure | None:
    with LIMIT.at_most(REDUCED_SECONDS) if is_silence(found.finding) else nullcontext():
        return reduced(made(search), found, share.ends(), in_copies=True)
