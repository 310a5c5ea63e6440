"""`kvcanon lab bench engine`: times tree cores under SGLang's `UnifiedRadixCache`, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from attrs import asdict

from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.cli.workload_options import Seed
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.case import BenchCell, HostSetup, RequestStep, WorkloadSource
from kvcanon.lab.bench.child import BenchJob, Json
from kvcanon.lab.bench.contest import Fill, in_a_process
from kvcanon.lab.bench.contestants import SGLANG, Contestant, Field
from kvcanon.lab.bench.engine_jobs import MEMORY, SERVER, SHORT_MEMORY
from kvcanon.lab.cli.bench_engine_server import (
    SERVER_CORES,
    SERVER_PAGE,
    Clients,
    Server,
    print_servers,
    server_cells,
)
from kvcanon.lab.cli.bench_options import PAGE_SIZES, Events, JsonFile, PageSizes, write_figures
from kvcanon.lab.cli.peers import PeersFolder
from kvcanon.lab.releases.environment import peers_in
from kvcanon.lab.servers.server_environment import make_servers
from kvcanon.lab.servers.server_setup import NO_CACHE
from kvcanon.lab.torch_device import CPU_DEVICE
from kvcanon.spec.types import WritePolicy

CORES = ("kvcanon", "rust", "python", "floor")
POOL_TOKENS, WINDOW_TOKENS, SWA_TOKENS = 65_536, 1024, 16_384
MEMORY_TOKENS = 1_000_000
STALL_TOKENS, STALL_PROMPTS, STALL_PAGE = 4_000_000, 100_000, 1

Row: TypeAlias = Mapping[str, Any]
Device: TypeAlias = Annotated[
    str,
    typer.Option(metavar="DEVICE", help="Where pools and slots are, as torch names it: cuda."),
]
Cores: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CORE]...",
        help=f"{', '.join(CORES)}; by default all. The first is compared with the others. floor: "
        "SGLang alone, over recorded answers; without a window. With --server kvcanon, rust and "
        "python, and none for no cache.",
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
    events: Events = None,
    write_policy: Annotated[
        list[WritePolicy] | None,
        typer.Option(help="With HiCache, filled by this policy; repeatable. Usual: none."),
    ] = None,
    requests: Annotated[
        int, typer.Option(min=16, metavar="N", help="Requests of each measurement.")
    ] = 300,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="How often they are served.")] = 3,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory", help="Also measure the memory of trees of long and of short prompts."
        ),
    ] = False,
    stalls: Annotated[
        bool,
        typer.Option("--stalls", help="Also measure the longest call in a tree of many prompts."),
    ] = False,
    prompts: Annotated[
        int, typer.Option(min=1, metavar="N", help="Prompts in the tree of --stalls.")
    ] = STALL_PROMPTS,
    speed: Annotated[bool, typer.Option(help="Whether to time requests.")] = True,
    device: Device = CPU_DEVICE,
    server: Server = False,
    clients: Clients = 8,
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Time SGLang's radix cache over kvcanon's tree core and over its own, in turns."""
    policies = write_policy or [WritePolicy.NONE]
    numbers = {"requests": requests, "rounds": rounds, "prompts": prompts, "clients": clients}
    others = server or memory or stalls or policies != [WritePolicy.NONE] or not speed
    if device != CPU_DEVICE and others:
        raise UsageError(f"--device {device} times requests without HiCache: leave the others out")
    if server:
        if memory or stalls or not speed:
            raise UsageError("--server measures nothing else: leave the others out")
        chosen = _known(cores or SERVER_CORES, (*SERVER_CORES, NO_CACHE))
        cells = server_cells(
            page_size or [SERVER_PAGE], policies, window=bool(window), events=bool(events)
        )
        jobs = [_job(SERVER, cell, chosen, seed, numbers) for cell in cells]
    else:
        chosen = _known(cores or CORES, CORES)
        sizes = page_size or PAGE_SIZES
        cells = _cells(sizes, window, events, policies, device) if speed else []
        trees = _trees(sizes, window) if memory else []
        measured = _jobs(chosen, cells, trees, stalls=stalls)
        jobs = [_job(what, cell, those, seed, numbers) for what, cell, those in measured]
    found = _measured(jobs, *_runner(peers, server=server))
    value = [
        {"what": job.what, "cell": str(job.cell), "of": asdict(job.cell), "found": each}
        for job, each in found
    ]
    write_figures(json_file, {"seed": seed, "measured": value})
    _print(found, requests, rounds)


def _measured(
    jobs: Sequence[BenchJob], fill: Fill, contestant: Contestant
) -> list[tuple[BenchJob, Json]]:
    with progress(jobs, "bench engine") as shown:
        return [(job, fill(contestant, job)) for job in shown]


def _known(cores: Sequence[str], all_cores: Sequence[str]) -> tuple[str, ...]:
    """The named cores, each once. Raises: UsageError, for one of no such name."""
    chosen = tuple(dict.fromkeys(cores))
    unknown = [core for core in chosen if core not in all_cores]
    if unknown:
        raise UsageError(f"no core {unknown[0]!r}; name {', '.join(all_cores)}")
    return chosen


