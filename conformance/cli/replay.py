"""`kvcanon replay`: requests through a cache, and what came of it.

What readers get wrong: without `--guard` nothing is judged, and the report says so. With it, a
share of the steps is: 1 is every step.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kvcanon.conformance.bench.replay import replay
from kvcanon.conformance.cli.caches import make_cache
from kvcanon.conformance.cli.options import (
    SIZE,
    AsJson,
    CacheName,
    Conversations,
    Limit,
    PoolTokens,
    Seed,
    SwaTokens,
    Trace,
    usual,
)
from kvcanon.conformance.cli.replay_report import print_replay, replay_json
from kvcanon.conformance.cli.terminal import print_json, progress
from kvcanon.conformance.cli.workload import CHAT_SIZES, TRACE_SIZES, PoolSize, Workload, pool_size
from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.spec.types import EvictionPolicy, WritePolicy

BROKEN = 1


def replay_command(
    cache: CacheName,
    *,
    trace: Trace = None,
    conversations: Conversations = 150,
    seed: Seed = 0,
    limit: Limit = None,
    page_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Tokens a page. {usual(CHAT_SIZES.page_size, TRACE_SIZES.page_size)}",
        ),
    ] = None,
    pool_tokens: PoolTokens = None,
    host_tokens: Annotated[
        PoolSize | None,
        typer.Option(
            parser=pool_size,
            metavar=SIZE,
            help="Host pool, in tokens; the other host pools are larger than their device pools "
            f"by the same factor. {usual(CHAT_SIZES.host, TRACE_SIZES.host)}",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Sliding window, in tokens; 0 for none. "
            f"{usual(CHAT_SIZES.window_tokens, TRACE_SIZES.window_tokens)}",
        ),
    ] = None,
    swa_tokens: SwaTokens = None,
    mamba_states: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Device pool of recurrent states. Usual: none."),
    ] = None,
    write_policy: Annotated[
        WritePolicy | None,
        typer.Option(help="When data is copied to the host. Usual: write_through."),
    ] = None,
    eviction_policy: Annotated[
        EvictionPolicy | None, typer.Option(help="Which leaf leaves first. Usual: lru.")
    ] = None,
    events: Annotated[bool, typer.Option(help="Whether the cache tells routers.")] = True,
    guard: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="RATE", help="Share of the steps that are judged."),
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Put requests through a cache: hits, evictions, copies, time, and the laws that were asked."""
    workload = Workload(trace, conversations, seed, limit)
    sizes = workload.usual_sizes.with_options(
        page_size=page_size,
        pool=pool_tokens,
        host=host_tokens,
        window_tokens=window,
        swa=swa_tokens,
        mamba_states=mamba_states,
        write_policy=write_policy,
        eviction_policy=eviction_policy,
        events=events,
    )
    requests = workload.requests()
    subject = make_cache(cache, sizes.config(requests))
    try:
        with progress(requests, f"replay {cache}") as shown:
            result = replay(subject, shown, guard_rate=guard, seed=seed)
    except Exception as error:
        raise UsageError(f"the replay of {cache} failed: {describe_exception(error)}") from error
    if as_json:
        print_json(replay_json(cache, workload, subject.config, result))
    else:
        print_replay(cache, workload, subject.config, result)
    judgement = result.judgement
    if judgement is not None and judgement.broken:
        raise typer.Exit(BROKEN)
    if judgement is not None and not any(judgement.laws.values()):
        raise UsageError("nothing was judged: raise --guard, or replay more requests")
