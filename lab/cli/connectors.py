"""`kvcanon lab connectors`: plays drawn runs of an engine of ours around a KV connector of vLLM.

With `--faults` it plays them around connectors with planted faults, each of which must be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, DrawSeed
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    figures_table,
    print_json,
    print_title,
    progress,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.connectors.contestants import CONNECTORS
from kvcanon.lab.connectors.drawn_run import RunOutcome, draw_run, play_run
from kvcanon.lab.connectors.planted_connectors import CONNECTOR_FAULTS, find_fault


def connectors_command(
    connector: Annotated[
        str, typer.Argument(metavar="|".join(CONNECTORS), help="The connector to play.")
    ] = "plain",
    *,
    seed: DrawSeed = 0,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="How many runs to draw.")] = 30,
    requests: Annotated[int, typer.Option(min=1, metavar="N", help="Requests of each run.")] = 150,
    faults: Annotated[
        bool, typer.Option("--faults", help="Find the planted faults of the plain connector.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge a KV connector of vLLM by runs of an engine that sees every wrong byte."""
    if faults:
        _find_faults(seed, as_json=as_json)
        return
    if connector not in CONNECTORS:
        raise UsageError(f"no connector {connector!r}; name {', '.join(CONNECTORS)}")
    chosen = CONNECTORS[connector]
    outcomes = []
    with progress(range(seed, seed + runs), connector) as seeds:
        for each in seeds:
            run = chosen.fitted(draw_run(each, requests))
            outcomes.append(play_run(run, chosen.make))
            if outcomes[-1].fault is not None:
                break
    if as_json:
        print_json([_row(each) for each in outcomes])
    else:
        _print(connector, outcomes)
    if outcomes[-1].fault is not None:
        raise typer.Exit(BROKEN)


def _print(connector: str, outcomes: Sequence[RunOutcome]) -> None:
    out = ReportConsole()
    first = outcomes[0].run.seed
    print_title(out, f"connectors {connector}", f"{len(outcomes)} runs, first seed {first}")
    names = tuple(_counts(outcomes[0]))
    table = figures_table(*(name.replace("_", " ") for name in names))
    rows = [_counts(each) for each in outcomes]
    table.add_row(*(f"{sum(row[name] for row in rows):,}" for name in names))
    out.print(table)
    hangs = sum(outcome.engine_hangs for outcome in outcomes)
    if hangs:
        out.print(f"Hangs of the engine itself, with no load under way: {hangs}.")
    last = outcomes[-1]
    if last.fault is None:
        out.print(f"No fault was found in {len(outcomes)} runs.")
        return
    out.print(f"{last.fault.name}, seed {last.run.seed}, step {last.steps}: {last.words}")


def _find_faults(seed: int, *, as_json: bool) -> None:
    found = []
    with progress(list(CONNECTOR_FAULTS.values()), "faults") as faults:
        for fault in faults:
            outcome = find_fault(fault, seed)
            kind = "" if outcome is None or outcome.fault is None else outcome.fault.name
            runs = 0 if outcome is None else outcome.run.seed - seed + 1
            found.append({"fault": fault.name, "what": fault.what, "found": kind, "runs": runs})
    missed = sum(not each["found"] for each in found)
    if as_json:
        print_json(found)
    else:
        out = ReportConsole()
        table = figures_table("found in run")
        table.add_column("as")
        table.add_column("fault")
        for each in found:
            number = str(each["runs"]) if each["found"] else "not found"
            table.add_row(number, str(each["found"]), str(each["what"]))
        out.print(table)
        out.print(f"{len(found) - missed} of {len(found)} faults were found, seed {seed}.")
    if missed:
        raise typer.Exit(BROKEN)


def _counts(outcome: RunOutcome) -> dict[str, int]:
    return {
        "requests": outcome.requests,
        "restarts": outcome.restarts,
        "steps": outcome.steps,
        "local_tokens": outcome.local_tokens,
        "loaded_tokens": outcome.external_tokens,
        "preemptions": outcome.preemptions,
        "failed_loads": outcome.failed_loads,
        "events": outcome.events,
    }


def _row(outcome: RunOutcome) -> dict[str, object]:
    fault = outcome.fault
    return {
        "seed": outcome.run.seed,
        "fault": fault.name if fault else None,
        "words": outcome.words,
        **_counts(outcome),
        "engine_hangs": outcome.engine_hangs,
    }
