"""`kvcanon lab faults`: kills and damages the disk tier, thousands of times, and counts."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, DrawSeed
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_json, progress
from kvcanon.lab.stores.disk_trials import KILL, DiskTrials

SHOWN = 10
"""Findings that are printed."""


def faults_command(
    *,
    trials: Annotated[
        int, typer.Option(min=0, metavar="N", help="How often the files are damaged.")
    ] = 10_000,
    kills: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many processes are killed.")
    ] = 300,
    seed: DrawSeed = 0,
    folder: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            exists=True,
            metavar="DIR",
            help="Where the files are. Usual: /dev/shm.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Kill and damage the disk tier: no wrong byte, no refusal, no acknowledged page lost."""
    logging.getLogger("kvcanon.disk").setLevel(logging.CRITICAL)
    place = folder or Path("/dev/shm")  # noqa: S108  # A new folder in it.
    with tempfile.TemporaryDirectory(prefix="kvcanon-faults-", dir=place) as root:
        done = DiskTrials(Path(root) / "disk", seed)
        every = max(1, (trials + kills) // max(1, kills))
        with progress(range(trials + kills), "faults") as numbers:
            for number in numbers:
                if kills and number % every == every - 1 and done.trials[KILL] < kills:
                    done.kill()
                else:
                    done.damage()
    if as_json:
        print_json(
            {
                "seed": seed,
                "trials": dict(done.trials),
                "found": done.found,
                "spoiled": done.spoiled,
                "wrong": done.wrong,
            }
        )
    else:
        _print(done)
    if done.wrong:
        raise typer.Exit(BROKEN)


def _print(done: DiskTrials) -> None:
    out = ReportConsole()
    table = figures_table("what was done", "times")
    for words, count in done.trials.most_common():
        table.add_row(words, f"{count:,}")
    out.print(table)
    for words in done.wrong[:SHOWN]:
        out.print(words)
    out.print(
        f"{sum(done.trials.values()):,} trials: {done.found:,} pages were read whole, "
        f"{done.spoiled:,} were spoiled by the damage, and {len(done.wrong):,} things were wrong."
    )
