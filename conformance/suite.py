"""The suite: what is asked of a cache in somebody's own tests, law by law and case by case.

`check_cache` asks all of it in one line. `pytest --pyargs kvcanon.conformance` asks the same as
tests with names, which run side by side.

What readers get wrong: a law is asked in cases that are played for all laws at once. That it held
says that it was judged there and not found broken, not that a case was made for it alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from functools import cache, partial

from attrs import evolve, field, frozen

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.adapters.adapter import Adapter, MakeCache, Unoffered
from kvcanon.conformance.cases.case import Case, case_to_json
from kvcanon.conformance.judging.campaign import Search, distinct, play_block, reduced
from kvcanon.conformance.judging.effort import EFFORTS, Effort
from kvcanon.conformance.judging.finding import Finding, Tally
from kvcanon.conformance.judging.machine import run_machine
from kvcanon.conformance.judging.play import make_judged
from kvcanon.conformance.judging.reduce import reduce_case
from kvcanon.conformance.judging.result import Failure
from kvcanon.conformance.judging.trial import Trial
from kvcanon.conformance.judging.walker import is_offered
from kvcanon.conformance.vectors.vector import read_vectors
from kvcanon.spec.law import Law, Need

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
    search: Search = field(init=False)

    @search.default
    def _search(self) -> Search:
        return Search(self.adapter, self.seed, self.against)


class LawNotJudged(Exception):
    """A law was not judged, which the cache may have good reasons for."""


# By law.


def law_cases(suite: Suite, law: Law) -> Sequence[Case]:
    """The cases in which a law is asked: its vectors, and some that are drawn."""
    vectors = (each.case for each in read_vectors() if each.law_id == law.law_id)
    offer = suite.adapter.offer
    return [*(case for case in vectors if is_offered(case.config, offer)), *_walked(suite)]


def law_failures(suite: Suite, law: Law) -> list[Failure]:
    """Where a law was broken. Raises: LawNotJudged; AssertionError: nothing at all was judged."""
    cases = law_cases(suite, law)
    played = [_played(suite, case) for case in cases]
    for case, (finding, _) in zip(cases, played, strict=True):
        if finding is not None and law.law_id in finding.broken:
            return [_reduced(suite, law, case, finding)]
    judged = Tally()
    for _, tally in played:
        judged.add(tally)
    if not judged.laws:
        found = [finding.words for finding, _ in played if finding is not None]
        raise AssertionError("\n".join([*found[:1], "nothing was judged"]))
    if not judged.laws[law.law_id]:
        raise LawNotJudged(f"not judged: {_why_not(suite, law)}")
    return []


def _reduced(suite: Suite, law: Law, case: Case, finding: Finding) -> Failure:
    """The smallest case in which the law is broken; others may be broken there, too."""
    of_the_law = evolve(finding, name=law.law_id)
    smallest = reduce_case(case, of_the_law, Trial(suite.adapter))
    case, finding = smallest or (case, finding)
    return Failure(finding, case, f"laws, seed {suite.seed}", 1, laws=frozenset(finding.broken))


def _why_not(suite: Suite, law: Law) -> str:
    hidden = sorted(need.value for need in law.needs - _shown(suite))
    if hidden:
        return f"the cache does not show {' and '.join(hidden)}"
    return "no case came to it"


@cache
def _shown(suite: Suite) -> frozenset[Need]:
    """What the cache shows of what laws need."""
    for case in _walked(suite):
        try:
            return make_judged(suite.adapter, case.config)[0].shows
        except Unoffered:
            continue
    return frozenset()


@cache
def _walked(suite: Suite) -> tuple[Case, ...]:
    return tuple(suite.search.case(number) for number in range(LAW_CASES[suite.effort.name]))


@cache
def _played(suite: Suite, case: Case) -> tuple[Finding | None, Tally]:
    return Trial(suite.adapter).play(case)


# By engine.


def walk_failures(suite: Suite, part: int) -> tuple[Failure, ...]:
    """What the walker finds in a part of its cases, reduced."""
    cases = -(-(suite.effort.walker_cases or 0) // WALKS[suite.effort.name])
    numbers = range(part * cases, (part + 1) * cases)
    report = play_block(suite.search, numbers, math.inf)
    _require_judged(report.tally, report.found.values())
    each = (reduced(suite.search, found) for found in report.found.values())
    return distinct(failure for failure in each if failure is not None)


def machine_parts(effort: Effort) -> int:
    """In how many parts the machine's cases are drawn."""
    return -(-(effort.machine_cases or 0) // MACHINE_CASES)


def machine_failures(suite: Suite, part: int) -> tuple[Failure, ...]:
    """What the machine finds in a part of its cases, reduced."""
    trial = Trial(suite.adapter, against=suite.against)
    from_seed = (suite.seed << 16) + part
    failure, tally = run_machine(trial, examples=MACHINE_CASES, from_seed=from_seed)
    found = () if failure is None else (failure,)
    _require_judged(tally, found)
    return found


def _require_judged(tally: Tally, found: Collection[object]) -> None:
    if not tally.laws and not found:
        raise AssertionError(
            f"nothing was judged in {tally.cases} cases; {tally.unoffered} more are not offered"
        )


# All of it.


def check_cache(
    make: MakeCache | Adapter,
    *,
    effort: str = "quick",
    seed: int = 0,
    against: Adapter | None = None,
) -> None:
    """Judge the caches that a factory makes, or an adapter, until something is found.

    Raises: AssertionError: what was found, in words, or that nothing was judged.
    """
    adapter = make if isinstance(make, Adapter) else Adapter("the cache", make)
    suite = Suite(adapter, EFFORTS[effort], seed, against)
    asked = [partial(walk_failures, suite, part) for part in range(WALKS[effort])]
    asked += [partial(machine_failures, suite, part) for part in range(machine_parts(suite.effort))]
    for ask in asked:
        if failures := ask():
            raise AssertionError("\n\n".join(told(failure) for failure in failures))


def told(failure: Failure) -> str:
    """A failure in words, and as a case to play again."""
    case = json.dumps(case_to_json(failure.case))
    return f"{failure.finding.words}\n\nfound by: {failure.origin}\nthe case: {case}"
