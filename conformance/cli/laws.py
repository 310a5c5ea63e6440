"""`kvcanon laws`: all laws as a list, or one law whole.

The list has the first sentence of each law. The page of a law, as `kvcanon laws RES-4`, has its
reason, where it was seen broken, and its witnesses: faults that break it, each in a few calls. The
page of a retired law has one sentence, which says what replaced it.
"""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.book.laws_json import law_json, laws_json, retired_json, witnesses_of
from kvcanon.conformance.cli.terminal import ReportConsole, columns, print_json
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.call_code import code_lines, literal
from kvcanon.conformance.report.failure_replay import calls_of
from kvcanon.conformance.report.law_lookup import find_law
from kvcanon.conformance.report.text import calls
from kvcanon.conformance.vectors.recording import PLAIN
from kvcanon.conformance.vectors.vector import Vector
from kvcanon.spec.law import LAWS, RETIRED, SITE, Law
from kvcanon.spec.laws.emission import EMISSIONS, HEADS, cells, table
from kvcanon.spec.refusals import HEADS as REFUSAL_HEADS
from kvcanon.spec.refusals import cells as refusals_in_words


def laws(
    law_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A law, as RES-4: its whole page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    emissions: Annotated[
        bool, typer.Option("--emissions", help="Print which events each operation sends.")
    ] = False,
    refusals: Annotated[
        bool, typer.Option("--refusals", help="Print when each operation is refused.")
    ] = False,
) -> None:
    """List the laws, or print one of them whole, or the table of events or of refusals."""
    given = {law_id: law_id is not None, "--emissions": emissions, "--refusals": refusals}
    asked = [each for each, is_given in given.items() if is_given]
    if asked[1:]:
        raise UsageError(f"laws prints one law or one table; drop {asked[0]} or {asked[1]}")
    if emissions:
        _print_emissions(as_json=as_json)
        return
    if refusals:
        _print_refusals(as_json=as_json)
        return
    if law_id is not None and law_id.upper() in RETIRED:
        _print_retired(law_id.upper(), as_json=as_json)
        return
    law = None if law_id is None else find_law(law_id)
    if as_json:
        print_json(laws_json() if law is None else law_json(law))
    elif law is None:
        _print_list()
    else:
        _print_page(law)
        for witness in witnesses_of(law):
            _print_witness(witness)


def _print_emissions(*, as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(HEADS, cells(row), strict=True)) for row in EMISSIONS])
    else:
        typer.echo("\n".join(table()))


def _print_refusals(*, as_json: bool) -> None:
    rows = refusals_in_words()
    if as_json:
        print_json([dict(zip(REFUSAL_HEADS, row, strict=True)) for row in rows])
        return
    out, table = ReportConsole(), columns()
    table.add_column(no_wrap=True)
    table.add_row(*[Text(head, "dim") for head in REFUSAL_HEADS])
    for row in rows:
        table.add_row(*row)
    out.print(table)


def _print_retired(law_id: str, *, as_json: bool) -> None:
    """Print what replaced a retired law."""
    if as_json:
        print_json(retired_json(law_id))
    else:
        ReportConsole().print(f"{law_id} is retired. {RETIRED[law_id]}")


def _print_list() -> None:
    out = ReportConsole()
    for _, group in groupby(LAWS.values(), key=lambda law: law.area):
        here = list(group)
        table = columns()
        for law in here:
            sentence = _one_line(law.statement.partition("\n\n")[0])
            table.add_row(law.law_id, Text(law.level.value, "dim"), Text(sentence))
        out.print(Text(_area_title(here[0]), "bold cyan"))
        out.print(Padding(table, (0, 0, 1, 2)))
    out.print(f"{len(LAWS)} laws. `kvcanon laws ID` prints one whole, {SITE}laws/ shows it.")


def _print_page(law: Law) -> None:
    out = ReportConsole()
    out.print(Text(f"{law.law_id}  {law.name}", "bold cyan"))
    out.print(Padding(Text(_unwrap(law.statement)), (0, 0, 1, 2)))
    table = columns()
    table.add_row("Why", Text(_unwrap(law.why)))
    table.add_row("Seen broken", Text(_unwrap(law.seen_broken)))
    table.add_row("Needs", Text(", ".join(sorted(need.value for need in law.needs))))
    table.add_row("Kind", Text(f"{law.kind.value}, {law.level.value}"))
    table.add_row("Page", Text(law.address))
    out.print(Padding(table, (0, 0, 0, 2)))


def _print_witness(witness: Vector) -> None:
    """Print the fault of a vector, and the calls in which it shows, with a lawful answer each."""
    out = ReportConsole()
    out.print()
    out.print(Text(f"Witness {witness.vector_id}", "bold cyan"))
    fault = f"A cache with this fault breaks it: {witness.reason}"
    out.print(Padding(Text(fault), (0, 0, 1, 2)))
    out.print(Padding(Text(f"in {literal(witness.case.config)}"), (0, 0, 1, 2)))
    lines = code_lines(calls_of(witness.case, PLAIN))
    out.print(Padding(calls(lines, witness.case.actions, None), (0, 0, 1, 2)))
    out.print(Padding(Text("The answers are those of the plain cache."), (0, 0, 0, 2)))


def _area_title(law: Law) -> str:
    """The first line of the chapter that the law stands in."""
    chapter = sys.modules[law.check.__module__].__doc__ or law.area
    return chapter.splitlines()[0].rstrip(".")


def _unwrap(text: str) -> str:
    """Paragraphs, each on one line, so that the terminal wraps them."""
    return "\n\n".join(_one_line(paragraph) for paragraph in text.split("\n\n"))


def _one_line(text: str) -> str:
    return " ".join(text.split())
