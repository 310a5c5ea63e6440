"""`kvcanon lab peers`: environments in which the caches of other engines are measured and judged.

`make` and `list` manage the environments; `table` looks in them for past bugs of the engines.

Nothing is installed into the environment of kvcanon. Each release gets a folder of its own, which
you can delete.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape

from kvcanon.conformance.cli.command_line import BROKEN, OnceCommand
from kvcanon.conformance.cli.options import AsJson, DrawSeed
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    columns,
    print_json,
    print_parts,
    progress,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.cli.peers_report import table_json, table_text
from kvcanon.lab.releases.catalogue import RELEASES, STAND_INS, Release, release_named
from kvcanon.lab.releases.environment import (
    Run,
    commands,
    make,
    peers_in,
    run_command,
    usual_folder,
)
from kvcanon.lab.releases.past_bugs import PAST_BUGS
from kvcanon.lab.releases.table import HuntEffort, cell_of

peers = typer.Typer(help="Environments for the caches of other engines.", no_args_is_help=True)

PeersFolder: TypeAlias = Annotated[
    Path,
    typer.Option(
        file_okay=False,
        metavar="DIR",
        envvar="KVCANON_PEERS",
        show_default=False,
        default_factory=usual_folder,
        help="Folder of the environments, with a subfolder for each release. "
        "Usual: kvcanon/peers in the user's cache folder.",
    ),
]


@peers.callback()
def _group() -> None:
    """Environments for the caches of other engines."""


@peers.command("list", cls=OnceCommand)
def list_command(*, into: PeersFolder) -> None:
    """List the releases, and which of them have an environment."""
    there = peers_in(into)
    table = columns()
    for name in RELEASES:
        table.add_row(name, escape(str(there[name].folder)) if name in there else "-")
    ReportConsole().print(table)


@peers.command("make", cls=OnceCommand)
def make_command(
    release: Annotated[
        str, typer.Argument(metavar="RELEASE", help=f"One of {', '.join(RELEASES)}.")
    ],
    *,
    into: PeersFolder,
    source: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            exists=True,
            metavar="DIR",
            help="Folder with the project's source, for a project that no package index has.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, and do not run them.")
    ] = False,
) -> None:
    """Make the environment of a release: a few minutes, and about two gigabytes."""
    wanted = release_named(release)
    if dry_run:
        for command in commands(wanted, into / wanted.folder):
            typer.echo(shlex.join(command))
    else:
        with _shown() as run:
            made = make(wanted, into, run, source)
        typer.echo(f"{release} is in {made.folder}.")
        if made.copied:
            typer.echo(f"Its cache is a copy: {made.copied}.")
    _print_stand_ins(wanted)


@contextmanager
def _shown() -> Iterator[Run]:
    """Run commands; a terminal shows the one that is running."""
    with Console(stderr=True).status("") as status:

        def run(command: Sequence[str], variables: Mapping[str, str]) -> None:
            status.update(escape(shlex.join(command)))
            run_command(command, variables)

        yield run


def _print_stand_ins(release: Release) -> None:
    if release.stand_ins:
        typer.echo("Stand-ins, for modules that need a GPU:")
    for name in release.stand_ins:
        typer.echo(f"  {name}: {STAND_INS[name].what}")


@peers.command("table", cls=OnceCommand)
def table_command(
    *,
    into: PeersFolder,
    seed: DrawSeed = 0,
    cases: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most cases for each release of a row.")
    ] = 300,
    seconds: Annotated[
        float,
        typer.Option(
            min=0, metavar="N", help="After so many seconds for a release, no new case starts."
        ),
    ] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Look for past bugs, in the release before the fix and in the release with the fix."""
    there = peers_in(into)
    if not any(release in there for row in PAST_BUGS for release in row.releases):
        needed = dict.fromkeys(release for row in PAST_BUGS for release in row.releases)
        raise UsageError(
            f"{into} has no environment of {', '.join(needed)}; "
            "`kvcanon lab peers make RELEASE` makes one"
        )
    hunts = [(row, release) for row in PAST_BUGS for release in row.releases]
    effort = HuntEffort(seed, cases, seconds)
    with progress(hunts, "releases") as each:
        cells = [cell_of(row, release, there, effort) for row, release in each]
    if as_json:
        print_json(table_json(cells, effort))
    else:
        print_parts(ReportConsole(), table_text(cells, effort))
    if not all(cell.is_as_expected for cell in cells):
        raise typer.Exit(BROKEN)
