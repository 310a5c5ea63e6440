"""`kvcanon explore`: visits every state of a cache within a scope, and checks all laws there.

Exit code 0 means: no law is broken in the visited states. The last line says whether these are all
states of the scope.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import TimeElapsedColumn

from kvcanon.conformance.check.trial import adapter_as
from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import (
    AsJson,
    CacheName,
    Jobs,
    Markdown,
    Scripts,
    minutes_of,
    require_folder,
    write_file,
)
from kvcanon.conformance.cli.terminal import ReportConsole, print_json, print_parts, progress_bars
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore.exploration import (
    Exploration,
    ExplorationLimits,
    ExplorationSpec,
    as_guarded,
    explore,
)
from kvcanon.conformance.explore.offered_scopes import why_left_out
from kvcanon.conformance.explore.report import (
    finding_text,
    json_of,
    lacks_evidence,
    markdown_of,
    text_of,
    verdict_of,
)
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.scopes.naming import GROUPS, SCOPES, scopes_named
from kvcanon.conformance.judge import find_law
from kvcanon.conformance.report.failure_replay import replayed
from kvcanon.conformance.report.script import file_name
from kvcanon.run_record import with_run


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
    only: Annotated[
        str | None, typer.Option(metavar="ID,...", help="Check these laws only.")
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Go at most N moves from the start."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(parser=minutes_of, metavar="N", help="Stop each scope after N minutes."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Folder for the progress, a file for each scope; continues from existing files.",
        ),
    ] = None,
    jobs: Jobs = None,
    premises: Annotated[
        bool, typer.Option("--premises", help="Print how often each law was exercised.")
    ] = False,
    scripts: Scripts = None,
    markdown: Markdown = False,
    json: AsJson = False,
) -> None:
    """Visit every state of a cache within a scope, and check every law in each state and step."""
    chosen = scopes_named(scope)
    law_ids = tuple(find_law(each.strip()).law_id for each in only.split(",")) if only else ()
    require_folder(checkpoint)
    require_folder(scripts)
    found: list[Exploration] = []
    out, quiet = ReportConsole(), markdown or json
    offered, left_out = _offered(cache, chosen)
    for each in offered:
        limits = ExplorationLimits(
            levels,
            None if minutes is None else 60 * minutes,
            None if checkpoint is None else checkpoint / _file_name(cache, each),
        )
        with _level_bar(each) as show:
            spec = ExplorationSpec(cache, each, law_ids)
            found.append(explore(spec, jobs or os.cpu_count() or 1, limits, show))
        if not quiet:
            _print(out, found[-1], scripts, premises=premises)
    if markdown:
        typer.echo(markdown_of(found), nl=False)
    elif json:
        print_json(with_run({"explorations": [json_of(each) for each in found]}))
    else:
        out.print(verdict_of(found))
    for name, why in left_out.items():
        # What is no result goes to stderr where stdout is for a program.
        typer.echo(f"left out {name}: {why}", err=quiet)
    if any(each.finding is not None or lacks_evidence(each) for each in found):
        raise typer.Exit(BROKEN)


def _offered(cache: str, scopes: Sequence[Scope]) -> tuple[list[Scope], dict[str, str]]:
    """The scopes that a cache can be explored in, and why it cannot in the others.

    Raises: UsageError: there is none.
    """
    adapter = adapter_as(cache)
    reasons = {scope.name: why_left_out(adapter, scope) for scope in scopes}
    left_out = {name: why for name, why in reasons.items() if why is not None}
    if len(left_out) == len(scopes):
        name, why = next(iter(left_out.items()))
        others = f" ({len(scopes) - 1} others are left out, too)" if scopes[1:] else ""
        raise UsageError(f"{cache} cannot be explored in {name}: {why}{others}")
    return [scope for scope in scopes if scope.name not in left_out], left_out


def _file_name(cache: str, scope: Scope) -> str:
    """The file for the progress of a cache in a scope."""
    return f"{re.sub('[^A-Za-z0-9]+', '_', cache)}-{scope.name}.npz"


def _print(out: ReportConsole, found: Exploration, scripts: Path | None, *, premises: bool) -> None:
    for part in text_of(found, premises=premises):
        out.print(part, markup=False)
    if found.finding is None:
        return
    adapter = adapter_as(found.cache)
    guarded = as_guarded(found.finding, adapter, found.law_ids)
    finding = replayed(guarded, adapter, found.law_ids)
    file = None
    if scripts is not None:
        file = scripts / file_name(finding)
        write_file(file, finding.script)
    print_parts(out, finding_text(finding, None if file is None else str(file)))


@contextmanager
def _level_bar(scope: Scope) -> Iterator[Callable[[int, int, int], None]]:
    """Show a progress bar for the current level; none if stderr is no terminal."""
    with progress_bars(TimeElapsedColumn()) as bars:
        if bars is None:
            yield lambda *_: None
            return
        task = bars.add_task(scope.name)
        yield lambda level, done, of: bars.update(
            task, description=f"{scope.name}, level {level}", completed=done, total=of
        )
