"""`kvcanon bench engine`: times tree cores under SGLang's `UnifiedRadixCache`, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kvcanon import __version__
from kvcanon.conformance.bench.case import BenchCell, HostSetup, RequestStep, WorkloadSource
from kvcanon.conformance.bench.child import BenchJob, Json
from kvcanon.conformance.bench.contest import Fill, in_a_process
from kvcanon.conformance.bench.contestants import SGLANG, Contestant, Field
from kvcanon.conformance.cli.options import Seed
from kvcanon.conformance.cli.peers import PeersFolder
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.engines.releases.environment import peers_in
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.types import WritePolicy

CORES = ("kvcanon", "rust", "python", "floor")
PAGE_SIZES = (1, 16, 64)
POOL_TOKENS, WINDOW_TOKENS, SWA_TOKENS = 65_536, 1024, 16_384
MEMORY_TOKENS = 1_000_000
STALL_TOKENS, STALL_PROMPTS, STALL_PAGE = 4_000_000, 100_000, 1

Row: TypeAlias = Mapping[str, Any]
PageSizes: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Tokens a page; repeatable. Usual: {', '.join(map(str, PAGE_SIZES))}.",
    ),
]
Cores: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CORE]...",
        help=f"{', '.join(CORES)}; by default all. The first is compared with the others. floor: "
        "SGLang alone, over recorded answers; without a window.",
    ),
]


def bench_engine(
    cores: Cores = None,
    *,
    peers: PeersFolder,
    page_size: PageSizes = None,
    window: Annotated[
        bool | None, typer.Option(help="Measure only full + swa, or only full.")
    ] = None,
    events: Annotated[
        bool | None, typer.Option(help="Measure only with events, or only without.")
    ] = None,
    write_policy: Annotated[
        list[WritePolicy] | None,
        typer.Option(help="With HiCache, filled by this policy; repeatable. Usual: none."),
    ] = None,
    requests: Annotated[
        int, typer.Option(min=16, metavar="N", help="Requests of each measurement.")
    ] = 300,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="How often they are served.")] = 3,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also measure the memory of the trees.")
    ] = False,
    stalls: Annotated[
        bool,
        typer.Option("--stalls", help="Also measure the longest call in a tree of many prompts."),
    ] = False,
    prompts: Annotated[
        int, typer.Option(min=1, metavar="N", help="Prompts in the tree of --stalls.")
    ] = STALL_PROMPTS,
    speed: Annotated[bool, typer.Option(help="Whether to time requests.")] = True,
    seed: Seed = 0,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", dir_okay=False, metavar="FILE", help="Write all figures, as JSON."),
    ] = None,
) -> None:
    """Time SGLang's radix cache over kvcanon's tree core and over its own, in turns."""
    chosen = tuple(dict.fromkeys(cores or CORES))
    unknown = [core for core in chosen if core not in CORES]
    if unknown:
        raise UsageError(f"no core {unknown[0]!r}; name {', '.join(CORES)}")
    alone = [core for core in chosen if core != "floor"]
    cells = _cells(page_size or PAGE_SIZES, window, events, write_policy or [WritePolicy.NONE])
    cells = cells if speed else []
    fill, contestant = _runner(peers)
    numbers = {"requests": requests, "rounds": rounds, "prompts": prompts}
    jobs = [
        # The parts of SGLang for windows call a core directly, so that there is no floor.
        _job("engine_speed", cell, alone if cell.window_tokens else chosen, seed, numbers)
        for cell in cells
    ]
    if memory:
        for size in page_size or PAGE_SIZES:
            cell = BenchCell(size, MEMORY_TOKENS)
            jobs += [_job("engine_memory", cell, (core,), seed, numbers) for core in alone]
    if stalls:
        cell = BenchCell(STALL_PAGE, STALL_TOKENS)
        jobs += [_job("engine_stalls", cell, (core,), seed, numbers) for core in alone]
    found: list[tuple[BenchJob, Json]] = []
    with progress(jobs, "bench engine") as shown:
        found = [(job, fill(contestant, job)) for job in shown]
    if json_file:
        value = [{"what": job.what, "cell": str(job.cell), "found": each} for job, each in found]
        text = json.dumps({"kvcanon": __version__, "seed": seed, "measured": value}, indent=2)
        json_file.write_text(text + "\n", encoding="utf-8")
    _print(found, requests, rounds)


def _cells(
    page_sizes: Sequence[int],
    window: bool | None,  # As the option.
    events: bool | None,  # As the option.
    policies: Sequence[WritePolicy],
) -> list[BenchCell]:
    hosts = [
        None if policy is WritePolicy.NONE else HostSetup(policy, 2 * POOL_TOKENS, 2 * SWA_TOKENS)
        for policy in policies
    ]
    return [
        BenchCell(
            size,
            POOL_TOKENS,
            WINDOW_TOKENS if windowed else 0,
            SWA_TOKENS if windowed else 0,
            emits,
            host,
        )
        for emits in ((False, True) if events is None else (events,))
        for host in hosts
        for windowed in ((False, True) if window is None else (window,))
        for size in page_sizes
    ]


def _job(
    what: str, cell: BenchCell, cores: Sequence[str], seed: int, numbers: Mapping[str, int]
) -> BenchJob:
    options = {"cores": ",".join(cores)} | {name: str(each) for name, each in numbers.items()}
    return BenchJob(what, "sglang_engine", options, cell, WorkloadSource(seed=seed), 0.0)


def _runner(folder: Path) -> tuple[Fill, Contestant]:
    """What runs a job: a process of this environment if it has SGLang, or of a peer's."""
    if find_spec("sglang") is not None:
        here = Contestant("bench engine", "sglang_engine")
        return in_a_process(Field((here,), {})), here
    found = peers_in(folder)
    if SGLANG.name not in found:
        raise UsageError(
            f"bench engine needs SGLang 0.5.23: it is not installed here, and {folder} has no "
            f"environment of it; make one with `kvcanon peers make {SGLANG.name} --into {folder}`"
        )
    there = Contestant("bench engine", "sglang_engine", release=SGLANG)
    return in_a_process(Field((there,), found)), there


