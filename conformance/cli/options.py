"""Options that several commands share, each declared once, and the files that options name.

The file of a report is found to be writable before anything is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.errors import UsageError


def minutes_of(text: str) -> float:
    """Parse a number of minutes above 0. Raises: BadParameter."""
    try:
        minutes = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number.") from None
    if not (isfinite(minutes) and minutes > 0):
        raise typer.BadParameter(f"{text} is no number of minutes; give one above 0.")
    return minutes


MOST_SEED = 2**64 - 1
MOST_JOBS = 1024

CacheName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="CACHE", help="reference, package.module:factory, or pipe:COMMAND."),
]
DrawSeed: TypeAlias = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, metavar="N", help="Seed of all random draws.")
]
Markdown: TypeAlias = Annotated[
    bool, typer.Option("--markdown", help="Print only the tables for the docs, as Markdown.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, max=MOST_JOBS, metavar="N", help="Worker processes. Usual: one for each core."
    ),
]
Scripts: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Write a script for each failure to this folder, instead of into the report.",
    ),
]


def require_files(files: Mapping[str, Path | None]) -> None:
    """Refuse files that cannot be written, by their options. Raises: UsageError.

    A file that is not there yet is made and removed again. That a disk is full shows only when the
    report is written.
    """
    named: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        if not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")
        place = path.resolve()
        if place in named:
            raise UsageError(
                f"{path} is given for {named[place]} and {option}; give a file for each"
            )
        named[place] = option
        try_to_open(path)


def try_to_open(path: Path) -> None:
    """Open a file for writing, and leave it as it is. Raises: UsageError."""
    is_new = not path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise _not_written(path, error) from error


def require_no_file(path: Path | None) -> None:
    """Refuse a file that has something in it, which writing would destroy. Raises: UsageError."""
    if path is not None and path.is_file() and path.stat().st_size:
        raise UsageError(f"{path} is there already; name another file, or remove it")


def require_folder(folder: Path | None) -> None:
    """Make a folder, and see that files can be made in it. Raises: UsageError."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _not_written(folder, error) from error


def write_file(path: Path, text: str) -> None:
    """Write a report; lone surrogates, which no file can hold, are escaped. Raises: UsageError."""
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written: {error.strerror or error}")
