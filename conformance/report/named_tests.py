"""The report as tests with names: one for each law, and four for what is of no law.

JUnit XML and the pytest suite show these same tests. Every check of a cache has the same tests,
whatever their outcome, so that a CI server can show their history.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from attrs import evolve, frozen

from kvcanon.conformance.check.result import Finding, Grounds, Standing
from kvcanon.conformance.report.played import incomplete
from kvcanon.conformance.report.report import CacheReport, CheckReport, CheckVerdict, Judged


class NamedOutcome(StrEnum):
    """The outcome of a test; `FAILED` and `CRASHED` fail the check."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    SKIPPED = "skipped"
    """The law was not exercised, or is known to be broken."""
    NOT_KEPT = "not kept"
    """A SHOULD law is broken, and the check is not strict."""


@frozen
class NamedTest:
    """A test of a cache, and its outcome."""

    key: str
    """The id of the law, or "agreement", "crash", "essentials" or "complete"."""
    name: str
    """The name for readers, such as "RES-4 backed_parents"."""
    outcome: NamedOutcome
    message: str = ""
    """What is wrong or why it was skipped, in a sentence; empty for a test that passed."""
    details: str = ""
    """Each finding in full, with its script."""
    fault: str = ""
    """The law, the class of the exception, or what differs."""
    exercised: int = 0
    """How often a held law was exercised."""
    address: str = ""
    """The page of the law; empty for a test of no law."""
    law_class: str = ""
    """The class of the law; empty for a test of no law."""

    @property
    def fails(self) -> bool:
        """Whether it fails the check."""
        return self.outcome in (NamedOutcome.FAILED, NamedOutcome.CRASHED)


AGREEMENT, CRASH, ESSENTIALS, COMPLETE = "agreement", "crash", "essentials", "complete"


def named_tests(report: CheckReport, cache: CacheReport) -> Iterator[NamedTest]:
    """The tests of one cache of a report: the laws in their order, then the others."""
    for judged in cache.laws:
        law = judged.law
        yield evolve(_law(cache, judged), address=law.address, law_class=law.law_class.value)
    if (against := report.result.plan.against) is not None:
        yield _other(cache, AGREEMENT, f"agreement with {against}", Grounds.AGREEMENT)
    yield _other(cache, CRASH, "no crash", Grounds.CRASH)
    over = cache.verdict is not CheckVerdict.INCOMPLETE
    missing = "; ".join(cache.result.missing) if over else ""
    fault = CheckVerdict.NOT_EXERCISED.value if missing else ""
    outcome = NamedOutcome.FAILED if missing else NamedOutcome.PASSED
    yield NamedTest(ESSENTIALS, "essentials came up", outcome, missing, fault=fault)
    yield _complete(report, cache)


def _complete(report: CheckReport, cache: CacheReport) -> NamedTest:
    """The test that all was played. What was left out of a broken cache is of no interest."""
    name = "everything was played"
    if cache.verdict is not CheckVerdict.INCOMPLETE:
        return NamedTest(COMPLETE, name, NamedOutcome.PASSED)
    message = incomplete(report.result)
    return NamedTest(COMPLETE, name, NamedOutcome.FAILED, message, fault=cache.verdict.value)


def _law(cache: CacheReport, judged: Judged) -> NamedTest:
    law_id, remark = judged.law.law_id, judged.remark
    name = f"{law_id} {judged.law.name}"
    match judged.standing:
        case Standing.HELD:
            return NamedTest(law_id, name, NamedOutcome.PASSED, exercised=judged.times)
        case Standing.NOT_EXERCISED:
            return NamedTest(law_id, name, NamedOutcome.SKIPPED, f"not exercised: {remark}")
        case Standing.KNOWN:
            return NamedTest(law_id, name, NamedOutcome.SKIPPED, f"known to be broken: {remark}")
        case Standing.BROKEN | Standing.NOT_KEPT:
            findings = list(_breaking(cache, law_id))
            first = findings[0]
            message = first.evidence[law_id] + _cause(cache, first)
            page = f"The page of the law: {judged.law.address}"
            law_class = f"The class of the law: {judged.law.law_class}"
            details = "\n\n".join([page, law_class, *(_in_words(each) for each in findings)])
            if judged.standing is Standing.BROKEN:
                return NamedTest(law_id, name, NamedOutcome.FAILED, message, details, law_id)
            message = f"SHOULD, not kept: {message}"
            return NamedTest(law_id, name, NamedOutcome.NOT_KEPT, message, details)


def _breaking(cache: CacheReport, law_id: str) -> Iterator[Finding]:
    """The findings in which a law is broken; first those that are named after it."""
    findings = [each for each in cache.findings if law_id in each.broken]
    yield from sorted(findings, key=lambda each: each.name != law_id)


def _cause(cache: CacheReport, finding: Finding) -> str:
    """The finding that most likely explains one that is folded into it; empty for others."""
    for first in (*cache.failures, *cache.unkept):
        if finding in first.folded:
            return f" (most likely caused by {first.headline})"
    return ""


def _other(cache: CacheReport, key: str, name: str, grounds: Grounds) -> NamedTest:
    """A test for findings that are of no law."""
    findings = [each for each in cache.findings if each.grounds is grounds]
    if not findings:
        return NamedTest(key, name, NamedOutcome.PASSED)
    first = findings[0]
    outcome = NamedOutcome.CRASHED if grounds is Grounds.CRASH else NamedOutcome.FAILED
    details = "\n\n".join(_in_words(each) for each in findings)
    return NamedTest(key, name, outcome, first.text, details, first.name)


def _in_words(finding: Finding) -> str:
    return f"{finding.words}\n\nThis script shows it:\n\n{finding.script}"
