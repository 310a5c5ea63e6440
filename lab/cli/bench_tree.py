"""`kvcanon lab bench tree`: times prefix caches side by side on the same requests.

The caches take turns, each in a process of its own, and each figure is the median of the rounds.
Peers without an environment are left out, and the report names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from attrs import frozen

from kvcanon.conformance.cli.terminal import ReportConsole, progress
from kvcanon.conformance.cli.workload_options import Conversations, Limit, Seed, Trace, usual
from kvcanon.lab.bench.case import BenchCell, HostSetup, WorkloadSource
from kvcanon.lab.bench.contest import ContestPlan, in_a_process, orders, run_contest
from kvcanon.lab.bench.contestants import CONTESTANTS, field
from kvcanon.lab.bench.json_figures import contest_json
from kvcanon.lab.bench.plot import plot, require_matplotlib
from kvcanon.lab.bench.tails import NODES
from kvcanon.lab.cli.bench_options import PAGE_SIZES, Events, JsonFile, PageSizes, write_figures
from kvcanon.lab.cli.bench_tree_report import print_report
from kvcanon.lab.cli.peers import PeersFolder
from kvcanon.spec.types import WritePolicy

CHAT = BenchCell(page_size=16, pool_tokens=65_536, window_tokens=512, swa_tokens=16_384)
"""The requests overflow the pools, and the longest prompt fits into each pool."""
TRACE = BenchCell(page_size=16, pool_tokens=1_000_000, window_tokens=4096, swa_tokens=262_144)
HOST_RATIO = 2
"""The usual size of a host pool, in device pools, as in SGLang."""
AT_ONCE, AT_ONCE_HOST = 8, 400
"""Conversations at a time: with a host tier so many that they do not fit on the device."""

Contestants: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CACHE]...",
        help=f"{', '.join(CONTESTANTS)}, or package.module:factory; by default all that are "
        "installed. The first is compared with each of the others.",
    ),
]
PoolTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Device pool, in tokens. {usual(f'{CHAT.pool_tokens:,}', f'{TRACE.pool_tokens:,}')}",
    ),
]
Window: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Sliding window of the caches that have one, in tokens; 0 for full data only. "
        f"{usual(CHAT.window_tokens, TRACE.window_tokens)}",
    ),
]
SwaTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Device pool of window data, in tokens. "
        f"{usual(f'{CHAT.swa_tokens:,}', f'{TRACE.swa_tokens:,}')}",
    ),
]
Rounds: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="How often each cache is measured.")
]
Seconds: TypeAlias = Annotated[
    float,
    typer.Option(min=0, metavar="S", help="After so long a run starts no more requests."),
]
Growth: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--growth",
        help="Also measure full hits, and how times grow with the tree and the prompt.",
    ),
]
Requests: TypeAlias = Annotated[
    bool, typer.Option(help="Whether to serve requests; without them, --growth only.")
]
WritePolicies: TypeAlias = Annotated[
    list[WritePolicy] | None,
    typer.Option(
        "--write-policy",
        help="Measure with a host tier that is filled by this policy; repeatable. "
        "Usual: no host tier.",
    ),
]
HostTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help=f"Host pool, in tokens. Usual: {HOST_RATIO} times the device's."
    ),
]
HostSwaTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Host pool of window data, in tokens. Usual: {HOST_RATIO} times the device's.",
    ),
]
AtOnce: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Generated conversations that are active at the same time. "
        f"Usual: {AT_ONCE}, and {AT_ONCE_HOST} with a host tier.",
    ),
]
Tails: TypeAlias = Annotated[
    bool,
    typer.Option("--tails", help="Also measure the times of single calls in trees that are full."),
]
Nodes: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        min=100,
        metavar="N",
        help="Nodes of a tree of --tails; repeatable. "
        f"Usual: {', '.join(f'{each:,}' for each in NODES)}.",
    ),
]
PlotFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--plot", dir_okay=False, metavar="FILE", help="Write a figure, as SVG."),
]


@frozen
class CellOptions:
    """The options that say which cells are measured; None or empty for the usual values."""

    write_policies: Sequence[WritePolicy]
    host_tokens: int | None
    host_swa_tokens: int | None

    page_sizes: Sequence[int]
    pool_tokens: int | None
    window_tokens: int | None
    swa_tokens: int | None
    events: bool | None

    def cells(self, base: BenchCell) -> tuple[BenchCell, ...]:
        """Every combination of events, window and page size."""
        pool, swa = self.pool_tokens or base.pool_tokens, self.swa_tokens or base.swa_tokens
        window = base.window_tokens if self.window_tokens is None else self.window_tokens
        host_tokens = self.host_tokens or HOST_RATIO * pool
        host_swa_tokens = self.host_swa_tokens or HOST_RATIO * swa
        hosts = [HostSetup(policy, host_tokens, host_swa_tokens) for policy in self.write_policies]
        return tuple(
            BenchCell(size, pool, width, swa if width else 0, events, host)
            for events in ((False, True) if self.events is None else (self.events,))
            for host in hosts or (None,)
            for width in dict.fromkeys((0, window))
            for size in self.page_sizes or PAGE_SIZES
        )


def bench_tree(
    caches: Contestants = None,
    *,
    peers: PeersFolder,
    trace: Trace = None,
    conversations: Conversations = 1000,
    seed: Seed = 0,
    limit: Limit = None,
    page_size: PageSizes = None,
    pool_tokens: PoolTokens = None,
    window: Window = None,
    swa_tokens: SwaTokens = None,
    events: Events = None,
    rounds: Rounds = 3,
    seconds: Seconds = 120.0,
    write_policy: WritePolicies = None,
    host_tokens: HostTokens = None,
    host_swa_tokens: HostSwaTokens = None,
    at_once: AtOnce = None,
    growth: Growth = False,
    tails: Tails = False,
    nodes: Nodes = None,
    requests: Requests = True,
    json_file: JsonFile = None,
    plot_file: PlotFile = None,
) -> None:
    """Time caches on the same requests: match, lock, load, evict, allocate, insert, unlock."""
    if not requests and not (growth or tails):
        problem = "leaves nothing to measure; add --growth or --tails."
        raise typer.BadParameter(problem, param_hint="'--no-requests'")
    if plot_file:
        require_matplotlib()  # A contest takes minutes, and its figure comes last.
    policies = [each for each in write_policy or () if each is not WritePolicy.NONE]
    chosen = CellOptions(
        write_policies=policies,
        host_tokens=host_tokens,
        host_swa_tokens=host_swa_tokens,
        page_sizes=page_size or (),
        pool_tokens=pool_tokens,
        window_tokens=window,
        swa_tokens=swa_tokens,
        events=events,
    )
    cells = chosen.cells(CHAT if trace is None else TRACE)
    plan = ContestPlan(
        source=WorkloadSource(
            str(trace.resolve()) if trace else None,
            conversations,
            seed,
            limit,
            at_once or (AT_ONCE_HOST if policies else AT_ONCE),
        ),
        cells=cells if requests else (),
        rounds=rounds,
        seconds=seconds,
        growth=growth,
        tail_nodes=tuple(nodes or NODES) if tails else (),
        tail_hosts=tuple(dict.fromkeys(cell.host for cell in cells)),
    )
    entrants = field(caches or [], peers, host_tier=bool(policies))
    with progress(orders(plan, entrants.contestants), "bench tree") as shown:
        outcome = run_contest(shown, in_a_process(entrants))
    title = _title(plan.source) if plan.cells else "growth" if growth else "tails"
    write_figures(json_file, contest_json(title, plan, entrants, outcome))
    if plot_file:
        plot_file.write_text(plot(outcome, title), encoding="utf-8")
    print_report(ReportConsole(), title, plan, entrants, outcome)


def _title(source: WorkloadSource) -> str:
    """Name the requests."""
    title = (
        f"generated chat, {source.conversations} conversations, {source.at_once} at once, "
        f"seed {source.seed}"
    )
    if source.trace is not None:
        title = Path(source.trace).name
    return title if source.limit is None else f"{title}, the first {source.limit:,} requests"
