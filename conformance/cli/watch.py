"""`kvcanon watch`: follows the KV events of running engines, and judges them live."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcanon.conformance.cli.files import require_files, require_no_file
from kvcanon.conformance.cli.live_options import (
    ClosedHostOption,
    HashChoice,
    HashesOption,
    IgnoreOption,
    ignored_laws,
    require_live,
)
from kvcanon.conformance.errors import UsageError

MOST_RANKS = 256


def watch_command(
    endpoints: Annotated[
        list[str], typer.Argument(help="Where publishers send, as tcp://127.0.0.1:5557.")
    ],
    *,
    replay: Annotated[
        list[str] | None,
        typer.Option(help="The replay endpoint of each publisher, in the same order."),
    ] = None,
    ranks: Annotated[
        int, typer.Option(min=1, max=MOST_RANKS, help="Data-parallel ranks of each endpoint.")
    ] = 1,
    topic: Annotated[str, typer.Option(help="Follow topics that begin so.")] = "",
    hashes: HashesOption = HashChoice.AUTO,
    closed_host: ClosedHostOption = False,
    ignore: IgnoreOption = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all frames, for `kvcanon audit`.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve Prometheus metrics here; 0 chooses a port."),
    ] = None,
    metrics_address: Annotated[
        str, typer.Option(help="The address that metrics are served on.")
    ] = "127.0.0.1",
    fail_on_violation: Annotated[
        bool, typer.Option("--fail-on-violation", help="End with 1 at the first broken law.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="End after so many seconds.")
    ] = None,
) -> int:
    """Follow the KV events of engines, and check the laws that they show by themselves.

    Shows a dashboard on a terminal, and otherwise a line for each violation. Ends by Ctrl-C.
    """
    require_live()
    if replay and len(replay) != len(endpoints):
        raise UsageError(
            f"{len(endpoints)} endpoints and {len(replay)} of --replay; give one for each, in order"
        )
    require_files({"--record": record})
    require_no_file(record)
    # The extra may be missing, and the command line works without it.
    from kvcanon.conformance.cli.watch_run import WatchOptions, run_watch  # noqa: PLC0415

    return run_watch(
        WatchOptions(
            endpoints=tuple(endpoints),
            replay=tuple(replay or ()),
            ranks=ranks,
            topic=topic,
            hashes=hashes.value,
            closed_host=closed_host,
            ignored=ignored_laws(ignore),
            record=record,
            metrics_port=metrics_port,
            metrics_address=metrics_address,
            fail_on_violation=fail_on_violation,
            seconds=seconds,
        )
    )
