"""Failures as runs: of a check that has just ended, and of its files.

A failure is played again on a new cache, judged by the laws that it breaks, so that the run ends at
the call that breaks them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kvcanon.conformance.cases.case import case_from_json
from kvcanon.conformance.check.result import Failure, Finding, Grounds, Standing
from kvcanon.conformance.check.trial import adapter_as, short_limit
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.failure_replay import ReplayedFailure, judges_of
from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.conformance.report.report import CheckReport
from kvcanon.conformance.show.case_run import expected_of, record_case
from kvcanon.conformance.show.page import embedded
from kvcanon.conformance.show.shown_run import ShownRun
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.workers import workers

MOST_SHOWN = 40
"""Failures of a report that get a run."""


def run_of_failure(cache: str, failure: Failure, law_ids: Collection[str]) -> ShownRun:
    """Record a failure; `law_ids` are the laws to check if it is of no law. Raises: UsageError."""
    finding = failure.finding
    with short_limit():
        return record_case(
            failure.case,
            adapter_as(cache),
            judges_of(failure, law_ids),
            finding.headline,
            expected_of(finding),
        )


def drawn_failures(report: CheckReport, seed: int) -> Callable[[ReplayedFailure], Markup]:
    """Record the failures of a report in a worker; returns the element of each for its page."""
    drawn: list[tuple[ReplayedFailure, Markup]] = []
    caches = {cache.name: cache for cache in report.caches}
    with workers(1, apart=True, seed=seed) as by:
        for each in report.numbered[:MOST_SHOWN]:
            checked = [
                judged.law.law_id
                for judged in caches[each.cache].laws
                if judged.standing in (Standing.HELD, Standing.BROKEN)
            ]
            failure = each.replay.failure
            job = by.executor.submit(run_of_failure, each.cache, failure, checked)
            try:
                drawn.append((each.replay, embedded(job.result())))
            except (UsageError, ProcessDied) as problem:
                drawn.append((each.replay, tag("p", f"No tree can be shown: {problem}")))

    def find(replay: ReplayedFailure) -> Markup:
        return next((markup for known, markup in drawn if known is replay), Markup(""))

    return find


def numbered_failures(report: Mapping[str, Any]) -> dict[str, tuple[str, Failure, list[str]]]:
    """The failures of a JSON report by number: the cache, the failure, and the laws checked.

    Raises: KeyError, TypeError, ValueError, BadArgument: it is no such report.
    """
    found: dict[str, tuple[str, Failure, list[str]]] = {}
    firsts = [
        (cache, failure)
        for cache in report["caches"]
        for failure in (*cache["failures"], *cache["not_kept"])
    ]
    for number, (cache, first) in enumerate(firsts, 1):
        laws = [law["id"] for law in cache["laws"] if law["standing"] in ("held", "broken")]
        for at, each in enumerate([first, *first["folded"]]):
            name = f"{number}.{at}" if at else f"{number}"
            found[name] = (cache["name"], _failure(cache["name"], each), laws)
    return found


def _failure(cache: str, value: Mapping[str, Any]) -> Failure:
    broken = tuple(value["broken"])
    finding = Finding(
        cache=cache,
        grounds=Grounds(value["grounds"]),
        name=value["name"],
        broken=broken,
        text=value["text"],
        words=value["words"],
        action=value["action"],
        operation=value["operation"],
        texts=tuple(value["evidence"][law_id] for law_id in broken),
        after=value["after"],
    )
    return Failure(
        finding,
        case_from_json(value["case"]),
        value["origin"],
        value["times"],
        black_box=value["black_box"],
        against=value["against"],
    )
