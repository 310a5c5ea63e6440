"""The suite: what is asked of a cache in somebody's own tests, law by law and case by case.

`check_cache` asks all of it in one line. `pytest --pyargs kvcanon.conformance` asks the same as
tests with names, which run side by side.

What readers get wrong: a law is asked in cases that are played for all laws at once. That it held
says that it was exercised there and not found broken, not that a case was made for it alone.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Iterable, Sequence
from functools import cache, partial

from attrs import evolve, field, frozen

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.blackbox.coverage import why_not_exercised
from kvcanon.conformance.cases.case import Case, case_to_json
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    MakeCache,
    Unoffered,
    lacks_of,
    make_request_subject,
    make_subject,
)
from kvcanon.conformance.search.campaign import Search, distinct, play_block, reduced
from kvcanon.conformance.search.effort import EFFORTS, Effort
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.conformance.search.machine import run_machine
from kvcanon.conformance.search.reduce import reduce_case
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.sufficiency import missing
from kvcanon.conformance.search.trial import Trial
from kvcanon.conformance.search.walker import is_offered
from kvcanon.conformance.vectors.vector import read_vectors
from kvcanon.spec.law import Law

LAW_CASES = {"quick": 24, "standard": 96}
"""Cases in which laws are asked with a look at the cache's states."""
WALKS = {"quick": 8, "standard": 40}
"""In how many parts the walker's cases are played."""
MACHINE_CASES = 100
"""Cases of the machine that are drawn from one seed."""


@frozen(eq=False)
class Suite:
    """A cache, and how much is asked of it."""

    adapter: Adapter
    effort: Effort = EFFORTS["quick"]
    seed: int = 0
    against: Adapter | None = None
    """The cache that it must agree with."""
    strict: bool = False
    """Whether laws that should be kept must be."""
    search: Search = field(init=False)

    @search.default
    def _search(self) -> Search:
        return Search(self.adapter, self.seed, self.against)


class LawNotExercised(Exception):
    """A law was not exercised, which the cache may have good reasons for."""


@frozen
class CampaignPart:
    """What came of some cases."""

    failures: tuple[Failure, ...]
    """What was found, reduced."""
    tally: Tally


# By law.


def law_cases(suite: Suite, law: Law) -> Sequence[Case]:
    """The cases in which a law is asked: its vectors, and some that are drawn."""
    vectors = (each.case for each in read_vectors() if each.law_id == law.law_id)
    offer = suite.adapter.offer
    return [*(case for case in vectors if is_offered(case.config, offer)), *_walked(suite)]


def law_failures(suite: Suite, law: Law) -> list[Failure]:
    """Where a law was broken. Raises: LawNotExercised; AssertionError: no law was exercised."""
    cases = law_cases(suite, law)
    played = [_played(suite, case) for case in cases]
    for case, (finding, _) in zip(cases, played, strict=True):
        if finding is not None and law.law_id in finding.broken:
            return [_reduced(suite, law, case, finding)]
    total = _sum(tally for _, tally in played)
    if not total.laws:
        found = [finding.words for finding, _ in played if finding is not None]
        raise AssertionError("\n".join([*found[:1], "nothing was judged"]))
    if not total.laws[law.law_id]:
        raise LawNotExercised(f"not exercised: {why_not_exercised(law, _lacks(suite))}")
    return []


def _reduced(suite: Suite, law: Law, case: Case, finding: Finding) -> Failure:
    """The smallest case in which the law is broken; others may be broken there, too."""
    of_the_law = evolve(finding, name=law.law_id)
    smallest = reduce_case(case, of_the_law, Trial(suite.adapter))
    case, finding = smallest or (case, finding)
    return Failure(finding, case, f"laws, seed {suite.seed}", 1, laws=frozenset(finding.broken))


@cache
def _lacks(suite: Suite) -> tuple[str, ...]:
    """What the cache has not, of what laws need."""
    make = make_request_subject if suite.adapter.kind is CacheKind.REQUEST else make_subject
    for case in _walked(suite):
        try:
            return lacks_of(make(suite.adapter, case.config))
        except Unoffered:
            continue
    return ()


