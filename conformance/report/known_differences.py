"""Known differences: laws that a cache is known to break, each with a reason and a link.

The file is TOML, with a table for each law:

    [[known]]
    law = "EVICT-3"
    reason = "a leaf's window data is freed with its lock"
    link = "https://example.org/issues/1"

A law that is known to be broken is checked in every stage, and ends no case, so that it hides no
other fault. An entry that nothing shows may be out of date: the check says so, and a strict one
fails.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path

from attrs import fields, frozen

from kvcanon.conformance.check.plan import CheckStage
from kvcanon.conformance.check.result import Standing
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import find_law
from kvcanon.conformance.report.report import CheckReport, CheckVerdict


@frozen
class KnownDifference:
    """A law that a cache is known to break."""

    law: str
    """The id of the law."""
    reason: str
    link: str


FIELDS = tuple(each.name for each in fields(KnownDifference))


def read_known(path: Path) -> tuple[KnownDifference, ...]:
    """The known differences of a file. Raises: UsageError, OSError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    entries = document.get("known")
    if document.keys() != {"known"} or not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} must hold [[known]] tables, and nothing else")
    known = tuple(_known(path, number, entry) for number, entry in enumerate(entries, 1))
    law_ids = [each.law for each in known]
    twice = sorted({law_id for law_id in law_ids if law_ids.count(law_id) > 1})
    if twice:
        raise UsageError(f"{path} names {', '.join(twice)} more than once")
    return known


def not_shown(path: Path, known: Collection[KnownDifference], shown: Collection[str]) -> str:
    """A line on the entries that a whole check did not show; empty if it showed all."""
    stale = [each.law for each in known if each.law not in shown]
    if not stale:
        return ""
    entries = "entries" if stale[1:] else "an entry"
    which = f"{entries} that nothing in this check shows: {', '.join(stale)}"
    return f"{path} has {which}; remove what is fixed, or check with more effort"


def line_on_stale(file: Path, report: CheckReport) -> str:
    """A line on the entries of the file that nothing shows; empty if there are none.

    A check that failed, or that did not play all cases, cannot tell. Raises: UsageError: there are
    some, and the check is strict.
    """
    result = report.result
    played = {stage.name for stage in result.stages if not stage.cut_short} == set(CheckStage)
    if not played or report.verdict is not CheckVerdict.HOLDS:
        return ""
    standing = [cache.result.standings for cache in report.caches]
    shown = {law for each in standing for law in each if each[law] is Standing.KNOWN}
    stale = not_shown(file, report.known, shown)
    if stale and result.plan.strict:
        raise UsageError(stale)
    return stale


def _known(path: Path, number: int, entry: object) -> KnownDifference:
    where = f"{path}, [[known]] number {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not a table")
    unknown = sorted(entry.keys() - set(FIELDS))
    if unknown:
        raise UsageError(f"{where} has {', '.join(unknown)}; it takes {', '.join(FIELDS)}")
    for name in FIELDS:
        if not isinstance(entry.get(name), str) or not entry[name].strip():
            raise UsageError(f"{where} needs a {name}")
    if not entry["link"].strip().startswith(("https://", "http://")):
        raise UsageError(f"{where}: {entry['link']!r} is not a link; give an http or https address")
    return KnownDifference(
        find_law(entry["law"]).law_id, entry["reason"].strip(), entry["link"].strip()
    )
