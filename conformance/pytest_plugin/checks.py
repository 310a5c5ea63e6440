"""`check_cache`: the check of `kvcanon check`, for a test of a cache's own project."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection

from kvcanon.conformance.cases.case import case_to_json
from kvcanon.conformance.check.bare_factory import ignoring
from kvcanon.conformance.check.blocks import local_caches
from kvcanon.conformance.check.check import check
from kvcanon.conformance.check.plan import CheckPlan, effort_named
from kvcanon.conformance.check.result import Finding
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, MakeCache
from kvcanon.conformance.report.played import MINUTES, incomplete, to_complete

UNKEPT = "SHOULD, not kept"


def check_cache(
    make: MakeCache | Adapter,
    *,
    effort: str = "quick",
    minutes: float | None = None,
    seed: int = 0,
    against: Adapter | None = None,
    strict: bool = False,
    known: Collection[str] = (),
    black_box: bool = False,
) -> None:
    """Judge the caches that a factory or an adapter makes, as `kvcanon check` does.

    The factory may be local, even a closure, because the check runs in this process alone. The
    arguments are the options of `kvcanon check`; `minutes` set the time limit of the effort, and
    `known` are ids of laws that are known to be broken. A broken SHOULD law is a warning; with
    `strict` it is a failure. What a factory without an adapter ignores is not judged, and a warning
    says so.

    Raises: AssertionError: the failures, the essentials that were not exercised, and what there was
    no time to play. UsageError: the caches cannot be judged.
    """
    adapter = make if isinstance(make, Adapter) else Adapter("the cache", make, is_bare=True)
    others = () if against is None else (against,)
    with local_caches(adapter, *others):
        plan = CheckPlan(
            [adapter.name],
            JudgeConfig(black_box, known=known),
            effort_named(effort, minutes),
            seed,
            None if against is None else against.name,
            strict=strict,
            jobs=1,
        )
        result = check(plan, apart=False)
    missing = [
        f"NOT EXERCISED: {'; '.join(each.missing)}" for each in result.caches if each.missing
    ]
    if any(to_complete(result)) and not result.failures:
        missing = [incomplete(result).replace(f"{MINUTES} ", "minutes="), *missing]
    if words := [*map(_in_words, result.failures), *missing]:
        raise AssertionError("\n\n".join(words))
    for cache in result.caches:
        if cache.ignores:
            warnings.warn(ignoring(cache.name, cache.ignores), stacklevel=2)
        for finding in cache.unkept:
            warnings.warn(f"{UNKEPT}: {_in_words(finding)}", stacklevel=2)


def _in_words(finding: Finding) -> str:
    """The law and what is wrong in the first line; at the end the case in JSON."""
    case = json.dumps(case_to_json(finding.case))
    return (
        f"{finding.headline}: {finding.text}\n\n{finding.words}\n\n"
        f"found by: {finding.origin}\nthe case: {case}"
    )
