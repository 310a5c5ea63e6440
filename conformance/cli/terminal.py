"""Output of the commands: progress on stderr, JSON and tables on stdout."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import IO, Any, TypeVar, cast

import typer
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from kvcanon.printable import printable

Item = TypeVar("Item")

SILENT_SECONDS = 25.0
"""A command that takes longer says so on stderr."""
WIDTH = 100
"""Columns of a report in a pipe."""
_SPACES_AT_ENDS = re.compile(r" +$", re.MULTILINE)


@contextmanager
def progress_bars(clock: ProgressColumn) -> Iterator[Progress | None]:
    """Progress bars on stderr; None if stderr is no terminal."""
    stderr = Console(stderr=True)
    if not stderr.is_terminal:
        yield None
        return
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        clock,
    )
    with Progress(*columns, console=stderr, transient=True) as bars:
        yield bars


@contextmanager
def signs_of_life(
    every_seconds: float = SILENT_SECONDS,
) -> Iterator[Callable[[str, int, int | None], None]]:
    """Say on stderr how far a command is, now and then; yields what notes the progress."""
    words, over = ["begins"], Event()

    def note(stage: str, done: int, of: int | None) -> None:
        words[0] = f"{stage}: {done:,}" + ("" if of is None else f" of {of:,}")

    def speak() -> None:
        while not over.wait(every_seconds):
            typer.echo(f"kvcanon: {words[0]}, and goes on", err=True)

    thread = Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield note
    finally:
        over.set()
        thread.join()


@contextmanager
def progress(items: Sequence[Item], label: str) -> Iterator[Iterator[Item]]:
    """Iterate over items under a progress bar; off a terminal, with a line now and then."""
    with progress_bars(TimeRemainingColumn()) as bars:
        if bars is not None:
            yield iter(bars.track(items, description=label))
            return
        with signs_of_life() as note:
            yield _noted(items, label, note)


def _noted(
    items: Sequence[Item], label: str, note: Callable[[str, int, int | None], None]
) -> Iterator[Item]:
    for done, item in enumerate(items):
        note(label, done, len(items))
        yield item


class _Unpadded:
    """Writes to another stream without the spaces at the ends of lines, which fill up columns."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the stream has there.
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        """Write whole lines."""
        self._out.write(_SPACES_AT_ENDS.sub("", text))
        return len(text)


class ReportConsole(Console):
    """The console for reports; in a pipe it has a fixed width, and lines end with their text."""

    def __init__(self, width_in_pipe: int = WIDTH, file: IO[str] | None = None) -> None:
        super().__init__(highlight=False, file=file)
        if not self.is_terminal:
            self.width = width_in_pipe
            self.file = cast("IO[str]", _Unpadded(self.file))


def print_json(value: object) -> None:
    """Print a value as JSON, whose strings command no terminal and no workflow."""
    # All of it but this is in ASCII letters. It can stand in strings alone, which mean the same.
    typer.echo(json.dumps(value, indent=2).replace("##[", r"\u0023#["))


def print_title(out: Console, command: str, about: str) -> None:
    """Print the first line of a report: the command, and what it ran on."""
    out.print(Text.assemble((command, "bold cyan"), f"  {about}"))


def print_parts(out: Console, parts: Iterable[RenderableType]) -> None:
    """Print the parts of a report; plain strings are for copying, and are not wrapped.

    Nor is a text that says so: it stays one line in a pipe.
    """
    for part in parts:
        unwrapped = isinstance(part, str) or (isinstance(part, Text) and bool(part.no_wrap))
        out.print(part, soft_wrap=unwrapped, markup=False)


def print_lines(out: Console, lines: Iterable[str]) -> None:
    """Print lines that have text from outside: each stays one, and moves no cursor."""
    for line in lines:
        out.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def columns() -> Table:
    """Make a table without lines and headings; its first column names the rows."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    return table


def figures_table(first: str, *others: str) -> Table:
    """Make a table of figures: the first column names the rows, the others align right."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
