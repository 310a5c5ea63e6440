"""The check of a pytest session. It runs once, and every test of the session shows a part of it.

It is the check of `kvcanon check`, so that both say the same of a cache.
"""

from __future__ import annotations

import json
from pathlib import Path

from attrs import asdict, evolve, frozen

from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import CheckPlan
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.known_differences import line_on_stale, read_known
from kvcanon.conformance.report.named_tests import (
    AGREEMENT,
    COMPLETE,
    NamedOutcome,
    NamedTest,
    named_tests,
)
from kvcanon.conformance.report.played import MINUTES
from kvcanon.conformance.report.report import CheckReport, CheckVerdict, report_of
from kvcanon.conformance.report.text import judged_as, last_line
from kvcanon.spec.law import LAWS

OPTION = "--kvcanon-minutes"


@frozen
class SessionCheck:
    """The result of the check of a session."""

    verdict: str
    """The last lines of the report of `kvcanon check`."""
    tests: tuple[NamedTest, ...]
    stale: str = ""
    """A line on known differences that nothing showed."""

    def test(self, key: str) -> NamedTest:
        """The test with this key; a skipped one for a law that does not concern the cache."""
        for each in self.tests:
            if each.key == key:
                return each
        law = LAWS[key]
        name, words = f"{key} {law.name}", "not offered: the cache has no store"
        return NamedTest(key, name, NamedOutcome.SKIPPED, words, address=law.address)


def session_check(plan: CheckPlan, known: Path | None) -> SessionCheck:
    """Check the cache of a session; `known` is a file. Raises: UsageError, OSError."""
    differences = read_known(known) if known is not None else ()
    judges = evolve(plan.judges, known=[each.law for each in differences])
    result = check(evolve(plan, judges=judges))
    report = report_of(result, differences, apart=True)
    stale = line_on_stale(known, report) if known is not None else ""
    if report.verdict is CheckVerdict.NOT_JUDGED:
        raise UsageError("nothing was judged")
    line = last_line(report).plain.replace(MINUTES, OPTION)
    said = "\n".join([*judged_as(report), line])
    return SessionCheck(said, tuple(_tests(report)), stale)


def _tests(report: CheckReport) -> list[NamedTest]:
    """The tests of the cache. What the cache to agree with breaks itself fails the agreement."""
    cache, *others = report.caches
    tests = [
        evolve(each, message=each.message.replace(MINUTES, OPTION))
        if each.key == COMPLETE
        else each
        for each in named_tests(report, cache)
    ]
    broken = [
        evolve(each, message=f"{other.name} itself: {each.name}: {each.message}")
        for other in others
        for each in named_tests(report, other)
        if each.fails
    ]
    if not broken:
        return tests
    return [evolve(broken[0], key=AGREEMENT) if each.key == AGREEMENT else each for each in tests]


def to_json(checked: SessionCheck) -> str:
    """The result as JSON, for the workers of pytest-xdist."""
    return json.dumps(asdict(checked))


def from_json(text: str) -> SessionCheck:
    """The inverse of `to_json`."""
    value = json.loads(text)
    tests = (
        evolve(NamedTest(**each), outcome=NamedOutcome(each["outcome"])) for each in value["tests"]
    )
    return SessionCheck(value["verdict"], tuple(tests), value["stale"])
