"""`kvcanon check-store`: judges a store of pages by the laws of stores.

Exit code 0: no sound and no serving law is broken. 1: one is, or too little was exercised. 2: the
call or the adapter is wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import DrawSeed, require_files, require_folder, write_file
from kvcanon.conformance.cli.terminal import ReportConsole, print_parts, signs_of_life
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.json_report import json_text
from kvcanon.conformance.stores.check import STORE_EFFORTS, StoreVerdict, check_store
from kvcanon.conformance.stores.names import STORES, load_store
from kvcanon.conformance.stores.report import (
    store_report_json,
    store_report_text,
    store_verdict_line,
)

StoreName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="STORE", help=f"{', '.join(STORES)}, or package.module:ADAPTER."),
]
StoreEffort: TypeAlias = Annotated[
    str, typer.Option(metavar="|".join(STORE_EFFORTS), help="How many cases are played.")
]
OnlyLaws: TypeAlias = Annotated[
    str | None, typer.Option(metavar="ID,...", help="Report these laws only, as STORE-1,STORE-5.")
]
StoreJson: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="Also write the report to this file."),
]
StoreFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Where the store has its files, in a new folder. Usual: in memory, if it can be.",
    ),
]
QuietStore: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the last line: the verdict.")
]


def check_store_command(
    store: StoreName,
    *,
    effort: StoreEffort = "quick",
    seed: DrawSeed = 0,
    only: OnlyLaws = None,
    json: StoreJson = None,
    folder: StoreFolder = None,
    quiet: QuietStore = False,
) -> None:
    """Judge a store of pages by the laws of stores; report what is broken or not exercised.

    Exit codes: 0, no law is broken but of policy; 1, a law is broken, or too little came up;
    2, the call or the adapter is wrong.
    """
    require_files({"--json": json})
    require_folder(folder)
    if effort not in STORE_EFFORTS:
        raise UsageError(f"no effort {effort!r}; name {', '.join(STORE_EFFORTS)}")
    if not sys.platform.startswith("linux"):
        raise UsageError("check-store copies and stops processes as Linux does; run it there")
    laws = None if only is None else [each.strip() for each in only.split(",") if each.strip()]
    if laws == []:
        raise UsageError("--only names no law; give law ids, separated by commas")
    adapter = load_store(store)
    with signs_of_life() as note:
        report = check_store(
            adapter,
            effort,
            seed,
            only=laws,
            progress=lambda done, of: note(f"cases of {adapter.name}", done, of),
            folder=folder,
        )
    parts = [store_verdict_line(report)] if quiet else store_report_text(report)
    print_parts(ReportConsole(), parts)
    if json is not None:
        write_file(json, json_text(store_report_json(report)))
        typer.echo(f"Wrote {json.resolve()}", err=True)
    if report.verdict in {StoreVerdict.BROKEN, StoreVerdict.NOT_JUDGED}:
        raise typer.Exit(BROKEN)
