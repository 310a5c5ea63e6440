"""`kvcanon lab bench store`: the disk and the external tier beside raw ways to keep pages."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from attrs import asdict

from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.lab.bench.external_contestants import mooncake_ways, redis_ways
from kvcanon.lab.bench.store_contestants import CONTESTANTS, MakeKeeper
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


class StoreKind(StrEnum):
    """Where pages are kept."""

    DISK = "disk"
    REDIS = "redis"
    MOONCAKE = "mooncake"


def bench_store(
    *,
    folder: Annotated[
        Path,
        typer.Option(file_okay=False, exists=True, metavar="DIR", help="A folder on the disk."),
    ] = Path(),
    stores: Annotated[
        list[StoreKind] | None,
        typer.Option(
            "--store",
            help="Repeatable; usual: disk. The others start a server on this machine.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Alternating rounds.")] = 5,
    megabytes: Annotated[
        int, typer.Option(min=1, max=MOST_MEGABYTES, metavar="N", help="What each way writes.")
    ] = 256,
    page_kib: Annotated[
        list[int] | None,
        typer.Option(min=4, metavar="N", help="KiB a page; repeatable. Usual: 256, 2048."),
    ] = None,
    restart: Annotated[
        int, typer.Option(min=0, metavar="N", help="Pages of the disk that is restarted.")
    ] = 1_000_000,
    figures: JsonFile = None,
) -> None:
    """Measure writes and reads beside a raw file or client, and the restart of a large disk."""
    kinds = stores or [StoreKind.DISK]
    times: list[StoreTime] = []
    compared: list[StoreRatio] = []
    restarted = None
    with tempfile.TemporaryDirectory(prefix="kvcanon-bench-", dir=folder) as place:
        for kind in dict.fromkeys(kinds):
            with WAYS[kind]() as ways:
                found = _measured(ways, Path(place), page_kib or PAGE_KIB, megabytes << 20, rounds)
            times += found
            compared += ratios(found, next(iter(ways)))
        if restart and StoreKind.DISK in kinds:
            restarted = measure_restart(Path(place) / "restart", restart)
    _print(compared, restarted, rounds, megabytes)
    write_figures(
        figures,
        {
            "times": [asdict(each) for each in times],
            "ratios": [asdict(each) for each in compared],
            "restart": asdict(restarted) if restarted is not None else None,
        },
    )


WAYS: dict[StoreKind, Callable[[], AbstractContextManager[Mapping[str, MakeKeeper]]]] = {
    StoreKind.DISK: lambda: nullcontext(CONTESTANTS),
    StoreKind.REDIS: redis_ways,
    StoreKind.MOONCAKE: mooncake_ways,
}
"""The ways to keep pages in each; the first is the raw one."""


def _measured(
    ways: Mapping[str, MakeKeeper],
    place: Path,
    page_kib: Sequence[int],
    round_bytes: int,
    rounds: int,
) -> list[StoreTime]:
    """Measure the ways of one kind with each size of pages."""
    times: list[StoreTime] = []
    with progress(range(len(page_kib) * rounds * len(ways)), "bench store") as shown:
        steps = iter(shown)
        for size in page_kib:
            times += measure_ways(
                ways,
                place,
                page_bytes=size << 10,
                round_bytes=round_bytes,
                rounds=rounds,
                said=lambda: next(steps, None),
            )
    return times


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
    out.print(
        "s/GB are processor seconds a gigabyte, of this process. Reads of a disk are cold. Raw are "
        "the raw file and the client of each server.",
        style="dim",
    )
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
