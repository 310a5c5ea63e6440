"""The options of `watch` alone; `live_options` has those that `audit` shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

MOST_RANKS = 256

EndpointsArgument: TypeAlias = Annotated[
    list[str] | None, typer.Argument(help="Where publishers send, as tcp://127.0.0.1:5557.")
]
ReplayOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="The replay endpoint of each publisher, in the same order."),
]
RanksOption: TypeAlias = Annotated[
    int, typer.Option(min=1, max=MOST_RANKS, help="Data-parallel ranks of each endpoint.")
]
BindOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ENDPOINT",
        help="Bind this address; publishers connect to it, and are told apart by their topics.",
    ),
]
DiscoverOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE",
        help="Follow who is found there: a file of endpoints, or dns://NAME:PORT or dns://NAME:PORT/REPLAY_PORT.",
    ),
]
EveryOption: TypeAlias = Annotated[
    float, typer.Option(min=0.5, metavar="SECONDS", help="How often that place is read again.")
]
TopicOption: TypeAlias = Annotated[str, typer.Option(help="Follow topics that begin so.")]
RecordOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write all frames, tokens masked, for `kvcanon audit`."),
]
RecordMegabytesOption: TypeAlias = Annotated[
    int, typer.Option(min=2, help="What a recording takes; at half of it FILE.1 is begun anew.")
]
KeepTokensOption: TypeAlias = Annotated[
    bool, typer.Option("--keep-tokens", help="Record tokens and salts of prompts as they are.")
]
MetricsPortOption: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Serve /metrics and /healthz here; 0 chooses a port."),
]
MetricsAddressOption: TypeAlias = Annotated[
    str, typer.Option(help="The address that metrics are served on.")
]
SilentAfterOption: TypeAlias = Annotated[
    float,
    typer.Option(min=1, metavar="SECONDS", help="When a publisher is shown as silent."),
]
JsonLinesOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print a line of JSON for each violation and change.")
]
FailOnViolationOption: TypeAlias = Annotated[
    bool, typer.Option("--fail-on-violation", help="End with 1 at the first broken law.")
]
SecondsOption: TypeAlias = Annotated[
    float | None, typer.Option(min=0.1, help="End after so many seconds.")
]
