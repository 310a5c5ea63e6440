"""`kvcanon show`: writes a run as an HTML page, the tree step by step."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from kvcanon.conformance.cli.options import require_files, write_file
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.show.inputs import run_of_file
from kvcanon.conformance.show.page import show_page


def show_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A report of check --json, a vector or its id, a script, or a recording of "
            "watch --record.",
        ),
    ],
    *,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The cache to play it on. Usual: that of the report; reference for a vector.",
        ),
    ] = None,
    failure: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Which failure of a report, as 2 or 2.1, or violation of a recording. Usual: the "
            "first.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.html", help="The page. Usual: FILE.show.html, in this folder."),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Also open the page in the browser.")
    ] = False,
) -> None:
    """Write a page that shows a failure, a vector or a stream step by step: tree, pools, locks."""
    page = output or Path(f"{Path(file).stem}.show.html")
    if page.exists() and Path(file).exists() and page.samefile(file):
        raise UsageError(f"--output {page} is the file to show; give another one")
    require_files({"--output": page})
    run = run_of_file(file, cache, failure)
    write_file(page, show_page(run))
    typer.echo(f"{page}: {run.title}, {run.in_short}")
    for note in run.notes:
        typer.echo(f"  {note}")
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        raise UsageError(f"no browser could be started; open {page} yourself")
