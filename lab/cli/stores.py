"""`kvcanon lab stores`: plants faults in the plain stores, and says which case finds each.

With `--witnesses` it also writes the smallest case of each fault that is found, which
`kvcanon check-store` plays first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, DrawSeed, write_file
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_json, progress
from kvcanon.conformance.engines.disk.disk_store import DISK
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.stores.case import StoreCase
from kvcanon.conformance.stores.check import STORE_EFFORTS
from kvcanon.conformance.stores.plain_stores import FILES, MEMORY
from kvcanon.conformance.stores.witnesses import FILE, witnesses_text
from kvcanon.lab.stores.hunt import StoreHunt, holds_on, hunt, smallest_case
from kvcanon.lab.stores.planted import store_faults
from kvcanon.spec.stores import STORE_LAWS


def stores_command(
    *,
    seed: DrawSeed = 0,
    effort: Annotated[
        str, typer.Option(metavar="|".join(STORE_EFFORTS), help="How many cases are played.")
    ] = "quick",
    witnesses: Annotated[
        bool, typer.Option("--witnesses", help="Reduce the cases, and write them as witnesses.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the faults that are planted in the plain stores, each by its own law."""
    if effort not in STORE_EFFORTS:
        raise UsageError(f"no effort {effort!r}; name {', '.join(STORE_EFFORTS)}")
    found: list[StoreHunt] = []
    with progress(list(store_faults().values()), "faults") as faults:
        for fault in faults:
            each = hunt(fault, seed, effort)
            found.append(smallest_case(each, _holds) if witnesses and each.case else each)
    if witnesses:
        write_file(FILE, witnesses_text(_by_law(found)))
    if as_json:
        print_json([_row(each) for each in found])
    else:
        _print_table(found)
    if any(each.case is None for each in found):
        raise typer.Exit(BROKEN)


def _holds(case: StoreCase) -> bool:
    return all(holds_on(adapter, case) for adapter in (FILES, MEMORY, DISK))


def _by_law(found: Sequence[StoreHunt]) -> dict[str, list[StoreCase]]:
    """The cases of each law, each once."""
    cases: dict[str, list[StoreCase]] = {law_id: [] for law_id in STORE_LAWS}
    for each in found:
        if each.case is not None and each.case not in cases[each.fault.law_id]:
            cases[each.fault.law_id].append(each.case)
    return {law_id: those for law_id, those in cases.items() if those}


def _row(each: StoreHunt) -> dict[str, object]:
    return {
        "law": each.fault.law_id,
        "fault": each.fault.name,
        "what": each.fault.what,
        "seed": each.seed,
        "found": each.case is not None,
        "cases": each.number,
        "words": each.words,
    }


def _print_table(found: Sequence[StoreHunt]) -> None:
    out = ReportConsole()
    table = figures_table("law", "found in case")
    table.add_column("fault")
    for each in found:
        number = str(each.number) if each.case is not None else "not found"
        table.add_row(each.fault.law_id, number, each.fault.what)
    out.print(table)
    missed = sum(each.case is None for each in found)
    out.print(f"{len(found) - missed} of {len(found)} faults were found by their own law.")
