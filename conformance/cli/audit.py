"""`kvcanon audit`: judges a recording of KV events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcanon.conformance.cli.live_options import (
    ClosedHostOption,
    HashChoice,
    HashesOption,
    IgnoreOption,
    ignored_laws,
    require_live,
)
from kvcanon.conformance.errors import UsageError


def audit_command(
    recording: Annotated[Path, typer.Argument(help="A file of `kvcanon watch --record`.")],
    *,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with a recording of the same requests."),
    ] = None,
    source: Annotated[
        int, typer.Option(min=0, help="With --against or --served: the publisher in the recording.")
    ] = 0,
    against_source: Annotated[
        int | None,
        typer.Option(min=0, help="The publisher in the other file, if not the same number."),
    ] = None,
    served: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG",
            help="Compare with what the engine served: a log of prompts and cached tokens, as of "
            "`kvcanon probe --log`.",
        ),
    ] = None,
    windowed: Annotated[
        bool,
        typer.Option(
            "--windowed", help="With --served: a sliding window can make less usable than is there."
        ),
    ] = False,
    hashes: HashesOption = HashChoice.AUTO,
    closed_host: ClosedHostOption = False,
    ignore: IgnoreOption = None,
    excerpts: Annotated[
        int, typer.Option(min=0, help="Kinds of violations that are shown by an excerpt.")
    ] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Check the laws that a recorded stream shows by itself, and print what shows each violation.

    Ends with 0 if no law is broken, and with 1 if one is, or if the streams differ.
    """
    require_live()
    if windowed and served is None:
        raise UsageError("--windowed says how a log is compared; give the log by --served")
    if served is not None and against is not None:
        raise UsageError("--served and --against are two comparisons; give one of them")
    # The extra may be missing, and the command line works without it.
    from kvcanon.conformance.cli.audit_run import AuditOptions, run_audit  # noqa: PLC0415

    return run_audit(
        AuditOptions(
            recording=recording,
            against=against,
            served=served,
            windowed=windowed,
            sources=(source, source if against_source is None else against_source),
            hashes=hashes.value,
            closed_host=closed_host,
            ignored=ignored_laws(ignore),
            excerpts=excerpts,
            as_json=as_json,
        )
    )
