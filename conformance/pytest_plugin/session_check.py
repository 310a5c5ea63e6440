"""The check of a pytest session. It runs once, and every test of the session shows a part of it.

It is the check of `kvcanon check`, so that both say the same of a cache.
"""

from __future__ import annotations

import json
from pathlib import Path

from attrs import asdict, evolve, frozen

from kvcanon.conformance.check.check import check
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.known_differences import read_known
from kvcanon.conformance.report.known_shown import line_on_stale
from kvcanon.conformance.report.named_tests import (
    AGREEMENT,
    NamedOutcome,
    NamedTest,
    named_tests,
)
from kvcanon.conformance.report.replay_apart import replay_apart
from kvcanon.conformance.report.report import CheckReport, CheckVerdict, report_of
from kvcanon.conformance.report.text import verdict


@frozen
class SessionOptions:
    """The cache of a session, and how it is checked: the options of `kvcanon check`."""

    cache: str
    against: str | None = None
    effort: str = "quick"
    seed: int = 0
    known: Path | None = None
    """A file of known differences."""
    black_box: bool = False
    strict: bool = False
    jobs: int | None = None
    """Worker processes; None for one for each core."""


@frozen
class SessionCheck:
    """The result of the check of a session."""

    verdict: str
    """The last line of the report of `kvcanon check`."""
    tests: tuple[NamedTest, ...]
    stale: str = ""
    """A line on known differences that nothing showed."""

    def test(self, key: str) -> NamedTest:
        """The test with this key. Raises: KeyError."""
        return {each.key: each for each in self.tests}[key]


def session_check(options: SessionOptions) -> SessionCheck:
    """Check the cache of a session. Raises: UsageError, OSError."""
    differences = read_known(options.known) if options.known is not None else ()
    result = check(
        [options.cache],
        against=options.against,
        effort=options.effort,
        seed=options.seed,
        known=[each.law for each in differences],
        black_box=options.black_box,
        strict=options.strict,
        jobs=options.jobs,
    )
    report = report_of(result, known=differences, replay=replay_apart(options.seed))
    stale = line_on_stale(options.known, report) if options.known is not None else ""
    if report.verdict is CheckVerdict.NOT_JUDGED:
        raise UsageError("nothing was judged")
    return SessionCheck(verdict(report).plain, tuple(_tests(report)), stale)


def _tests(report: CheckReport) -> list[NamedTest]:
    """The tests of the cache. What the cache to agree with breaks itself fails the agreement."""
    cache, *others = report.caches
    tests = list(named_tests(report, cache))
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
