"""The options that several commands have, each declared once.

What readers get wrong: an option whose default is None is not off. Its usual value goes with the
workload, small for generated chat and large for a recorded trace, and its help says both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.cli.workload import CHAT_SIZES, TRACE_SIZES, PoolSize, pool_size

SIZE = "N|unlimited"


def usual(chat: object, trace: object) -> str:
    """The end of a help text: what is taken where the option is not given."""
    return f"Usual: {chat} for generated chat, {trace} for a trace."


CacheName: TypeAlias = Annotated[
    str, typer.Argument(metavar="CACHE", help="reference, or package.module:factory.")
]
Trace: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        readable=True,
        metavar="FILE",
        help="Recorded requests in Mooncake's JSONL format; without it they are generated.",
    ),
]
Conversations: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="How many conversations to generate.")
]
Seed: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N", help="Seed of the generated conversations, and of the guard's sample."
    ),
]
Limit: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Take the first so many requests only.")
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
    bool, typer.Option("--markdown", help="Print the tables of the docs, and nothing else.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Jobs: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Processes that work. Usual: one a core.")
]
Scripts: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Write the script of each failure there, and not into the report.",
    ),
]
