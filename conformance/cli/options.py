"""Options that several commands share, each declared once."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


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
