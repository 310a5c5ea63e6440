"""`kvcanon explore`: every state of a cache within a scope, and every law on every step.

What readers get wrong: exit code 0 says that nothing is broken in what was visited. Whether that is
all there is, the last line says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvcanon.conformance.cli.check import BROKEN
from kvcanon.conformance.cli.options import AsJson, CacheName, Jobs, Markdown, Scripts
from kvcanon.conformance.cli.terminal import ReportConsole, print_json
from kvcanon.conformance.report.law_lookup import find_law
from kvcanon.conformance.report.script import file_name
from kvcanon.conformance.search.campaign import adapter_as
from kvcanon.conformance.verify.explore.exploration import (
    Exploration,
    ExplorationLimits,
    ExplorationSpec,
    explore,
)
from kvcanon.conformance.verify.explore.failure_case import failure_of, retold
from kvcanon.conformance.verify.explore.report import (
    failure_text,
    json_of,
    lacks_evidence,
    markdown_of,
    text_of,
    verdict_of,
)
from kvcanon.conformance.verify.explore.scope import Scope
from kvcanon.conformance.verify.explore.scopes.naming import GROUPS, SCOPES, scopes_named


def explore_command(
    cache: CacheName = "reference",
    *,
    scope: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help=f"What to explore: {', '.join(GROUPS)}, or some of {', '.join(SCOPES)}.",
        ),
    ] = "small",
    only: Annotated[str | None, typer.Option(metavar="ID,...", help="Ask these laws only.")] = None,
    levels: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Go no further than so many moves from the start."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="Stop each scope after so long.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Where progress is kept, a file a scope; go on from what is there.",
        ),
    ] = None,
    jobs: Jobs = None,
    premises: Annotated[
        bool, typer.Option("--premises", help="Say of each law how often it was exercised.")
    ] = False,
    scripts: Scripts = None,
    markdown: Markdown = False,
    json: AsJson = False,
) -> None:
    """Visit every state of a cache within a scope, and ask every law of every state and step."""
    chosen = scopes_named(scope)
    law_ids = tuple(find_law(each.strip()).law_id for each in only.split(",")) if only else ()
    if checkpoint is not None:
        checkpoint.mkdir(parents=True, exist_ok=True)
    found: list[Exploration] = []
    out, quiet = ReportConsole(), markdown or json
    for each in chosen:
        limits = ExplorationLimits(
            levels,
            None if minutes is None else 60 * minutes,
            None if checkpoint is None else checkpoint / _file_name(cache, each),
        )
        with _shown(each) as tell:
            asked = ExplorationSpec(cache, each, law_ids)
            found.append(explore(asked, jobs or os.cpu_count() or 1, limits, tell))
        if not quiet:
            _print(out, found[-1], scripts, premises=premises)
    if markdown:
        typer.echo(markdown_of(found), nl=False)
    elif json:
        print_json([json_of(each) for each in found])
    else:
        out.print(verdict_of(found))
    if any(each.broken is not None or lacks_evidence(each) for each in found):
        raise typer.Exit(BROKEN)


def _file_name(cache: str, scope: Scope) -> str:
    """Where the progress of a cache in a scope is kept."""
    return f"{re.sub('[^A-Za-z0-9]+', '_', cache)}-{scope.name}.npz"


def _print(out: ReportConsole, found: Exploration, scripts: Path | None, *, premises: bool) -> None:
    for part in text_of(found, premises=premises):
        out.print(part, markup=False)
    if found.broken is None:
        return
    adapter = adapter_as(found.cache)
    failure = failure_of(adapter, found.scope, found.broken, found.law_ids)
    told = retold(adapter, failure, found.law_ids)
    file = None
    if scripts is not None:
        scripts.mkdir(parents=True, exist_ok=True)
        file = scripts / file_name(found.cache, told.failure.finding)
        file.write_text(told.script, encoding="utf-8")
    for part in failure_text(told, None if file is None else str(file)):
        out.print(part, soft_wrap=isinstance(part, str), markup=False)


@contextmanager
def _shown(scope: Scope) -> Iterator[Callable[[int, int, int], None]]:
    """Progress on a terminal, a bar for the level that is gone through; silent off it."""
    stderr = Console(stderr=True)
    if not stderr.is_terminal:
        yield lambda *_: None
        return
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bars:
        task = bars.add_task(scope.name)
        yield lambda level, done, of: bars.update(
            task, description=f"{scope.name}, level {level}", completed=done, total=of
        )