def _print(found: Sequence[tuple[BenchJob, Json]], requests: int, rounds: int) -> None:
    out = ReportConsole()
    print_title(out, "bench engine", f"SGLang 0.5.23, {requests} requests, {rounds} rounds")
    for what, title, print_rows in (
        ("engine_speed", "Microseconds a request, by step", _speed_rows),
        ("engine_memory", "Memory of the tree", _memory_rows),
        ("engine_stalls", "Longest call in a full tree, in milliseconds", _stall_rows),
    ):
        results = [(job, each) for job, each in found if job.what == what]
        if results:
            out.print()
            out.print(title, style="dim")
            print_rows(out, results)
    out.print(
        "Sums of the least times of each request. x: the first core's share. SGLang's allocator is "
        "left out.",
        style="dim",
    )


def _speed_rows(out: ReportConsole, results: Sequence[tuple[BenchJob, Json]]) -> None:
    for job, result in results:
        rows = _rows(result["cores"])
        steps = [step.value for step in RequestStep if step.value in rows[0]["steps_us"]]
        table = figures_table("core", "us", "x", "hits", *steps)
        for row in rows:
            table.add_row(
                str(row["core"]),
                f"{row['request_us']:,.1f}",
                f"{rows[0]['request_us'] / row['request_us']:.2f}",
                f"{row['hit_rate']:.4f}",
                *(f"{row['steps_us'].get(step, 0):,.1f}" for step in steps),
            )
        out.print(str(job.cell))
        out.print(table)


def _memory_rows(out: ReportConsole, results: Sequence[tuple[BenchJob, Json]]) -> None:
    table = figures_table("case", "core", "MiB", "tokens", "bytes a token", "x")
    first: dict[str, float] = {}
    for job, result in results:
        (row,) = _rows([result])
        each = row["bytes_per_token"]
        ours = first.setdefault(str(job.cell), each)
        table.add_row(
            str(job.cell),
            str(row["core"]),
            f"{row['tree_bytes'] / 2**20:,.1f}",
            f"{row['cached_tokens']:,}",
            f"{each:.1f}",
            f"{ours / each:.2f}",
        )
    out.print(table)


def _stall_rows(out: ReportConsole, results: Sequence[tuple[BenchJob, Json]]) -> None:
    steps = ("match", "lock", "evict", "insert", "unlock")
    table = figures_table("core", "prompts", *steps)
    for _, result in results:
        (row,) = _rows([result])
        longest = row["longest_ms"]
        table.add_row(
            str(row["core"]),
            f"{row['cached_prompts']:,}",
            *(f"{longest.get(step, 0):,.2f}" for step in steps),
        )
    out.print(table)


def _rows(value: object) -> list[Row]:
    """What a child of this release wrote."""
    rows: list[Row] = value  # type: ignore[assignment]
    return rows
