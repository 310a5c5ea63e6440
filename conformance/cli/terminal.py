"""What goes to the terminal: progress on stderr, JSON and tables on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Item = TypeVar("Item")

WIDTH = 100


@contextmanager
def progress(items: Sequence[Item], what: str) -> Iterator[Iterator[Item]]:
    """The items one by one, with a bar that says how many were taken; silent off a terminal."""
    stderr = Console(stderr=True)
    if not stderr.is_terminal:
        yield iter(items)
        return
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as shown:
        yield iter(shown.track(items, description=what))


class ReportConsole(Console):
    """Where reports go; off a terminal nobody knows the width, and tables get what they need."""

    def __init__(self) -> None:
        super().__init__(highlight=False)
        if not self.is_terminal:
            self.width = WIDTH


def print_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2))


def columns() -> Table:
    """A table without lines, whose first column is what its rows are called by."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    return table
