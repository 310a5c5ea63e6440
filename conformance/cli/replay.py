"""`kvcanon replay`: serves requests from a cache, and reports hits, evictions, copies and time.

Without `--guard` nothing is judged, and the report says so. `--guard` gives the share of the steps
that is judged; 1 is every step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from attrs import evolve

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, CacheName, require_files, write_file
from kvcanon.conformance.cli.replay_report import print_replay, replay_json
from kvcanon.conformance.cli.terminal import print_json, progress
from kvcanon.conformance.cli.workload_options import (
    SIZE,
    Conversations,
    Limit,
    PoolTokens,
    Seed,
    SwaTokens,
    Trace,
    usual,
)
from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.replay.fitted_cache import Fit, make_cache
from kvcanon.conformance.replay.replay import replay
from kvcanon.conformance.replay.workload import (
    CHAT_SIZES,
    TRACE_SIZES,
    PoolSize,
    Workload,
    pool_size,
)
from kvcanon.conformance.show.page import show_page
from kvcanon.conformance.show.replay_run import ReplayRecorder
from kvcanon.spec.types import EvictionPolicy, WritePolicy

PageSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Tokens a page. {usual(CHAT_SIZES.page_size, TRACE_SIZES.page_size)}",
    ),
]
HostTokens: TypeAlias = Annotated[
    PoolSize | None,
    typer.Option(
        parser=pool_size,
        metavar=SIZE,
        help="Host pool, in tokens; every other host pool is as many times larger than its device "
        f"pool as this one. {usual(CHAT_SIZES.host, TRACE_SIZES.host)}",
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
    WritePolicy | None,
    typer.Option(help="When data is copied to the host. Usual: write_through."),
]
Evictions: TypeAlias = Annotated[
    EvictionPolicy | None, typer.Option(help="Which leaf is evicted first. Usual: lru.")
]
Events: TypeAlias = Annotated[bool, typer.Option(help="Whether the cache emits events.")]
GuardRate: TypeAlias = Annotated[
    float,
    typer.Option(min=0, max=1, metavar="RATE", help="Share of the steps that are judged."),
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
    pool_tokens: PoolTokens = None,
    host_tokens: HostTokens = None,
    window: Window = None,
    swa_tokens: SwaTokens = None,
    mamba_states: MambaStates = None,
    write_policy: Writes = None,
    eviction_policy: Evictions = None,
    events: Events = True,
    guard: GuardRate = 0.0,
    as_json: AsJson = False,
    html: HtmlPage = None,
    html_steps: HtmlSteps = 10_000,
    html_from: HtmlFrom = 1,
) -> None:
    """Replay requests on a cache: hits, evictions, copies, time, and which laws were exercised."""
    require_files({"--html": html})
    workload = Workload(trace, conversations, seed, limit)
    options: dict[str, object] = {
        "page_size": page_size,
        "pool": pool_tokens,
        "host": host_tokens,
        "window_tokens": window,
        "swa": swa_tokens,
        "mamba_states": mamba_states,
        "write_policy": write_policy,
        "eviction_policy": eviction_policy,
    }
    given = {name for name, value in options.items() if value is not None}
    adapter = evolve(load_adapter(cache), name=cache)
    fit = Fit(adapter, given)
    sizes = fit.sizes(workload.usual_sizes.with_options(**options, events=events))
    requests = fit.requests(workload.requests())
    subject = make_cache(adapter, sizes.config(requests))
    config = subject.cache.config
    fit.note_missing(subject, config)
    recorder = None
    if html is not None:
        recorder = ReplayRecorder(subject, first_request=html_from, most_steps=html_steps)
    try:
        with progress(requests, f"replay {cache}") as shown:
            result = replay(subject, shown, guard, seed, adapter.profile, watch=recorder)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"the replay of {cache} failed: {describe_exception(error)}") from error
    if as_json:
        print_json(replay_json(cache, workload, config, result, fit.notes))
    else:
        print_replay(cache, workload, config, result, fit.notes)
    if recorder is not None and html is not None:
        facts = (("cache", cache), ("requests", f"{workload}, seed {seed}"))
        write_file(html, show_page(recorder.run(f"Replay on {cache}", facts)))
    judgement = result.judgement
    if judgement is not None and judgement.broken:
        raise typer.Exit(BROKEN)
    if judgement is not None and not any(judgement.laws.values()):
        raise UsageError("nothing was judged: raise --guard, or replay more requests")