@cache
def _walked(suite: Suite) -> tuple[Case, ...]:
    return tuple(suite.search.case(number) for number in range(LAW_CASES[suite.effort.name]))


@cache
def _played(suite: Suite, case: Case) -> tuple[Finding | None, Tally]:
    return Trial(suite.adapter).play(case)


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.add(tally)
    return total


# By engine.


def walk(suite: Suite, part: int) -> CampaignPart:
    """A part of the walker's cases."""
    cases = -(-(suite.effort.walker_cases or 0) // WALKS[suite.effort.name])
    numbers = range(part * cases, (part + 1) * cases)
    report = play_block(suite.search, numbers, math.inf)
    _require_judged(report.tally, report.found.values())
    each = (reduced(suite.search, found) for found in report.found.values())
    return CampaignPart(distinct(failure for failure in each if failure is not None), report.tally)


def machine_parts(effort: Effort) -> int:
    """In how many parts the machine's cases are drawn."""
    return -(-(effort.machine_cases or 0) // MACHINE_CASES)


def draw(suite: Suite, part: int) -> CampaignPart:
    """A part of the machine's cases."""
    trial = Trial(suite.adapter, against=suite.against)
    from_seed = (suite.seed << 16) + part
    failure, tally = run_machine(trial, examples=MACHINE_CASES, from_seed=from_seed)
    found = () if failure is None else (failure,)
    _require_judged(tally, found)
    return CampaignPart(found, tally)


def _require_judged(tally: Tally, found: Collection[object]) -> None:
    if not tally.laws and not found:
        raise AssertionError(
            f"nothing was judged in {tally.cases} cases; {tally.unoffered} more are not offered"
        )


# All of it.


def require_essentials(suite: Suite) -> None:
    """See that in the cases of the laws all came up which has to. Raises: AssertionError.

    Nobody asks that of a cache that broke a law there.
    """
    played = [_played(suite, case) for case in _walked(suite)]
    if all(finding is None or finding.only_should for finding, _ in played):
        _require_essentials(suite, _sum(tally for _, tally in played))


def _require_essentials(suite: Suite, tally: Tally) -> None:
    if lacking := missing(suite.adapter.kind, tally, tally, set(+tally.laws)):
        raise AssertionError(f"NOT EXERCISED: {', '.join(lacking)}")


def fails(suite: Suite, failure: Failure) -> bool:
    """Whether a failure is of what the cache must do, and not only of what it should."""
    return suite.strict or not failure.finding.only_should


def check_cache(
    make: MakeCache | Adapter,
    *,
    effort: str = "quick",
    seed: int = 0,
    against: Adapter | None = None,
    strict: bool = False,
) -> None:
    """Judge the caches that a factory makes, or an adapter, until something is found.

    A law that should be kept, and is not, is a warning, unless it is `strict`.

    Raises: AssertionError: what was found, in words, or what never came up.
    """
    adapter = make if isinstance(make, Adapter) else Adapter("the cache", make)
    suite = Suite(adapter, EFFORTS[effort], seed, against, strict)
    asked = [partial(walk, suite, part) for part in range(WALKS[effort])]
    asked += [partial(draw, suite, part) for part in range(machine_parts(suite.effort))]
    unkept: dict[str, Failure] = {}
    total = Tally()
    for ask in asked:
        part = ask()
        if failing := [each for each in part.failures if fails(suite, each)]:
            raise AssertionError("\n\n".join(map(told, failing)))
        unkept = {each.finding.name: each for each in part.failures} | unkept
        total.add(part.tally)
    _require_essentials(suite, total)
    for failure in unkept.values():
        warnings.warn(f"{UNKEPT}: {told(failure)}", stacklevel=2)


UNKEPT = "SHOULD, not kept"


def told(failure: Failure) -> str:
    """A failure in words, and as a case to play again."""
    case = json.dumps(case_to_json(failure.case))
    return f"{failure.finding.words}\n\nfound by: {failure.origin}\nthe case: {case}"
