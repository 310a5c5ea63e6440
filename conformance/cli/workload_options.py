"""Options of commands that replay requests: which requests, and how large the pools are.

An option whose default is None has a usual value that depends on the workload: small for generated
chat, large for a recorded trace. Its help gives both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.cli.options import MOST_SEED
from kvcanon.conformance.replay.workload import CHAT_SIZES, TRACE_SIZES, PoolSize, pool_size
from kvcanon.conformance.replay.workloads.block_rows import Turns

SIZE = "N|unlimited"


def usual(chat: object, trace: object) -> str:
    """The end of a help text: the values if the option is not given."""
    return f"Usual: {chat} for generated chat, {trace} for a trace."


Trace: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        readable=True,
        metavar="FILE",
        help="Recorded requests, also packed by gzip or zstd; without it, they are generated. "
        "docs/replay.md has the forms that are read.",
    ),
]
BlockTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="With --trace: tokens an id of a row. Usual: what fits all rows."
    ),
]
TokenizerName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="NAME",
        help="With a --trace of text: words, a tokenizer.json, or a model of transformers.",
    ),
]
TurnsOption: TypeAlias = Annotated[
    Turns,
    typer.Option(
        help="With a --trace of sessions: whether each turn is the whole prompt, or adds to it."
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
