"""`kvcanon lab bench store`: the disk tier beside a raw file and other ways to keep pages."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from attrs import asdict

from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.lab.bench.store_contestants import CONTESTANTS
from kvcanon.lab.bench.store_speed import (
    RestartTime,
    StoreRatio,
    StoreTime,
    measure_restart,
    measure_ways,
    ratios,
)
from kvcanon.lab.cli.bench_options import JsonFile, write_figures

PAGE_KIB = (256, 2048)
MOST_MEGABYTES = 512
"""More in one round, and a shared disk slows down."""


def bench_store(
    *,
    folder: Annotated[
        Path,
        typer.Option(file_okay=False, exists=True, metavar="DIR", help="A folder on the disk."),
    ] = Path(),
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Alternating rounds.")] = 5,
    megabytes: Annotated[
        int, typer.Option(min=1, max=MOST_MEGABYTES, metavar="N", help="What each way writes.")
    ] = 256,
    page_kib: Annotated[
        list[int] | None,
        typer.Option(min=4, metavar="N", help="KiB a page; repeatable. Usual: 256, 2048."),
    ] = None,
    restart: Annotated[
        int, typer.Option(min=0, metavar="N", help="Pages of the store that is restarted.")
    ] = 1_000_000,
    figures: JsonFile = None,
) -> None:
    """Measure writes and cold reads beside a raw file, and the restart of a large store."""
    times: list[StoreTime] = []
    sizes = page_kib or list(PAGE_KIB)
    with tempfile.TemporaryDirectory(prefix="kvcanon-bench-", dir=folder) as place:
        with progress(range(len(sizes) * rounds * len(CONTESTANTS)), "bench store") as shown:
            steps = iter(shown)
            for size in sizes:
                times += measure_ways(
                    Path(place), size << 10, megabytes << 20, rounds, lambda: next(steps, None)
                )
        restarted = measure_restart(Path(place) / "restart", restart) if restart else None
    compared = ratios(times)
    _print(compared, restarted, rounds, megabytes)
    write_figures(
        figures,
        {
            "times": [asdict(each) for each in times],
            "ratios": [asdict(each) for each in compared],
            "restart": asdict(restarted) if restarted is not None else None,
        },
    )


def _print(
    compared: Sequence[StoreRatio], restarted: RestartTime | None, rounds: int, megabytes: int
) -> None:
    out = ReportConsole()
    print_title(out, "bench store", f"{rounds} rounds of {megabytes} MiB; medians")
    for page_bytes in dict.fromkeys(each.page_bytes for each in compared):
        table = figures_table(
            f"{page_bytes >> 10} KiB",
            "write s/GB",
            "of raw",
            "read s/GB",
            "of raw",
            "write GB/s",
            "of raw",
            "read GB/s",
            "of raw",
        )
        for each in compared:
            if each.page_bytes == page_bytes:
                table.add_row(each.way, *_row(each))
        out.print(table)
    out.print("s/GB are processor seconds a gigabyte. Reads are cold.", style="dim")
    if restarted is not None:
        out.print(
            f"A store with {restarted.pages:,} pages opens in "
            f"{restarted.after_close_seconds:.1f} s ({restarted.after_close_cpu_seconds:.1f} of a "
            f"processor) after a close, in {restarted.after_kill_seconds:.1f} s "
            f"({restarted.after_kill_cpu_seconds:.1f}) after a kill, and takes "
            f"{restarted.memory_bytes / 1e6:,.0f} MB of memory."
        )


def _row(each: StoreRatio) -> list[str]:
    figures = (
        each.write_cpu,
        each.write_cpu_ratio,
        each.read_cpu,
        each.read_cpu_ratio,
        each.write_gb_s,
        each.write_speed_ratio,
        each.read_gb_s,
        each.read_speed_ratio,
    )
    return [f"{each:.2f}" for each in figures]
