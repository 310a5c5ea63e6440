"""Known differences that nothing in a check showed, so that no fixed fault stays excused."""

from __future__ import annotations

from pathlib import Path

from kvcanon.conformance.check.check import STAGES
from kvcanon.conformance.check.result import Standing
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.known_differences import not_shown
from kvcanon.conformance.report.report import CheckReport, CheckVerdict


def line_on_stale(file: Path, report: CheckReport) -> str:
    """A line on the entries of the file that nothing shows; empty if there are none.

    A check that failed, or that did not play all cases, cannot tell. Raises: UsageError: there are
    some, and the check is strict.
    """
    result = report.result
    played = {stage.name for stage in result.stages if not stage.cut_short} == set(STAGES)
    if not played or report.verdict is not CheckVerdict.HOLDS:
        return ""
    standing = [cache.result.standings for cache in report.caches]
    shown = {law for each in standing for law in each if each[law] is Standing.KNOWN}
    stale = not_shown(file, report.known, shown)
    if stale and result.strict:
        raise UsageError(stale)
    return stale
