"""`kvcanon laws`: all laws or an area as a list, one law whole, or the laws about some words.

The list has the first sentence of each law. The page of a law, as `kvcanon laws RES-4`, has its
reason, where it was seen broken, and its witnesses: faults that break it, each in a few calls.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.cli.terminal import ReportConsole, columns, print_json
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import find_law
from kvcanon.conformance.laws.history import history_of
from kvcanon.conformance.laws.law_search import Found, search_laws
from kvcanon.conformance.laws.laws_json import law_json, laws_json, members_in_words, witnesses_of
from kvcanon.conformance.laws.store_laws import (
    STORE_AREA,
    STORE_TITLE,
    store_law_json,
    store_laws_named,
)
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.report.call_code import code_lines, literal
from kvcanon.conformance.report.failure_replay import calls_of
from kvcanon.conformance.report.text import calls
from kvcanon.conformance.vectors import Vector
from kvcanon.spec.law import LAWS, SITE, Law, LawClass, Level
from kvcanon.spec.laws.emission import EMISSIONS, HEADS, cells, table
from kvcanon.spec.refusals import HEADS as REFUSAL_HEADS
from kvcanon.spec.refusals import cells as refusals_in_words
from kvcanon.spec.stores.store_law import StoreLaw


def laws(
    law_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A law, as RES-4: its whole page. Or an area, as RES."),
    ] = None,
    about: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help='Search symptoms and laws, as for "window split".'),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    emissions: Annotated[
        bool, typer.Option("--emissions", help="Print which events each operation sends.")
    ] = False,
    refusals: Annotated[
        bool, typer.Option("--refusals", help="Print when each operation is refused.")
    ] = False,
) -> None:
    """List the laws, search them, or print one of them, or the table of events or refusals."""
    given = {
        law_id: law_id is not None,
        "--about": about is not None,
        "--emissions": emissions,
        "--refusals": refusals,
    }
    asked = [each for each, is_given in given.items() if is_given]
    if asked[1:]:
        raise UsageError(f"laws prints one law or one table; drop {asked[0]} or {asked[1]}")
    if about is not None:
        _print_found(search_laws(about), as_json=as_json)
        return
    if emissions:
        _print_emissions(as_json=as_json)
        return
    if refusals:
        _print_refusals(as_json=as_json)
        return
    if law_id is not None and (stores := store_laws_named(law_id)):
        _print_stores(stores, whole=law_id.upper() != STORE_AREA, as_json=as_json)
        return
    area = [law for law in LAWS.values() if law_id is not None and law.area == law_id.upper()]
    law = None if law_id is None or area else find_law(law_id)
    if as_json:
        print_json([*map(law_json, area)] if area else law_json(law) if law else laws_json())
    elif law is None:
        _print_list(area or list(LAWS.values()))
        if law_id is None:
            _print_stores(store_laws_named(None))
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


def _print_list(laws: Sequence[Law]) -> None:
    out = ReportConsole()
    for _, group in groupby(laws, key=lambda law: law.area):
        here = list(group)
        _print_rows(out, _area_title(here[0]), here)
    out.print(
        f"{len(laws)} laws. `kvcanon laws ID` prints one whole, `kvcanon laws --about WORDS` "
        f"searches them; {SITE}laws/ has their pages."
    )


def _print_stores(laws: Sequence[StoreLaw], *, whole: bool = False, as_json: bool = False) -> None:
    """Print laws of stores: as JSON, a law whole, or their first sentences."""
    if as_json:
        print_json(store_law_json(laws[0]) if whole else [*map(store_law_json, laws)])
        return
    out, table = ReportConsole(), columns()
    if whole:
        (law,) = laws
        out.print(Text(f"{law.law_id}  {law.name}", "bold cyan"))
        out.print(Padding(Text(_unwrap(law.statement)), (0, 0, 1, 2)))
        needs = ", ".join(sorted(need.value for need in law.needs)) or "nothing"
        table.add_row("Why", Text(_unwrap(law.why)))
        table.add_row("Seen broken", Text(_unwrap(law.seen_broken)))
        table.add_row("Needs", Text(f"{needs} of the store's abilities"))
        words = members_in_words(LawClass)[law.law_class]
        table.add_row("Class", Text(f"{law.law_class.value}: {words}"))
        table.add_row("Exercised by", Text(law.premise))
        out.print(Padding(table, (0, 0, 0, 2)))
        return
    for law in laws:
        sentence = _one_line(law.statement.partition("\n\n")[0])
        table.add_row(law.law_id, Text(law.law_class.value, "dim"), Text(sentence))
    out.print(Text(STORE_TITLE, "bold cyan"))
    out.print(Padding(table, (0, 0, 1, 2)))
    out.print(f"{len(laws)} laws of stores; `kvcanon check-store` judges a store by them.")


def _print_rows(out: ReportConsole, title: str, laws: Iterable[Law]) -> None:
    """Print the first sentence of some laws below a title."""
    table = columns()
    for law in laws:
        sentence = _one_line(law.statement.partition("\n\n")[0])
        table.add_row(law.law_id, Text(_class_of(law), "dim"), Text(sentence))
    out.print(Text(title, "bold cyan"))
    out.print(Padding(table, (0, 0, 1, 2)))


def _print_found(found: Found, *, as_json: bool) -> None:
    """Print what a search found."""
    if as_json:
        print_json(
            {
                "symptoms": [{"seen": each.seen, "laws": each.laws} for each in found.symptoms],
                "laws": [law.law_id for law in found.laws],
            }
        )
        return
    out = ReportConsole()
    for each in found.symptoms:
        _print_rows(out, each.seen, [LAWS[law_id] for law_id in each.laws])
    if found.laws:
        _print_rows(out, "Laws with these words", found.laws)
    if not (found.symptoms or found.laws):
        out.print("No symptom and no law has any of these words.")
        out.print(f"Try the words of your logs, or read all symptoms: {SITE}symptoms.html")
        return
    out.print(f"`kvcanon laws ID` prints a law whole; all symptoms: {SITE}symptoms.html")


def _print_page(law: Law) -> None:
    out = ReportConsole()
    out.print(Text(f"{law.law_id}  {law.name}", "bold cyan"))
    out.print(Padding(Text(_unwrap(law.statement)), (0, 0, 1, 2)))
    table = columns()
    table.add_row("Why", Text(_unwrap(law.why)))
    table.add_row("Seen broken", Text(_unwrap(law.seen_broken)))
    table.add_row("Needs", Text(", ".join(sorted(need.value for need in law.needs))))
    table.add_row("Class", Text(f"{_class_of(law)}: {members_in_words(LawClass)[law.law_class]}"))
    table.add_row("Kind", Text(f"{law.kind.value}, {law.level.value}"))
    table.add_row("Since", Text(history_of(law.law_id).words))
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
    lines = code_lines(calls_of(witness.case, REFERENCE))
    out.print(Padding(calls(lines, witness.case, None), (0, 0, 1, 2)))
    out.print(Padding(Text("The answers are those of the plain cache."), (0, 0, 0, 2)))


def _class_of(law: Law) -> str:
    """The class of a law, with its level where that is not the usual one."""
    return law.law_class.value + (", should" if law.level is Level.SHOULD else "")


def _area_title(law: Law) -> str:
    """The first line of the chapter that the law stands in."""
    chapter = sys.modules[law.check.__module__].__doc__ or law.area
    return chapter.splitlines()[0].rstrip(".")


def _unwrap(text: str) -> str:
    """Paragraphs, each on one line, so that the terminal wraps them."""
    return "\n\n".join(_one_line(paragraph) for paragraph in text.split("\n\n"))


def _one_line(text: str) -> str:
    return " ".join(text.split())
