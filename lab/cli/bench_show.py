"""`kvcanon lab bench show`: how long a page of `kvcanon show` takes to open and to step through."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from attrs import asdict

from kvcanon.conformance.cli.options import AsJson
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.show.page import show_page
from kvcanon.lab.bench.browser import find_browser
from kvcanon.lab.bench.large_run import LargeRun
from kvcanon.lab.bench.page_speed import PageSpeed, measure_page
from kvcanon.lab.cli.bench_options import print_figures


def bench_show(
    page: Annotated[
        Path | None,
        typer.Argument(metavar="[PAGE.html]", help="A page. Usual: a made run, see the options."),
    ] = None,
    *,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps of a made run.")] = 10_000,
    nodes: Annotated[int, typer.Option(min=2, metavar="N", help="Nodes of its tree.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Measure a page with a run in a headless browser: opening it, stepping, jumping."""
    find_browser()  # Before a large run is made in vain.
    if page is not None:
        if not page.is_file():
            raise UsageError(f"there is no page {page}; make one with `kvcanon show`")
        measured = measure_page(page)
    else:
        with TemporaryDirectory() as folder:
            made = Path(folder) / "page.html"
            made.write_text(show_page(LargeRun(nodes).record(steps)), encoding="utf-8")
            measured = measure_page(made)
    if as_json:
        print_figures(asdict(measured))
    else:
        _print(measured)


def _print(measured: PageSpeed) -> None:
    out = ReportConsole()
    about = (
        f"{measured.steps:,} steps, {measured.nodes:,} nodes, "
        f"{measured.page_bytes / 1e6:.1f} MB, {measured.browser}"
    )
    print_title(out, "bench show", about)
    table = figures_table("", "times", "median ms", "p99 ms", "max ms")
    for name, times in (
        ("open", measured.opened),
        ("step forward", measured.forward),
        ("step back", measured.back),
        ("jump", measured.jump),
    ):
        table.add_row(name, str(len(times)), *_row(times))
    out.print(table)
    out.print("Each time ends with the frame that shows the step.", style="dim")


def _row(times: Sequence[float]) -> list[str]:
    ordered = sorted(times)
    rank = max(0, -(-len(ordered) * 99 // 100) - 1)
    return [f"{each:,.1f}" for each in (median(ordered), ordered[rank], ordered[-1])]
