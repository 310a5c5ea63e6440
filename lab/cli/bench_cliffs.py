"""`kvcanon lab bench cliffs`: plays sequences of calls that make single calls of a cache slow.

Each call has a limit: a millisecond, and two microseconds more for each page, victim, event or
transfer that it names. The size of the tree adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.cli.bench_options import JsonFile, write_figures

if TYPE_CHECKING:
    from kvcanon.lab.bench.gpu.stopwatch import CallTimes

NODES = (10_000,)
FULL_NODES = (10_000, 100_000, 1_000_000)


def bench_cliffs(
    *,
    nodes: Annotated[
        list[int] | None,
        typer.Option(
            min=100, metavar="N", help=f"Nodes of the tree; repeatable. Usual: {NODES[0]:,}."
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Trees of 10,000, 100,000 and 1,000,000 nodes; takes an hour."),
    ] = False,
    scene: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Play only this scene; repeatable."),
    ] = None,
    json_file: JsonFile = None,
) -> int:
    """Look for single calls of the fast cache that take longer than what they name."""
    try:
        # The extra `optimized` may be missing, and the other commands work without it.
        from kvcanon.lab.bench.gpu.cliffs import SCENES, run_scene  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"bench cliffs needs the optimized cache: {error}") from error
    sizes = nodes or (FULL_NODES if full else NODES)
    plan = [(size, name) for size in sizes for name in _chosen(tuple(SCENES), scene or ())]
    times: dict[int, list[CallTimes]] = {size: [] for size in sizes}
    with progress(plan, "bench cliffs") as shown:
        for size, name in shown:
            times[size].extend(run_scene(name, size))
            # Written after each scene, so that a run that is cut short keeps its times.
            write_figures(json_file, _json(times))
    _print(times)
    return 0 if all(each.holds for some in times.values() for each in some) else BROKEN


def _chosen(names: Sequence[str], asked: Sequence[str]) -> Sequence[str]:
    for name in asked:
        if name not in names:
            problem = f"{name} is no scene; choose from {', '.join(names)}."
            raise typer.BadParameter(problem, param_hint="'--scene'")
    return asked or names


def _json(times: Mapping[int, Sequence[CallTimes]]) -> dict[str, object]:
    sizes = {str(size): [each.to_json() for each in some] for size, some in times.items()}
    return {"nodes": sizes}


def _print(times: Mapping[int, Sequence[CallTimes]]) -> None:
    out = ReportConsole()
    for size, some in times.items():
        print_title(out, "bench cliffs", f"{size:,} nodes; times of single calls in us")
        table = figures_table("scene: call", "calls", "p50", "p99", "p99.9", "max", "limit")
        for each in some:
            figures = (each.p50_us, each.p99_us, each.p999_us, each.max_us)
            table.add_row(
                f"{each.scene}: {each.operation}",
                f"{each.calls:,}",
                *(f"{figure:,.1f}" for figure in figures),
                "kept" if each.holds else "BROKEN",
            )
        out.print(table)
        for each in some:
            if not each.holds:
                out.print(Text(_in_words(each), style="bold red"))
    out.print(
        "A call may take 1,000 us, and 2 us for each page, victim, event or transfer that it\n"
        "names; one in 10,000 may take 5,000 us, to let a table grow.",
        style="dim",
    )


def _in_words(times: CallTimes) -> str:
    return (
        f"{times.scene}: {times.over:,} of {times.calls:,} calls of {times.operation} are above "
        f"their limit; the worst took {times.worst_us:,.0f} us and named {times.worst_named:,}"
    )
