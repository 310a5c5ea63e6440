"""Options that several commands share, each declared once.

An option whose default is None has a usual value that depends on the workload: small for generated
chat, large for a recorded trace. Its help gives both.
"""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.replay.workload import CHAT_SIZES, TRACE_SIZES, PoolSize, pool_size

SIZE = "N|unlimited"


def usual(chat: object, trace: object) -> str:
    """The end of a help text: the values if the option is not given."""
    return f"Usual: {chat} for generated chat, {trace} for a trace."


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
Trace: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        readable=True,
        metavar="FILE",
        help="Recorded requests in Mooncake's JSONL format; without it, requests are generated.",
    ),
]
Conversations: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="How many conversations to generate.")
]
Seed: TypeAlias = Annotated[
    int,
    typer.Option(
        min=0,
        max=MOST_SEED,
        metavar="N",
        help="Seed of the generated conversations, and of the guard's sample.",
    ),
]
DrawSeed: TypeAlias = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, metavar="N", help="Seed of all random draws.")
]
Limit: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Use only the first N requests.")
]
PoolTokens: TypeAlias = Annotated[
    PoolSize | None,
    typer.Option(
        parser=pool_size,
        metavar=SIZE,
        help=f"Device pool, in tokens. {usual(CHAT_SIZES.pool, TRACE_SIZES.pool)}",
    ),
]
SwaTokens: TypeAlias = Annotated[
    PoolSize | None,
    typer.Option(
        parser=pool_size,
        metavar=SIZE,
        help="Device pool of window data. Usual: a quarter of --pool-tokens.",
    ),
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
