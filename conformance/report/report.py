"""The report of a check as a value, from which text, JSON, JUnit and HTML are written.

A law is not exercised for one of three reasons: the cache does not offer or show what the law
needs, the law was left out of the check, or its situation never came up. More effort helps only in
the last case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING

from attrs import evolve, fields, frozen

from kvcanon.conformance.check.plan import CheckPlan
from kvcanon.conformance.check.result import CacheResult, CheckResult, Finding, Grounds, Standing
from kvcanon.conformance.judge import left_to, why_not_exercised
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.spec.config import CANON, Profile, choices
from kvcanon.spec.law import LAWS, Law, LawClass, Need

if TYPE_CHECKING:
    from kvcanon.conformance.report.known_differences import KnownDifference


class CheckVerdict(StrEnum):
    """The result of a check."""

    HOLDS = "holds"
    BROKEN = "broken"
    DEPARTS = "departs"
    """Laws of policy are broken, and nothing else is wrong: a choice that is not declared."""
    INCOMPLETE = "incomplete"
    """No fault was found in what was played, and the effort, or the adapter, asks for more."""
    NOT_EXERCISED = "not exercised"
    """No fault was found, but an essential operation or law was not exercised."""
    NOT_JUDGED = "not judged"
    """No fault was found, but no law was exercised at all."""


LEFT_OUT = "left out by --only"

FEW = 3
"""How many of the least exercised laws are named."""


@frozen
class Departure:
    """A field of a cache's profile that differs from the canon."""

    field: str
    value: str
    canon: str
    meaning: str


@frozen
class Judged:
    """The standing of a law with a cache."""

    law: Law
    standing: Standing
    stages: Mapping[str, int]
    """How often the law was exercised in each stage."""
    remark: str
    """Why the law was not exercised, or the reason of a known difference; empty otherwise."""

    @property
    def times(self) -> int:
        """How often the law was exercised."""
        return sum(self.stages.values())


@frozen
class CacheReport:
    """The report of one cache."""

    name: str
    """The name on the command line."""
    result: CacheResult
    laws: tuple[Judged, ...]
    """Every law."""
    failures: tuple[Finding, ...]
    """The shortest first; longer ones with most likely the same cause are folded into it."""
    unkept: tuple[Finding, ...]
    """Findings of SHOULD laws alone."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, each followed by those that are folded into it."""
        return tuple(each for first in (*self.failures, *self.unkept) for each in first.every)

    def count(self, standing: Standing) -> int:
        """How many laws have this standing."""
        return sum(each.standing is standing for each in self.laws)

    @property
    def checked(self) -> int:
        """How many laws the check was for."""
        return sum(each.remark != LEFT_OUT for each in self.laws)

    @property
    def exercised(self) -> int:
        """How many laws were exercised, held or broken."""
        return len(self.laws) - self.count(Standing.NOT_EXERCISED)

    @property
    def verdict(self) -> CheckVerdict:
        """The result for this cache."""
        if self.failures or self.count(Standing.BROKEN):
            by_law = all(first.grounds is Grounds.LAW for first in self.failures)
            if by_law and self.classes_broken == (LawClass.POLICY,) and not self.result.missing:
                return CheckVerdict.DEPARTS
            return CheckVerdict.BROKEN
        if self.result.unplayed:
            return CheckVerdict.INCOMPLETE
        if not self.exercised:
            return CheckVerdict.NOT_JUDGED
        if self.result.missing:
            return CheckVerdict.NOT_EXERCISED
        return CheckVerdict.INCOMPLETE if self.result.is_mostly_refused else CheckVerdict.HOLDS

    @property
    def classes_broken(self) -> tuple[LawClass, ...]:
        """The classes of the broken laws, the gravest first."""
        broken = {each.law.law_class for each in self.laws if each.standing is Standing.BROKEN}
        return tuple(each for each in LawClass if each in broken)

    @property
    def departures(self) -> tuple[Departure, ...]:
        """The fields in which the profile departs from the canon."""
        return tuple(_departures(self.result.profile))

    @property
    def offered(self) -> tuple[str, ...]:
        """The fields of the offer that are less than the usual ones."""
        return tuple(_offered(self.result.offer))

    @property
    def least_exercised(self) -> tuple[Judged, ...]:
        """The few held laws that were exercised least."""
        held = [each for each in self.laws if each.standing is Standing.HELD]
        return tuple(sorted(held, key=lambda each: each.times)[:FEW])

    @property
    def not_exercised(self) -> Mapping[str, Sequence[str]]:
        """The ids of the laws that were not exercised, by reason."""
        reasons: dict[str, list[str]] = {}
        for each in self.laws:
            if each.standing is Standing.NOT_EXERCISED:
                reasons.setdefault(each.remark, []).append(each.law.law_id)
        return reasons


