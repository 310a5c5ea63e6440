"""`kvcanon replay`: serves requests from a cache, and reports hits, evictions, copies and time.

Without `--guard` nothing is judged, and the report says so. `--guard` gives the share of the steps
that is judged; 1 is every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer
from attrs import evolve, frozen

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, CacheName, require_files, write_file
from kvcanon.conformance.cli.replay_curves import draw_curves, print_comparison, require_matplotlib
from kvcanon.conformance.cli.replay_report import print_replay, replay_json
from kvcanon.conformance.cli.terminal import print_json, progress, signs_of_life
from kvcanon.conformance.cli.workload_options import (
    SIZE,
    BlockTokens,
    Conversations,
    Limit,
    Seed,
    SwaTokens,
    TokenizerName,
    Trace,
    TurnsOption,
    usual,
)
from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.adapter import RequestSubject, Subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.replay.comparison import ComparedRun, Variants, compare
from kvcanon.conformance.replay.fitted_cache import Fit, make_cache, store_of
from kvcanon.conformance.replay.replay import Judgement, Replay, replay
from kvcanon.conformance.replay.store import ReplayStore
from kvcanon.conformance.replay.workload import (
    CHAT_SIZES,
    NO_POOL,
    TRACE_SIZES,
    PoolSize,
    PoolSizes,
    Workload,
    WorkloadSizes,
    pool_size,
    pool_sizes,
)
from kvcanon.conformance.replay.workloads.block_rows import Turns
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace import TraceOptions
from kvcanon.conformance.show.page import show_page
from kvcanon.conformance.show.replay_run import ReplayRecorder
from kvcanon.spec.types import EvictionPolicy, WritePolicy

Policy = TypeVar("Policy", WritePolicy, EvictionPolicy)
ONE_RUN = "--guard, --html and --restarts"
ReplaySubject: TypeAlias = Subject | RequestSubject

PageSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Tokens a page. {usual(CHAT_SIZES.page_size, TRACE_SIZES.page_size)}",
    ),
]
Pools: TypeAlias = Annotated[
    PoolSizes | None,
    typer.Option(
        parser=pool_sizes,
        metavar=f"{SIZE},...",
        help="Device pool, in tokens; several are compared. "
        f"{usual(CHAT_SIZES.pool, TRACE_SIZES.pool)}",
    ),
]
Hosts: TypeAlias = Annotated[
    PoolSizes | None,
    typer.Option(
        parser=pool_sizes,
        metavar=f"{SIZE},...",
        help="Host pool, in tokens; several are compared. Every other host pool is as many times "
        f"larger than its device pool as this one. {usual(CHAT_SIZES.host, TRACE_SIZES.host)}",
    ),
]
Disk: TypeAlias = Annotated[
    PoolSize | None,
    typer.Option(
        parser=pool_size,
        metavar=SIZE,
        help="Disk below the host pool, in tokens. A cache over a disk has no window. Usual: none.",
    ),
]
External: TypeAlias = Annotated[
    PoolSize | None,
    typer.Option(
        parser=pool_size,
        metavar=SIZE,
        help="External store below the host pool instead of a disk, in tokens. Usual: none.",
    ),
]
Sharers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="With --external-tokens: other servers that write as much to the store. Usual: 0.",
    ),
]
Restarts: TypeAlias = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="With a disk or an external store: serve all requests N times more, each time by a "
        "new cache over what is there.",
    ),
]
Window: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Sliding window, in tokens; 0 for none. "
        f"{usual(CHAT_SIZES.window_tokens, TRACE_SIZES.window_tokens)}",
    ),
]
MambaStates: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Device pool of mamba states. Usual: none."),
]
Writes: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar=f"{'|'.join(WritePolicy)},...",
        help="When data is copied to the host; several are compared. Usual: write_through.",
    ),
]
Evictions: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar=f"{'|'.join(EvictionPolicy)},...",
        help="Which leaf is evicted first; several are compared. Usual: lru.",
    ),
]
Events: TypeAlias = Annotated[bool, typer.Option(help="Whether the cache emits events.")]
GuardRate: TypeAlias = Annotated[
    float,
    typer.Option(min=0, max=1, metavar="RATE", help="Share of the steps that are judged."),
]
Plot: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="With several sizes: also draw the hit rate by size, as .svg or .png.",
    ),
]
HtmlPage: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        dir_okay=False,
        help="Also write a page: charts of all requests, and the tree call by call.",
    ),
]
HtmlSteps: TypeAlias = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="With --html: calls that are shown one by one."),
]
HtmlFrom: TypeAlias = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="With --html: the request with the first of them."),
]


def replay_command(
    cache: CacheName,
    *,
    trace: Trace = None,
    conversations: Conversations = 150,
    seed: Seed = 0,
    limit: Limit = None,
    page_size: PageSize = None,
    block_tokens: BlockTokens = None,
    tokenizer: TokenizerName = None,
    turns: TurnsOption = Turns.AUTO,
    pool_tokens: Pools = None,
    host_tokens: Hosts = None,
    disk_tokens: Disk = None,
    external_tokens: External = None,
    external_sharers: Sharers = None,
    restarts: Restarts = 0,
    window: Window = None,
    swa_tokens: SwaTokens = None,
    mamba_states: MambaStates = None,
    write_policy: Writes = None,
    eviction_policy: Evictions = None,
    events: Events = True,
    guard: GuardRate = 0.0,
    as_json: AsJson = False,
    plot: Plot = None,
    html: HtmlPage = None,
    html_steps: HtmlSteps = 10_000,
    html_from: HtmlFrom = 1,
) -> None:
    """Replay requests on a cache: hits, evictions, copies, time, and which laws were exercised.

    Several sizes or policies, between commas, are compared in one table.
    """
    require_files({"--html": html, "--plot": plot})
    read_as = _read_as(trace, TraceOptions(block_tokens, tokenizer, turns))
    workload = Workload(trace, conversations, seed, limit, read_as)
    variants = _variants(pool_tokens, host_tokens, write_policy, eviction_policy)
    options: dict[str, object] = {
        "page_size": page_size,
        "window_tokens": window,
        "swa": swa_tokens,
        "mamba_states": mamba_states,
        "disk": disk_tokens,
        "external": external_tokens,
        "sharers": external_sharers,
    }
    _require_store(disk_tokens, external_tokens, external_sharers, restarts)
    if restarts and html is not None:
        raise UsageError("--html shows one cache; leave --restarts out")
    adapter = evolve(load_adapter(cache), name=cache)
    read = workload.read()
    usual_sizes = workload.usual_sizes(read).with_options(events=events)
    if variants.are_several:
        if guard or html is not None or restarts:
            raise UsageError(f"{ONE_RUN} are about one run; give one value of each option")
        runs = compare(adapter, usual_sizes, variants, options, read.requests)
        _compare(cache, workload, runs, read.notes, as_json=as_json, plot=plot)
        return
    if plot is not None:
        raise UsageError("--plot draws hit rates by size; give several sizes to --pool-tokens")
    options |= next(variants.options())
    given = {name for name, value in options.items() if value is not None}
    fit = Fit(adapter, given, list(read.notes))
    sizes = fit.sizes(usual_sizes.with_options(**options))
    page = PageOptions(html, html_steps, html_from)
    requests = fit.requests(read.requests)
    _replay_one(
        fit, sizes, workload, requests, restarts=restarts, guard=guard, page=page, as_json=as_json
    )


@frozen
class PageOptions:
    """The page that is written beside the report."""

    path: Path | None
    steps: int
    first_request: int


def _replay_one(
    fit: Fit,
    sizes: WorkloadSizes,
    workload: Workload,
    requests: Sequence[Request],
    *,
    restarts: int,
    guard: float,
    page: PageOptions,
    as_json: bool,
) -> None:
    """Replay on a cache of one size, and report it. Raises: UsageError, typer.Exit."""
    adapter, store, seed = fit.adapter, store_of(sizes), workload.seed
    make = partial(make_cache, adapter, sizes.config(requests), store)
    subject = make()
    fit.note_missing(subject, subject.cache.config)
    recorder = ReplayRecorder(subject, first_request=page.first_request, most_steps=page.steps)
    watch = None if page.path is None else recorder

    def serve(each: ReplaySubject) -> Replay:
        with _named_failures(adapter.name), progress(requests, f"replay {adapter.name}") as shown:
            return replay(each, shown, guard, seed, adapter.profile, watch=watch, store=store)

    results = _until_broken(map(serve, _restarted(subject, make, store, restarts)))
    of_run = (adapter.name, workload, subject.cache.config, results, fit.notes)
    print_json(replay_json(*of_run)) if as_json else print_replay(*of_run)
    if page.path is not None:
        facts = (("cache", adapter.name), ("requests", f"{workload}, seed {seed}"))
        write_file(page.path, show_page(recorder.run(f"Replay on {adapter.name}", facts)))
    _end(results[-1].judgement)


def _require_store(
    disk: PoolSize | None, external: PoolSize | None, sharers: int | None, restarts: int
) -> None:
    """Refuse restarts that begin with nothing, and others who share nothing. Raises: UsageError."""
    nothing = {None, NO_POOL}
    if restarts and {disk, external} <= nothing:
        raise UsageError(
            "--restarts serves from what a store has; give --disk-tokens or --external-tokens"
        )
    if sharers and external in nothing:
        raise UsageError("--external-sharers write to an external store; give --external-tokens")


def _restarted(
    first: ReplaySubject,
    make: Callable[[], ReplaySubject],
    store: ReplayStore | None,
    restarts: int,
) -> Iterator[ReplaySubject]:
    """The cache of each run, over what the runs before have left in the store."""
    yield first
    if store is None:
        return
    for _ in range(restarts):
        store.restart()
        yield make()


def _until_broken(results: Iterator[Replay]) -> list[Replay]:
    """The results up to the first that breaks a law."""
    taken = []
    for result in results:
        taken.append(result)
        if result.judgement is not None and result.judgement.broken:
            break
    return taken


def _read_as(trace: Path | None, options: TraceOptions) -> TraceOptions:
    """How a trace is read. Raises: UsageError, if there is none."""
    if trace is None and options != TraceOptions():
        raise UsageError("--block-tokens, --tokenizer and --turns say how --trace is read; give it")
    return options


def _variants(
    pools: PoolSizes | None, hosts: PoolSizes | None, writes: str | None, evictions: str | None
) -> Variants:
    """What is compared. Raises: UsageError."""
    return Variants(
        pools.each if pools else (),
        hosts.each if hosts else (),
        _several("--write-policy", writes, WritePolicy),
        _several("--eviction-policy", evictions, EvictionPolicy),
    )


def _end(judgement: Judgement | None) -> None:
    """End with the exit code of what was judged. Raises: UsageError, typer.Exit."""
    if judgement is not None and judgement.broken:
        raise typer.Exit(BROKEN)
    if judgement is not None and not any(judgement.laws.values()):
        raise UsageError("nothing was judged: raise --guard, or replay more requests")


def _compare(
    cache: str,
    workload: Workload,
    runs: Iterator[ComparedRun],
    notes: Sequence[str],
    *,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Replay all runs, and report them. Raises: UsageError."""
    if plot is not None:
        require_matplotlib()
    done: list[ComparedRun] = []
    with _named_failures(cache), signs_of_life() as note:
        for run in runs:
            done.append(run)
            note(f"replay {cache}, runs", len(done), None)
    if as_json:
        print_json([replay_json(cache, workload, r.config, [r.result], notes) for r in done])
    else:
        print_comparison(cache, workload, done, notes)
    if plot is not None:
        draw_curves(plot, f"{workload}, {cache}", done)
        typer.echo(f"Wrote {plot.resolve()}", err=True)


@contextmanager
def _named_failures(cache: str) -> Iterator[None]:
    """Let an exception of the cache end the command in one line. Raises: UsageError."""
    try:
        yield
    except (UsageError, typer.BadParameter):
        raise
    except Exception as error:
        raise UsageError(f"the replay of {cache} failed: {describe_exception(error)}") from error


def _several(option: str, text: str | None, kind: type[Policy]) -> tuple[Policy, ...]:
    """The policies between commas. Raises: UsageError."""
    names = [] if text is None else [each.strip() for each in text.split(",")]
    for name in names:
        if name not in tuple(kind):
            raise UsageError(f"{option} has no {name!r}; choose of {', '.join(kind)}")
    return tuple(dict.fromkeys(map(kind, names)))
