"""The checks of the suite, for the tests of a cache's own project.

`check_cache` runs all of them in one call. `pytest --pyargs kvcanon.conformance` runs them as named
tests, which can run in parallel.

A law is checked in cases that are played for all laws at once.
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
from kvcanon.conformance.search.campaign import Search, play_block
from kvcanon.conformance.search.effort import EFFORTS, Effort
from kvcanon.conformance.search.essentials import missing
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.conformance.search.machine import run_machine
from kvcanon.conformance.search.reduce import reduce_case
from kvcanon.conformance.search.reductions import distinct, reduced
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.trial import Trial
from kvcanon.conformance.search.walker import is_offered
from kvcanon.conformance.vectors.vector import read_vectors
from kvcanon.spec.law import Law

LAW_CASES = {"quick": 24, "standard": 96}
"""Drawn cases for the tests of laws, which are judged by the cache's states."""
WALKS = {"quick": 8, "standard": 40}
"""The number of parts into which the walker's cases are divided."""
MACHINE_CASES = 100
"""Cases that the machine draws from one seed."""


@frozen(eq=False)
class Suite:
    """A cache, and how it is checked."""

    adapter: Adapter
    effort: Effort = EFFORTS["quick"]
    seed: int = 0
    against: Adapter | None = None
    """The cache to agree with."""
    strict: bool = False
    """Whether broken SHOULD laws fail the suite."""
    search: Search = field(init=False)

    @search.default
    def _search(self) -> Search:
        return Search(self.adapter, self.seed, self.against)


class LawNotExercised(Exception):
    """A law was not exercised; the cache may not offer what the law needs."""


@frozen
class CampaignPart:
    """The result of some cases."""

    failures: tuple[Failure, ...]
    """The failures, with reduced cases."""
    tally: Tally


# By law.


def law_cases(suite: Suite, law: Law) -> Sequence[Case]:
    """The cases for a law: its vectors, and some drawn cases."""
    vectors = (each.case for each in read_vectors() if each.law_id == law.law_id)
    offer = suite.adapter.offer
    return [*(case for case in vectors if is_offered(case.config, offer)), *_drawn_cases(suite)]


def law_failures(suite: Suite, law: Law) -> list[Failure]:
    """Check a law in its cases, up to the first failure.

    Raises: LawNotExercised; AssertionError: no law was exercised.
    """
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
    """Reduce a case that breaks the law; other laws may be broken there, too."""
    of_the_law = evolve(finding, name=law.law_id)
    smallest = reduce_case(case, of_the_law, Trial(suite.adapter))
    case, finding = smallest or (case, finding)
    return Failure(finding, case, f"laws, seed {suite.seed}", 1)


@cache
def _lacks(suite: Suite) -> tuple[str, ...]:
    """What the cache lacks of what laws need."""
    make = make_request_subject if suite.adapter.kind is CacheKind.REQUEST else make_subject
    for case in _drawn_cases(suite):
        try:
            return lacks_of(make(suite.adapter, case.config))
        except Unoffered:
            continue
    return ()


@cache
def _drawn_cases(suite: Suite) -> tuple[Case, ...]:
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
    """Play a part of the walker's cases. Raises: AssertionError: nothing was judged."""
    cases = -(-(suite.effort.walker_cases or 0) // WALKS[suite.effort.name])
    numbers = range(part * cases, (part + 1) * cases)
    report = play_block(suite.search, numbers, math.inf)
    _require_judged(report.tally, report.found.values())
    each = (reduced(suite.search, found) for found in report.found.values())
    return CampaignPart(distinct(failure for failure in each if failure is not None), report.tally)


def machine_parts(effort: Effort) -> int:
    """The number of parts into which the machine's cases are divided."""
    return -(-(effort.machine_cases or 0) // MACHINE_CASES)


def draw(suite: Suite, part: int) -> CampaignPart:
    """Play a part of the machine's cases. Raises: AssertionError: nothing was judged."""
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
    """Require that the cases of the laws exercised all essentials. Raises: AssertionError.

    A cache that broke a law there need not: its cases end early.
    """
    played = [_played(suite, case) for case in _drawn_cases(suite)]
    if all(finding is None or finding.only_should for finding, _ in played):
        _require_essentials(suite, _sum(tally for _, tally in played))


def _require_essentials(suite: Suite, tally: Tally) -> None:
    if lacking := missing(suite.adapter.kind, tally, tally, set(+tally.laws)):
        raise AssertionError(f"NOT EXERCISED: {', '.join(lacking)}")


def fails(suite: Suite, failure: Failure) -> bool:
    """Whether a failure fails the suite; one of SHOULD laws alone does only if it is strict."""
    return suite.strict or not failure.finding.only_should


def check_cache(
    make: MakeCache | Adapter,
    *,
    effort: str = "quick",
    seed: int = 0,
    against: Adapter | None = None,
    strict: bool = False,
) -> None:
    """Judge the caches that a factory or an adapter makes, up to the first failure.

    A broken SHOULD law is a warning; with `strict` it is a failure.

    Raises: AssertionError: the failure, or the essentials that were not exercised.
    """
    adapter = make if isinstance(make, Adapter) else Adapter("the cache", make)
    suite = Suite(adapter, EFFORTS[effort], seed, against, strict)
    plays = [partial(walk, suite, part) for part in range(WALKS[effort])]
    plays += [partial(draw, suite, part) for part in range(machine_parts(suite.effort))]
    unkept: dict[str, Failure] = {}
    total = Tally()
    for play in plays:
        part = play()
        if failing := [each for each in part.failures if fails(suite, each)]:
            raise AssertionError("\n\n".join(map(in_words, failing)))
        unkept = {each.finding.name: each for each in part.failures} | unkept
        total.add(part.tally)
    _require_essentials(suite, total)
    for failure in unkept.values():
        warnings.warn(f"{UNKEPT}: {in_words(failure)}", stacklevel=2)


UNKEPT = "SHOULD, not kept"


def in_words(failure: Failure) -> str:
    """A failure in words, with its case in JSON."""
    case = json.dumps(case_to_json(failure.case))
    return f"{failure.finding.words}\n\nfound by: {failure.origin}\nthe case: {case}"