@frozen
class CheckReport:
    """The report of a check."""

    result: CheckResult
    caches: tuple[CacheReport, ...]
    known: tuple[KnownDifference, ...]

    @property
    def verdict(self) -> CheckVerdict:
        """The result: the worst verdict of a cache is that of the check."""
        verdicts = {cache.verdict for cache in self.caches}
        for verdict in (
            CheckVerdict.BROKEN,
            CheckVerdict.NOT_JUDGED,
            CheckVerdict.NOT_EXERCISED,
            CheckVerdict.DEPARTS,
            CheckVerdict.INCOMPLETE,
        ):
            if verdict in verdicts:
                return verdict
        return CheckVerdict.HOLDS if verdicts else CheckVerdict.NOT_JUDGED

    @property
    def classes_broken(self) -> tuple[LawClass, ...]:
        """The classes of the laws that some cache breaks, the gravest first."""
        broken = {each for cache in self.caches for each in cache.classes_broken}
        return tuple(each for each in LawClass if each in broken)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all caches, in the order of their numbers."""
        return tuple(each for cache in self.caches for each in cache.findings)

    @property
    def seconds(self) -> float:
        """The time of all stages together."""
        return sum(stage.seconds for stage in self.result.stages)


def report_of(
    result: CheckResult, known: Sequence[KnownDifference] = (), *, apart: bool = False
) -> CheckReport:
    """Make the report of a check. Every finding is replayed once, to record its calls.

    `apart` replays in a worker, so that a cache cannot end the report.
    """
    numbers = count(1)
    caches = tuple(
        _of_cache(cache, result.plan, known, numbers, apart=apart) for cache in result.caches
    )
    return CheckReport(result, caches, tuple(known))


def _of_cache(
    cache: CacheResult,
    plan: CheckPlan,
    known: Sequence[KnownDifference],
    numbers: Iterator[int],
    *,
    apart: bool,
) -> CacheReport:
    laws = tuple(
        Judged(
            law,
            cache.standings[law.law_id],
            {stage: tally.laws[law.law_id] for stage, tally in cache.tallies.items()},
            _remark(law, cache, plan, known),
        )
        for law in LAWS.values()
        if law.law_id in cache.standings
    )
    checked = [
        each.law.law_id for each in laws if each.standing in (Standing.HELD, Standing.BROKEN)
    ]
    findings = (*cache.failures, *cache.unkept)
    if findings:
        # A check without findings does not wait for this import.
        from kvcanon.conformance.report.failure_replay import replay_all  # noqa: PLC0415

        findings = replay_all(cache.name, findings, checked, plan.seed, apart=apart)
        findings = tuple(map(_numbered, findings, numbers))
    failures, unkept = findings[: len(cache.failures)], findings[len(cache.failures) :]
    return CacheReport(cache.name, cache, laws, failures, unkept)


def _numbered(finding: Finding, number: int) -> Finding:
    """A finding with its number, and those that are folded into it: 2, 2.1, 2.2, ..."""
    folded = (evolve(each, number=f"{number}.{at}") for at, each in enumerate(finding.folded, 1))
    return evolve(finding, number=str(number), folded=tuple(folded))


def _remark(law: Law, cache: CacheResult, plan: CheckPlan, known: Sequence[KnownDifference]) -> str:
    standing = cache.standings[law.law_id]
    excuse = next((f"{each.reason} ({each.link})" for each in known if each.law == law.law_id), "")
    if excuse and standing is Standing.KNOWN:
        return excuse
    if excuse:
        return f"known to be broken, but nothing in this check shows it: {excuse}"
    if standing is not Standing.NOT_EXERCISED:
        return ""
    if law not in plan.judges.every_law:
        return LEFT_OUT
    why = _left_to(law, cache) or why_not_exercised(law, cache.lacks, cache.kind, cache.offer)
    by_signature = cache.no_engine and not {Need.ENDS, Need.RANKS}.isdisjoint(law.needs)
    return f"{why} ({cache.no_engine})" if by_signature else why


def _left_to(law: Law, cache: CacheResult) -> str:
    """How the profile of a cache leaves it a law; empty if it does not."""
    if not law.is_judged_under(cache.profile):
        return f"the profile leaves it to the cache: {law.chosen_by} is own"
    from_outside = Need.SNAPSHOT.value in cache.lacks
    if from_outside and law.law_id in left_to(cache.profile, cache.kind):
        return "the profile leaves it to the cache: no answer shows what it does on its own"
    return ""


def _offered(offer: Offer) -> Iterator[str]:
    for each in fields(Offer):
        value, usual = getattr(offer, each.name), each.default
        # A flag that is set offers more than the usual.
        if value != usual and value is not True:
            options = value if isinstance(value, tuple) else (value,)
            words = ", ".join(dict.fromkeys("none" if one is None else str(one) for one in options))
            yield f"{each.name.replace('_', ' ')}: {words}"


def _listed(value: object) -> str:
    """A value of a profile; the members of a set one by one."""
    # Most caches are the canon's, and do not wait for this import.
    from kvcanon.conformance.report.call_code import literal  # noqa: PLC0415

    if isinstance(value, frozenset):
        return ", ".join(sorted(literal(each) for each in value)) or "none"
    return literal(value)


def _departures(profile: Profile) -> Iterator[Departure]:
    for name, each in choices().items():
        value, canon = getattr(profile, name), getattr(CANON, name)
        if value != canon:
            yield Departure(name, _listed(value), _listed(canon), each.otherwise)