def _shapes(page_sizes: Sequence[int], window: bool | None) -> list[tuple[int, int]]:
    """Full and full + swa, or one of them: the window, 0 for none, and the tokens a page."""
    windows = (0, WINDOW_TOKENS) if window is None else (WINDOW_TOKENS if window else 0,)
    return [(tokens, size) for tokens in windows for size in page_sizes]


def _trees(page_sizes: Sequence[int], window: bool | None) -> list[BenchCell]:
    """What is filled to measure memory: pools that end together, so that nothing is evicted."""
    return [
        BenchCell(size, MEMORY_TOKENS, tokens, MEMORY_TOKENS if tokens else 0)
        for tokens, size in _shapes(page_sizes, window)
    ]


def _cells(
    page_sizes: Sequence[int],
    window: bool | None,  # As the option.
    events: bool | None,  # As the option.
    policies: Sequence[WritePolicy],
    device: str,
) -> list[BenchCell]:
    hosts = [
        None if policy is WritePolicy.NONE else HostSetup(policy, 2 * POOL_TOKENS, 2 * SWA_TOKENS)
        for policy in policies
    ]
    return [
        BenchCell(size, POOL_TOKENS, tokens, SWA_TOKENS if tokens else 0, emits, host, device)
        for emits in ((False, True) if events is None else (events,))
        for host in hosts
        for tokens, size in _shapes(page_sizes, window)
    ]


def _jobs(
    cores: Sequence[str], cells: Sequence[BenchCell], trees: Sequence[BenchCell], *, stalls: bool
) -> list[tuple[str, BenchCell, Sequence[str]]]:
    """What is measured under SGLang's cache alone: the measurement, the cell, and the cores."""
    alone = [core for core in cores if core != "floor"]
    jobs: list[tuple[str, BenchCell, Sequence[str]]] = [
        # The parts of SGLang for windows call a core directly, so that there is no floor.
        ("engine_speed", cell, alone if cell.window_tokens else cores)
        for cell in cells
    ]
    for what in (MEMORY, SHORT_MEMORY):
        jobs += [(what, cell, (core,)) for cell in trees for core in alone]
    if stalls:
        full = BenchCell(STALL_PAGE, STALL_TOKENS)
        jobs += [("engine_stalls", full, (core,)) for core in alone]
    return jobs


def _job(
    what: str, cell: BenchCell, cores: Sequence[str], seed: int, numbers: Mapping[str, int]
) -> BenchJob:
    options = {"cores": ",".join(cores)} | {name: str(each) for name, each in numbers.items()}
    return BenchJob(what, "sglang_engine", options, cell, WorkloadSource(seed=seed), 0.0)


def _runner(folder: Path, *, server: bool) -> tuple[Fill, Contestant]:
    """What runs a job: a process of this environment if it has SGLang, or of a peer's."""
    if find_spec("sglang") is not None:
        here = Contestant("bench engine", "sglang_engine")
        return in_a_process(Field((here,), {})), here
    found = peers_in(folder)
    if SGLANG.name not in found:
        how = f"kvcanon lab peers make {SGLANG.name} --into {folder}"
        raise UsageError(
            f"bench engine needs SGLang 0.5.23: it is not installed here, and {folder} has no "
            f"environment of it; make one with `{make_servers(folder) if server else how}`"
        )
    there = Contestant("bench engine", "sglang_engine", release=SGLANG)
    return in_a_process(Field((there,), found)), there


def _print(found: Sequence[tuple[BenchJob, Json]], requests: int, rounds: int) -> None:
    out = ReportConsole()
    print_title(out, "bench engine", f"SGLang 0.5.23, {requests} requests, {rounds} rounds")
    for what, title, print_rows in (
        (SERVER, "Whole servers under load", print_servers),
        ("engine_speed", "Microseconds a request, by step", _speed_rows),
        (MEMORY, "Memory of the tree, prompts of 1,200 to 3,000 tokens", _memory_rows),
        (SHORT_MEMORY, "Memory of the tree, prompts of 40 to 80 tokens", _memory_rows),
        ("engine_stalls", "Longest call in a full tree, in milliseconds", _stall_rows),
    ):
        results = [(job, each) for job, each in found if job.what == what]
        if results:
            out.print()
            out.print(title, style="dim")
            print_rows(out, results)
    if any(job.what != SERVER for job, _ in found):
        out.print(
            "Sums of the least times of each request. x: the first core's share. SGLang's "
            "allocator is left out.",
            style="dim",
        )


def _speed_rows(out: ReportConsole, results: Sequence[tuple[BenchJob, Json]]) -> None:
    for job, result in results:
        rows = _rows(result["cores"])
        steps = [step.value for step in RequestStep if step.value in rows[0]["steps_us"]]
        totals = {"us": "request_us"} | ({"us, sent": "sent_us"} if "send" in steps else {})
        heads = [head for total in totals for head in (total, "x")]
        table = figures_table("core", *heads, "hits", *steps)
        for row in rows:
            table.add_row(
                str(row["core"]),
                *(
                    text
                    for total in totals.values()
                    for text in (f"{row[total]:,.1f}", f"{rows[0][total] / row[total]:.2f}")
                ),
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
    steps = ("match", "lock", "evict", "insert", "unlock", "collect")
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
