"""The report of `peers table`, as text and as JSON.

Cases are counted up to the one that shows the bug. A release without the bug is checked with more
of the same cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import asdict
from rich.console import RenderableType
from rich.table import Table

from kvcanon.lab.releases.table import HuntEffort, HuntOutcome, TableCell

FORMAT = "kvcanon-peers-table/1"
HEADS = ("bug", "release", "law", "outcome", "cases", "steps", "seconds")


def table_text(cells: Sequence[TableCell], effort: HuntEffort) -> Iterator[RenderableType]:
    """The table, then the shortest sequence of calls that shows each bug."""
    ceiling = f"{effort.cases} cases and {effort.seconds:g} s"
    yield f"seed {effort.seed}, at most {ceiling} for each release of a row"
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in HEADS:
        table.add_column(head, justify="right" if head in HEADS[4:] else "left", no_wrap=True)
    for cell in cells:
        table.add_row(*_row(cell))
    yield table
    for cell in cells:
        if cell.hunted is not None and cell.hunted.found:
            yield f"\n{cell.row.bug} in {cell.release}: {cell.row.what}"
            yield f"  {cell.row.law_id}: {cell.hunted.text}"
            yield "\n".join(f"    {call}" for call in cell.hunted.calls)
    missing = dict.fromkeys(cell.release for cell in cells if cell.hunted is None)
    for release in missing:
        yield f"\nno environment of {release}: `kvcanon lab peers make {release}` makes one"
    odd = [cell for cell in cells if not cell.is_as_expected]
    for cell in odd:
        yield (
            f"\nNOT AS EXPECTED: {cell.row.bug} in {cell.release} is {cell.outcome}; "
            f"it should be {cell.expected}"
        )


def _row(cell: TableCell) -> tuple[str, ...]:
    hunted = cell.hunted
    outcome = cell.outcome.value
    if hunted is None:
        return cell.row.bug, cell.release, cell.row.law_id, outcome, "-", "-", "-"
    if hunted.cut_short and cell.outcome is not HuntOutcome.FOUND:
        outcome += ", cut short"
    return (
        cell.row.bug,
        cell.release,
        cell.row.law_id,
        outcome,
        f"{hunted.cases:,}",
        f"{hunted.steps:,}",
        f"{hunted.seconds:.1f}",
    )


def table_json(cells: Sequence[TableCell], effort: HuntEffort) -> dict[str, object]:
    """The table as a value for JSON, with the case and the script of each bug that was found."""
    return {
        "format": FORMAT,
        "effort": asdict(effort),
        "cells": [
            {
                "bug": cell.row.bug,
                "what": cell.row.what,
                "release": cell.release,
                "law": cell.row.law_id,
                "outcome": cell.outcome.value,
                "expected": cell.expected.value,
                "hunted": None if cell.hunted is None else asdict(cell.hunted),
            }
            for cell in cells
        ],
    }
