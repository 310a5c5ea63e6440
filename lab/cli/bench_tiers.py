"""`kvcanon lab bench tiers`: hits and time of host tiers under the scheduler of vLLM's kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.cli.workload_options import Limit, Seed, Trace
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.case import BenchCell, WorkloadSource
from kvcanon.lab.bench.child import BenchJob
from kvcanon.lab.bench.contest import in_a_process
from kvcanon.lab.bench.contestants import VLLM, Contestant, Field
from kvcanon.lab.bench.tier_hits import NO_HOST, ONE_LRU
from kvcanon.lab.bench.tier_jobs import HITS, TIMES
from kvcanon.lab.cli.bench_options import JsonFile, write_figures
from kvcanon.lab.cli.peers import PeersFolder
from kvcanon.lab.releases.environment import peers_in

HOSTS = (1, 2, 4)
BLOCK_TOKENS, DEVICE_TOKENS = 512, 1_000_000
HOST_BLOCKS = 100_000

Rows = Sequence[Mapping[str, Any]]


def bench_tiers(
    *,
    peers: PeersFolder,
    trace: Trace = None,
    limit: Limit = None,
    seed: Seed = 0,
    block_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens a block, for the hits.")
    ] = BLOCK_TOKENS,
    device_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens that the device holds.")
    ] = DEVICE_TOKENS,
    host: Annotated[
        list[int] | None,
        typer.Option(
            min=1, metavar="N", help="Host, in times of the device; repeatable. Usual: 1, 2, 4."
        ),
    ] = None,
    hits: Annotated[bool, typer.Option(help="Whether to count hits.")] = True,
    times: Annotated[bool, typer.Option(help="Whether to time the scheduler's half.")] = True,
    host_blocks: Annotated[
        int, typer.Option(min=1024, metavar="N", help="Blocks in the host that is timed.")
    ] = HOST_BLOCKS,
    requests: Annotated[
        int, typer.Option(min=8, metavar="N", help="Requests that are timed.")
    ] = 400,
    json_file: JsonFile = None,
) -> None:
    """Measure vLLM's host tiers and kvcanon's: hits on a trace, and time in the scheduler."""
    if device_tokens < block_tokens:
        raise UsageError(f"--device-tokens {device_tokens} holds no block of {block_tokens} tokens")
    found, where = _environment(peers)
    hosts = host or list(HOSTS)
    source = WorkloadSource(str(trace) if trace else None, seed=seed, limit=limit)
    cell = BenchCell(block_tokens, device_tokens)
    options = {
        HITS: {"hosts": ",".join(map(str, hosts))},
        TIMES: {"host_blocks": str(host_blocks), "requests": str(requests)},
    }
    wanted = [what for what, on in ((HITS, hits), (TIMES, times)) if on]
    fill = in_a_process(Field((where,), found))
    measured: dict[str, Any] = {}
    with progress(wanted, "bench tiers") as shown:
        for what in shown:
            job = BenchJob(what, "", options[what], cell, source, 0.0)
            measured |= fill(where, job)
    device_blocks = device_tokens // block_tokens
    write_figures(json_file, {"seed": seed, "device_blocks": device_blocks, **measured})
    _print(measured, device_blocks, hosts, str(trace or "generated chat"))
    if where.release is None and find_spec("vllm") is None:
        ReportConsole().print(
            f"vLLM's own tiers are left out: {peers} has no environment of {VLLM.name}; make it "
            f"with `kvcanon lab peers make {VLLM.name} --into {peers}`",
            style="dim",
        )


def _environment(folder: Path) -> tuple[Mapping[str, Any], Contestant]:
    """Where it runs: in an environment of vLLM, if there is one."""
    if find_spec("vllm") is not None:
        return {}, Contestant("bench tiers", "")
    found = peers_in(folder)
    release = VLLM if VLLM.name in found else None
    return found, Contestant("bench tiers", "", release=release)


def _print(
    measured: Mapping[str, Rows], device_blocks: int, hosts: Sequence[int], workload: str
) -> None:
    out = ReportConsole()
    print_title(out, "bench tiers", workload)
    if "hits" in measured:
        out.print("Hits, % of the prompt tokens, by the size of the host", style="dim")
        out.print(_hit_table(measured["hits"], device_blocks, hosts))
    if "times" in measured:
        out.print("Microseconds a request in the scheduler's half", style="dim")
        out.print(_time_table(measured["times"]))


def _hit_table(rows: Rows, device_blocks: int, hosts: Sequence[int]) -> Any:  # noqa: ANN401  # rich's.
    rates = {(row["tier"], row["host_blocks"]): row["hit_rate"] for row in rows}
    heads = [f"{times} x" for times in hosts]
    table = figures_table("tier", *heads)
    for tier in dict.fromkeys(row["tier"] for row in rows):
        cells = [
            rates.get((tier, 0 if tier == NO_HOST else times * device_blocks), 0.0)
            for times in hosts
        ]
        table.add_row(tier, *(f"{100 * rate:.2f}" for rate in cells))
    ideal = [rates[ONE_LRU, times * device_blocks] for times in hosts]
    best = [
        max(rate for (tier, blocks), rate in rates.items() if tier != ONE_LRU and blocks == size)
        for size in (times * device_blocks for times in hosts)
    ]
    behind = (f"{100 * (most - rate):.2f}" for most, rate in zip(ideal, best, strict=True))
    table.add_row("the best tier is behind by", *behind)
    return table


def _time_table(rows: Rows) -> Any:  # noqa: ANN401  # rich's.
    steps = tuple(rows[0]["calls_us"]) if rows else ()
    table = figures_table("tier", "us", "x", "p50", "loaded", *steps)
    for row in rows:
        table.add_row(
            row["tier"],
            f"{row['request_us']:,.0f}",
            f"{row['request_us'] / rows[0]['request_us']:.2f}",
            f"{row['p50_us']:,.0f}",
            f"{100 * row['loaded_rate']:.1f} %",
            *(f"{row['calls_us'][step]:,.0f}" for step in steps),
        )
    return table
