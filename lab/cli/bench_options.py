"""Options that several benches have, and the file of figures that they write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.cli.terminal import print_json
from kvcanon.run_record import with_run

PAGE_SIZES = (1, 16, 64)

CacheName: TypeAlias = Annotated[
    str, typer.Argument(metavar="[CACHE]", help="reference, or package.module:factory.")
]
PageSizes: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Tokens a page; repeatable. Usual: {', '.join(map(str, PAGE_SIZES))}.",
    ),
]
Events: TypeAlias = Annotated[
    bool | None, typer.Option(help="Measure only with events, or only without.")
]
JsonFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--json", dir_okay=False, metavar="FILE", help="Write all figures, as JSON."),
]


def write_figures(file: Path | None, value: Mapping[str, object]) -> None:
    """Write figures, and what they were measured with, to the file of `--json` if it is given."""
    if file is not None:
        file.write_text(json.dumps(with_run(value), indent=2) + "\n", encoding="utf-8")


def print_figures(value: Mapping[str, object]) -> None:
    """Print figures, and what they were measured with, as JSON."""
    print_json(with_run(value))
