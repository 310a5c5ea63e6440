"""Tables of `kvcanon explore --json`: what was visited, and where each law was exercised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from kvcanon.conformance.explore.report import where_words
from kvcanon.lab.bench.tables.table import RunFile, Table, table
from kvcanon.spec.law import LAWS

Explored: TypeAlias = Mapping[str, Any]


def explored(files: Sequence[RunFile]) -> Table:
    """A row a scope, and what they are together."""
    found = list(_all(files))
    rows = [_row(each) for each in found]
    if len(found) > 1:
        rows.append(("together", *_sums(found)))
    heads = ("scope", "states", "moves", "operations", "depth", "exercised", "CPU", "moves/s")
    return table(heads, rows, "one run; seconds of processors")


def explored_laws(files: Sequence[RunFile]) -> Table:
    """Each law, and the scopes in which it was exercised."""
    found = list(_all(files))
    rows = []
    for law_id, law in LAWS.items():
        came = [each["scope"] for each in found if each["laws_exercised"].get(law_id)]
        others = [each["scope"] for each in found if each["scope"] not in came]
        rows.append((f"{law_id} `{law.name}`", law.premise.words, where_words(came, others)))
    return table(("law", "its situation", "exercised in"), rows if found else (), "one run")


def _all(files: Sequence[RunFile]) -> Iterator[Explored]:
    for file in files:
        yield from file["explorations"]


def _row(found: Explored) -> tuple[str, ...]:
    broken = ", BROKEN" if found["broken"] else ""
    left = f", {found['left']:,} left" if found["left"] and not broken else broken
    cpu = max(found["cpu_seconds"], 1e-9)
    laws = len(found["laws"])
    return (
        f"`{found['scope']}`",
        f"{found['states']:,}{left}",
        f"{found['moves']:,}",
        f"{found['operations']:,}",
        str(len(found["levels"]) - 1),
        f"{laws - len(found['not_exercised'])} of {laws}",
        f"{found['cpu_seconds']:,.0f} s",
        f"{found['moves'] / cpu:,.0f}",
    )


def _sums(found: Sequence[Explored]) -> tuple[str, ...]:
    states, moves, operations = (
        f"{sum(each[name] for each in found):,}" for name in ("states", "moves", "operations")
    )
    spent = sum(each["cpu_seconds"] for each in found)
    return states, moves, operations, "", "", f"{spent:,.0f} s", ""
