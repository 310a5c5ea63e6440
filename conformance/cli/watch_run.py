"""Runs `kvcanon watch`; apart, since it needs the extra `live`."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path

import typer
from attrs import frozen
from rich.console import Console
from rich.live import Live

from kvcanon.conformance.cli.exit_codes import BROKEN
from kvcanon.conformance.cli.terminal import ReportConsole
from kvcanon.conformance.errors import UsageError
from kvcanon.live.dashboard import dashboard, finding_line
from kvcanon.live.endpoints import BadEndpoint, endpoint_of_rank
from kvcanon.live.follower import FollowerConfig, HashRule
from kvcanon.live.frames import Source
from kvcanon.live.metrics import start_metrics
from kvcanon.live.recording import StreamRecorder
from kvcanon.live.subscriber import Subscriber
from kvcanon.live.watch import StreamWatch

REFRESH_S = 0.5
LINES_A_SECOND = 20
"""Violations that are printed in a second; the others are counted."""


@frozen
class WatchOptions:
    """What the command line asks for."""

    endpoints: tuple[str, ...]
    replay: tuple[str, ...]
    ranks: int
    topic: str
    hashes: str
    closed_host: bool
    ignored: frozenset[str]
    record: Path | None
    metrics_port: int | None
    metrics_address: str
    fail_on_violation: bool
    seconds: float | None


def run_watch(options: WatchOptions) -> int:
    """Watch until time is up, Ctrl-C, or a violation that ends it; then print a summary."""
    out = ReportConsole()
    with ExitStack() as stack:
        watch = _open(options, stack)
        live = None
        if out.is_terminal:
            live = stack.enter_context(Live(console=out, screen=True, auto_refresh=False))
        # Ctrl-C is the usual end of a watch.
        with suppress(KeyboardInterrupt):
            _follow(options, watch, live)
        watch.read_rates()
    _summary(out, watch)
    silent = watch.silent()
    for source in silent:
        typer.echo(
            f"nothing came from {source.endpoint}: check the address, the topic, and that the "
            "engine publishes KV events",
            err=True,
        )
    heard = len(silent) < len(watch.subscriber.sources)
    return BROKEN if not heard or (options.fail_on_violation and watch.streams.total) else 0


def sources_of(options: WatchOptions) -> list[Source]:
    """Every rank of every publisher. Raises: UsageError."""
    replays = options.replay or (None,) * len(options.endpoints)
    try:
        return [
            Source(
                endpoint_of_rank(endpoint, rank),
                None if replay is None else endpoint_of_rank(replay, rank),
            )
            for endpoint, replay in zip(options.endpoints, replays, strict=True)
            for rank in range(options.ranks)
        ]
    except BadEndpoint as error:
        raise UsageError(str(error)) from error


def _open(options: WatchOptions, stack: ExitStack) -> StreamWatch:
    config = FollowerConfig(
        hashes=HashRule[options.hashes.upper()],
        host_is_closed=options.closed_host,
        ignored=options.ignored,
    )
    sources = sources_of(options)
    try:
        subscriber = stack.enter_context(Subscriber(sources, topic=options.topic))
    except BadEndpoint as error:
        raise UsageError(str(error)) from error
    recorder = None
    if options.record is not None:
        recorder = stack.enter_context(StreamRecorder(options.record, sources))
    watch = StreamWatch(subscriber, config, recorder)
    if options.metrics_port is not None:
        try:
            port, close = start_metrics(watch, options.metrics_port, options.metrics_address)
        except OSError as error:
            raise UsageError(
                f"metrics cannot be served on {options.metrics_address}:{options.metrics_port}: "
                f"{error.strerror or error}; choose another --metrics-port"
            ) from error
        stack.callback(close)
        typer.echo(f"metrics on http://{options.metrics_address}:{port}/metrics", err=True)
    return watch


def _follow(options: WatchOptions, watch: StreamWatch, live: Live | None) -> None:
    """Receive and show, until it ends."""
    end = None if options.seconds is None else time.monotonic() + options.seconds
    refreshed = 0.0
    printed = 0
    while end is None or time.monotonic() < end:
        found = watch.step(0.1)
        now = time.monotonic()
        if now - refreshed >= REFRESH_S:
            refreshed, printed = now, 0
            watch.read_rates()
            if watch.recorder is not None:
                watch.recorder.flush()
            if live is not None:
                live.update(dashboard(watch), refresh=True)
        if live is None:
            for finding in found[: max(0, LINES_A_SECOND - printed)]:
                typer.echo(finding_line(finding))
            printed += len(found)
        if found and options.fail_on_violation:
            return


def _summary(out: Console, watch: StreamWatch) -> None:
    out.print(dashboard(watch))
    for finding in list(watch.latest)[:1]:
        out.print(f"{finding.law_id}: {finding.belief}", markup=False)
