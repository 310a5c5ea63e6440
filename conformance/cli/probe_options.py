"""The options of `kvcanon probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.probe.discovery import ApiName

Url: TypeAlias = Annotated[str, typer.Argument(help="The server, as http://127.0.0.1:30000.")]
Api: TypeAlias = Annotated[
    ApiName, typer.Option(help="The server's interface; auto asks the server.")
]
Model: TypeAlias = Annotated[
    str, typer.Option(help="The model to ask, if an OpenAI interface lists several.")
]
ApiKey: TypeAlias = Annotated[
    str, typer.Option(envvar="KVCANON_API_KEY", help="The key that the server asks for.")
]
Events: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Its KV events, as tcp://127.0.0.1:5557: compared with its answers."),
]
Replay: TypeAlias = Annotated[
    str | None, typer.Option(help="With --events: the replay endpoint of the publisher.")
]
Seed: TypeAlias = Annotated[int, typer.Option(help="The seed of all prompts.")]
Seconds: TypeAlias = Annotated[
    float, typer.Option(min=1, help="No request begins after so many seconds.")
]
Requests: TypeAlias = Annotated[int, typer.Option(min=1, help="The most requests.")]
Only: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME,...", help="Play these rounds only, and repeats.")
]
Flush: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--flush",
        help="Where a server takes no salts, empty its cache before prompts: never while others "
        "use it.",
    ),
]
Window: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, help="Tokens of the sliding window; 0 if no layer has one or a state."),
]
PageTokens: TypeAlias = Annotated[
    int | None, typer.Option("--page", min=1, help="Tokens of a page, or block.")
]
PoolTokens: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Tokens that fit into the cache on the device.")
]
HostTier: TypeAlias = Annotated[
    bool | None,
    typer.Option("--host-tier/--no-host-tier", help="Whether prompts are also kept elsewhere."),
]
Margin: TypeAlias = Annotated[
    float, typer.Option(min=0, help="The most that rounding changes a log-probability.")
]
Vocabulary: TypeAlias = Annotated[
    int, typer.Option(min=16, help="Prompts are drawn of token ids below this.")
]
Timeout: TypeAlias = Annotated[
    float, typer.Option(min=0.1, max=86_400, help="Seconds for one answer.")
]
ScriptFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the requests that show the first finding."),
]
RecordFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --events: write them, for `kvcanon audit`."),
]
LogFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write prompts and cached tokens, for `kvcanon audit --served`."
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
