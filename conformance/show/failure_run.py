"""Findings as runs: of a check that has just ended, and of its files.

A finding is played again on a new cache, judged by the laws that it breaks, so that the run ends at
the call that breaks them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kvcanon.conformance.check.result import Finding, Standing, finding_from_json
from kvcanon.conformance.check.trial import adapter_as, short_limit
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.failure_replay import judges_of
from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.conformance.report.report import CheckReport
from kvcanon.conformance.show.case_run import record_case
from kvcanon.conformance.show.page import embedded
from kvcanon.conformance.show.shown_run import ShownRun
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.workers import workers

MOST_SHOWN = 40
"""Findings of a report that get a run."""


def run_of_finding(cache: str, finding: Finding, law_ids: Collection[str]) -> ShownRun:
    """Record a finding; `law_ids` are the laws to check if it is of no law. Raises: UsageError."""
    judges = judges_of(finding, law_ids)
    with short_limit():
        return record_case(finding.case, adapter_as(cache), judges, finding.headline, finding)


def drawn_findings(report: CheckReport, seed: int) -> Callable[[Finding], Markup]:
    """Record the findings of a report in a worker; returns the element of each for its page."""
    drawn: dict[str, Markup] = {}
    caches = {cache.name: cache for cache in report.caches}
    with workers(1, apart=True, seed=seed) as by:
        for each in report.findings[:MOST_SHOWN]:
            checked = [
                judged.law.law_id
                for judged in caches[each.cache].laws
                if judged.standing in (Standing.HELD, Standing.BROKEN)
            ]
            job = by.executor.submit(run_of_finding, each.cache, each, checked)
            try:
                drawn[each.number] = embedded(job.result())
            except (UsageError, ProcessDied) as problem:
                drawn[each.number] = tag("p", f"No tree can be shown: {problem}")
    return lambda finding: drawn.get(finding.number, Markup(""))


def numbered_findings(report: Mapping[str, Any]) -> dict[str, tuple[Finding, list[str]]]:
    """The findings of a JSON report by number, each with the laws that were checked.

    Raises: KeyError, TypeError, ValueError, BadArgument: it is no such report.
    """
    found: dict[str, tuple[Finding, list[str]]] = {}
    firsts = [
        (cache, finding)
        for cache in report["caches"]
        for finding in (*cache["failures"], *cache["not_kept"])
    ]
    for number, (cache, first) in enumerate(firsts, 1):
        laws = [law["id"] for law in cache["laws"] if law["standing"] in ("held", "broken")]
        for at, each in enumerate([first, *first["folded"]]):
            name = f"{number}.{at}" if at else f"{number}"
            found[name] = finding_from_json(each, cache["name"]), laws
    return found
