"""`kvcanon bench tree`: prefix caches side by side, in one run.

What readers get wrong: caches take turns, each in a process of its own, and the figures are medians
of the rounds. Peers that have no environment are left out, and named.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kvcanon.conformance.bench.case import BenchCell, WorkloadSource
from kvcanon.conformance.bench.contest import ContestPlan, in_a_process, orders, run_contest
from kvcanon.conformance.bench.contestants import CONTESTANTS, field
from kvcanon.conformance.bench.json_figures import contest_json
from kvcanon.conformance.bench.plot import plot, require_matplotlib
from kvcanon.conformance.cli.bench_tree_report import print_report
from kvcanon.conformance.cli.options import Conversations, Limit, Seed, Trace, usual
from kvcanon.conformance.cli.peers import PeersFolder
from kvcanon.conformance.cli.terminal import ReportConsole, progress

CHAT = BenchCell(page_size=16, pool_tokens=65_536, window_tokens=512, swa_tokens=16_384)
"""The pools overflow, and the longest prompt fits into each."""
TRACE = BenchCell(page_size=16, pool_tokens=1_000_000, window_tokens=4096, swa_tokens=262_144)
PAGE_SIZES = (1, 16, 64)


def bench_tree(
    caches: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CACHE]...",
            help=f"{', '.join(CONTESTANTS)}, or package.module:factory; all that are there by "
            "default. The others are compared with the first.",
        ),
    ] = None,
    *,
    peers: PeersFolder,
    trace: Trace = None,
    conversations: Conversations = 1000,
    seed: Seed = 0,
    limit: Limit = None,
    page_size: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Tokens a page; repeatable. Usual: {', '.join(map(str, PAGE_SIZES))}.",
        ),
    ] = None,
    pool_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Device pool. {usual(f'{CHAT.pool_tokens:,}', f'{TRACE.pool_tokens:,}')}",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Sliding window of the caches that have one; 0 for full data only. "
            f"{usual(CHAT.window_tokens, TRACE.window_tokens)}",
        ),
    ] = None,
    swa_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Pool of window data. {usual(f'{CHAT.swa_tokens:,}', f'{TRACE.swa_tokens:,}')}",
        ),
    ] = None,
    events: Annotated[
        bool | None, typer.Option(help="Measure only with events, or only without.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="How often each is measured.")
    ] = 3,
    seconds: Annotated[
        float,
        typer.Option(min=0, metavar="S", help="After which a run begins no more requests."),
    ] = 120.0,
    growth: Annotated[
        bool,
        typer.Option(
            "--growth",
            help="Measure full hits too, and how times grow with the tree and the prompt.",
        ),
    ] = False,
    requests: Annotated[
        bool, typer.Option(help="Whether to serve requests; without, --growth only.")
    ] = True,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", dir_okay=False, metavar="FILE", help="Write all figures, as JSON."),
    ] = None,
    plot_file: Annotated[
        Path | None,
        typer.Option("--plot", dir_okay=False, metavar="FILE", help="Write a figure, as SVG."),
    ] = None,
) -> None:
    """Time caches on the same requests: match, lock, evict, allocate, insert, unlock."""
    if not requests and not growth:
        problem = "leaves nothing to measure; add --growth."
        raise typer.BadParameter(problem, param_hint="'--no-requests'")
    if plot_file:
        require_matplotlib()  # A contest takes minutes, and its figure comes last.
    base = CHAT if trace is None else TRACE
    sizes = (pool_tokens or base.pool_tokens, swa_tokens or base.swa_tokens)
    plan = ContestPlan(
        source=WorkloadSource(str(trace.resolve()) if trace else None, conversations, seed, limit),
        cells=tuple(
            BenchCell(size, sizes[0], width, sizes[1] if width else 0, told)
            for told in ((False, True) if events is None else (events,))
            for width in dict.fromkeys((0, base.window_tokens if window is None else window))
            for size in page_size or PAGE_SIZES
        )
        if requests
        else (),
        rounds=rounds,
        seconds=seconds,
        growth=growth,
    )
    entrants = field(caches or [], peers)
    asked = orders(plan, entrants.contestants)
    with progress(asked, "bench tree") as shown:
        outcome = run_contest(shown, in_a_process(entrants))
    title = _title(plan.source) if plan.cells else "growth"
    if json_file:
        value = contest_json(title, plan, entrants, outcome)
        json_file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    if plot_file:
        plot_file.write_text(plot(outcome, title), encoding="utf-8")
    print_report(ReportConsole(), title, plan, entrants, outcome)


def _title(source: WorkloadSource) -> str:
    """What the requests are."""
    title = f"generated chat, {source.conversations} conversations, seed {source.seed}"
    if source.trace is not None:
        title = Path(source.trace).name
    return title if source.limit is None else f"{title}, the first {source.limit:,} requests"
