"""`kvcanon lab bench`, and `bench replay`: times a cache on a trace or on generated chat.

Peak memory is that of a process, so each case runs in a process of its own; it includes requests
and interpreter.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from attrs import asdict, evolve, fields, frozen

from kvcanon.conformance.cli.command_line import OnceCommand
from kvcanon.conformance.cli.options import AsJson
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.cli.workload_options import (
    Conversations,
    Limit,
    PoolTokens,
    Seed,
    SwaTokens,
    Trace,
)
from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.replay import workload as workloads
from kvcanon.conformance.replay.fitted_cache import Fit, make_cache
from kvcanon.conformance.replay.replay import Replay, replay
from kvcanon.conformance.replay.workload import PoolSize, Workload, WorkloadSizes
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.workers import workers
from kvcanon.lab.cli.bench_cliffs import bench_cliffs
from kvcanon.lab.cli.bench_engine import bench_engine
from kvcanon.lab.cli.bench_gpu import bench_gpu
from kvcanon.lab.cli.bench_judge import bench_judge
from kvcanon.lab.cli.bench_live import bench_live
from kvcanon.lab.cli.bench_options import CacheName, Events, print_figures
from kvcanon.lab.cli.bench_show import bench_show
from kvcanon.lab.cli.bench_store import bench_store
from kvcanon.lab.cli.bench_tiers import bench_tiers
from kvcanon.lab.cli.bench_tree import bench_tree

bench = typer.Typer(
    help="Measure a cache, a store, the judge, KV events, or a page.", no_args_is_help=True
)
bench.command("cliffs", cls=OnceCommand)(bench_cliffs)
bench.command("engine", cls=OnceCommand)(bench_engine)
bench.command("gpu", cls=OnceCommand)(bench_gpu)
bench.command("judge", cls=OnceCommand)(bench_judge)
bench.command("live", cls=OnceCommand)(bench_live)
bench.command("show", cls=OnceCommand)(bench_show)
bench.command("store", cls=OnceCommand)(bench_store)
bench.command("tiers", cls=OnceCommand)(bench_tiers)
bench.command("tree", cls=OnceCommand)(bench_tree)


CHAT_SIZES = evolve(workloads.CHAT_SIZES, host=workloads.NO_POOL)
TRACE_SIZES = evolve(workloads.TRACE_SIZES, window_tokens=4096, swa=PoolSize(262_144))
"""The sizes of the second measurement of peers, which has this window."""
EVERY_SIZE = frozenset(each.name for each in fields(WorkloadSizes))
"""The names of all sizes, where none may be another than is asked for."""


@frozen
class BenchCase:
    """One measurement."""

    cache: str
    workload: Workload
    sizes: WorkloadSizes

    @property
    def components(self) -> str:
        """What the model keeps of a prompt."""
        return "full + swa" if self.sizes.window_tokens else "full"


@frozen
class ReplayRate:
    """The result of a case."""

    case: BenchCase
    replay: Replay
    peak_bytes: int
    """The most memory that the process used at any time."""

    def to_json(self) -> dict[str, object]:
        """The result as a value for JSON."""
        return {
            "components": self.case.components,
            "sizes": asdict(self.case.sizes),
            "peak_bytes": self.peak_bytes,
            "result": self.replay.to_json(),
        }


@bench.callback()
def _group() -> None:
    """Measure a cache, the judge, KV events, or a page."""


@bench.command("replay", cls=OnceCommand)
def bench_replay(
    cache: CacheName = "reference",
    *,
    trace: Trace = None,
    conversations: Conversations = 1000,
    seed: Seed = 0,
    limit: Limit = None,
    page_size: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="Tokens a page; repeatable."),
    ] = None,
    pool_tokens: PoolTokens = None,
    window: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Sliding window of the cases that have one."),
    ] = None,
    swa_tokens: SwaTokens = None,
    events: Events = None,
    as_json: AsJson = False,
) -> None:
    """Time a cache: full, and full + swa, without events and with them; nothing is judged."""
    workload = Workload(trace, conversations, seed, limit)
    adapter = load_adapter(cache)
    usual = CHAT_SIZES if workload.trace is None else TRACE_SIZES
    cases = [
        BenchCase(
            cache,
            workload,
            usual.with_options(
                page_size=size,
                pool=pool_tokens,
                swa=swa_tokens,
                window_tokens=(window or usual.window_tokens) if windowed else 0,
                events=emits,
            ),
        )
        for size in page_size or [usual.page_size]
        for windowed in offered_windows(adapter)
        for emits in (offered_events(adapter) if events is None else (events,))
    ]
    with progress(cases, f"bench {cache}") as shown:
        measured = [_in_a_process(case) for case in shown]
    if as_json:
        print_figures(
            {
                "cache": cache,
                "workload": str(workload),
                "seed": seed,
                "cases": [each.to_json() for each in measured],
            }
        )
    else:
        _print_table(cache, workload, measured)


def measure(case: BenchCase) -> ReplayRate:
    """Measure a case in this process."""
    adapter = evolve(load_adapter(case.cache), name=case.cache)
    fit = Fit(adapter, EVERY_SIZE)
    sizes, requests = fit.sizes(case.sizes), fit.requests(case.workload.requests())
    subject = make_cache(adapter, sizes.config(requests))
    try:
        result = replay(subject, requests)
    except Exception as error:
        raise UsageError(
            f"the replay of {case.cache} failed: {describe_exception(error)}"
        ) from error
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return ReplayRate(case, result, peak if sys.platform == "darwin" else peak * 1024)


def _in_a_process(case: BenchCase) -> ReplayRate:
    """Measure a case in a fresh process, so that peak memory is its own."""
    with workers(1, apart=True) as by:
        try:
            return by.executor.submit(measure, case).result()
        except ProcessDied as died:
            raise UsageError(f"the replay of {case.cache} failed: it {died}") from None


def _print_table(cache: str, workload: Workload, measured: Sequence[ReplayRate]) -> None:
    out = ReportConsole()
    print_title(out, f"bench replay {cache}", f"{workload}, seed {workload.seed}")
    latencies = ("match us", "insert us", "evict us")
    table = figures_table(
        "components", "page", "events", "req/s", "hit rate", *latencies, "peak MiB"
    )
    for each in measured:
        table.add_row(*_row(each))
    out.print(table)
    out.print("Times are p50 / p99 of the calls.", style="dim")


def _row(measured: ReplayRate) -> list[str]:
    sizes, result = measured.case.sizes, measured.replay
    latencies = [result.operations.get(name) for name in ("match", "insert", "evict")]
    return [
        measured.case.components,
        str(sizes.page_size),
        "on" if sizes.events else "off",
        f"{result.requests_per_second:,.0f}",
        f"{result.hit_rate:.4f}",
        *(f"{each.p50_us:,.0f} / {each.p99_us:,.0f}" if each else "-" for each in latencies),
        f"{measured.peak_bytes / 2**20:,.0f}",
    ]


def offered_windows(adapter: Adapter) -> list[bool]:
    """Whether a cache offers configurations without a window, and with one: False, True."""
    has_window = [each is not None for each in adapter.offer.windows_tokens]
    return [windowed for windowed in (False, True) if windowed in has_window]


def offered_events(adapter: Adapter) -> list[bool]:
    """Whether a cache offers to be silent, and to emit events: False, True."""
    return [emits for emits in (False, True) if emits in adapter.offer.events]
