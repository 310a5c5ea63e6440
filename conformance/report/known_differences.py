"""Known differences: laws that a cache is known to break, each with a reason and a link.

The file is TOML, with a table for each law:

    [[known]]
    law = "EVICT-3"
    reason = "a leaf's window data is freed with its lock"
    link = "https://example.org/issues/1"

A vector must show each known difference; otherwise the check refuses the entry as out of date.
Random cases do not check known laws, because a broken law ends a case and hides other faults.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path

from attrs import fields, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.law_lookup import find_law
from kvcanon.conformance.search.result import CheckResult, Standing
from kvcanon.conformance.search.vector_stage import NAME as VECTORS


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


def require_all_shown(path: Path, known: Collection[KnownDifference], result: CheckResult) -> None:
    """Refuse known differences that no vector shows. Raises: UsageError.

    Only a check that played every vector can say that none of them shows a difference.
    """
    if any(stage.name == VECTORS and not stage.cut_short for stage in result.stages):
        standing = [cache.standings for cache in result.caches]
        shown = {law for each in standing for law in each if each[law] is Standing.KNOWN}
        require_shown(path, known, shown)


def require_shown(path: Path, known: Collection[KnownDifference], broken: Collection[str]) -> None:
    """Refuse entries whose laws no vector broke. Raises: UsageError."""
    stale = [each.law for each in known if each.law not in broken]
    if stale:
        entries = "entries that no vector shows" if stale[1:] else "an entry that no vector shows"
        raise UsageError(f"{path} has {entries}: {', '.join(stale)}; remove what is fixed")


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
