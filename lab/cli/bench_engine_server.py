"""`kvcanon lab bench engine --server`: whole servers under load, one for each tree core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from kvcanon.conformance.cli.terminal import ReportConsole, figures_table
from kvcanon.lab.bench.case import BenchCell, HostSetup
from kvcanon.lab.bench.child import BenchJob, Json
from kvcanon.lab.servers.server_setup import (
    HOST_RATIO,
    KVCANON,
    NO_CACHE,
    PYTHON,
    RUST,
    SLIDING_SHARE,
)
from kvcanon.lab.servers.tiny_model import WINDOW
from kvcanon.spec.types import WritePolicy

Server: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--server",
        help="Measure whole servers under load, and nothing else: full, pages of one token, no "
        "events, unless other options say so.",
    ),
]
Clients: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Requests at a time, with --server.")
]
SERVER_CORES = (KVCANON, RUST, PYTHON)
"""The usual ones. `NO_CACHE` can be named as well."""
SERVER_PAGE = 1
"""SGLang's own default."""
SERVER_POOL = 52_000
"""A little more than the texts that prompts share: requests evict the ends of others."""


def server_cells(
    page_sizes: Sequence[int], policies: Sequence[WritePolicy], *, window: bool, events: bool
) -> list[BenchCell]:
    """The servers to compare: one configuration for each page size and policy."""
    swa = int(SERVER_POOL * SLIDING_SHARE)
    hosts = [
        None
        if policy is WritePolicy.NONE
        else HostSetup(policy, HOST_RATIO * SERVER_POOL, HOST_RATIO * swa)
        for policy in policies
    ]
    return [
        BenchCell(size, SERVER_POOL, WINDOW if window else 0, swa if window else 0, events, host)
        for host in hosts
        for size in page_sizes
    ]


def print_servers(out: ReportConsole, results: Sequence[tuple[BenchJob, Json]]) -> None:
    """Print a table for each configuration."""
    for job, result in results:
        rows = result["cores"]
        table = figures_table(
            *("core", "req/s", "times", "least", "most", "first token ms p50", "p99"),
            *("hits", "cache us", "share"),
        )
        for row in rows:  # What a child of this release wrote.
            times, wait = row["times"], row["first_token_ms"]
            cached = row["core"] != NO_CACHE
            table.add_row(
                str(row["core"]),
                f"{row['requests_per_second']:,.1f}",
                *(f"{times[name]:.3f}" for name in ("median", "least", "most")),
                f"{wait['p50']:,.1f}",
                f"{wait['p99']:,.1f}",
                f"{row['hit_rate']:.4f}",
                f"{row['cache_us']:,.0f}" if cached else "-",
                f"{row['cache_share']:.2%}" if cached else "-",
            )
        out.print(f"{job.cell}, {job.options['clients']} requests at a time")
        out.print(table)
    out.print(
        "times: requests a second of the first core over those of this one, in one round; median, "
        "least and most. cache: what the scheduler spends in UnifiedRadixCache for a request, and "
        "its share of the time that a request takes.",
        style="dim",
    )
