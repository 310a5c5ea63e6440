"""`kvcanon watch`: follows the KV events of running engines, and judges them live."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.live_options import (
    ClosedOption,
    HashChoice,
    HashesOption,
    IgnoreOption,
    RepeatChoice,
    RepeatsOption,
    follower_config,
    require_live,
)
from kvcanon.conformance.cli.options import require_files, require_no_file
from kvcanon.conformance.cli.terminal import ReportConsole
from kvcanon.conformance.errors import UsageError
from kvcanon.printable import printable

if TYPE_CHECKING:
    from kvcanon.live.follower import FollowerConfig
    from kvcanon.live.frames import Source
    from kvcanon.live.watch import StreamWatch

MOST_RANKS = 256
REFRESH_S = 0.5
LINES_A_SECOND = 20
"""Violations that are printed in a second; the others are counted."""


def watch_command(
    endpoints: Annotated[
        list[str], typer.Argument(help="Where publishers send, as tcp://127.0.0.1:5557.")
    ],
    *,
    replay: Annotated[
        list[str] | None,
        typer.Option(help="The replay endpoint of each publisher, in the same order."),
    ] = None,
    ranks: Annotated[
        int, typer.Option(min=1, max=MOST_RANKS, help="Data-parallel ranks of each endpoint.")
    ] = 1,
    topic: Annotated[str, typer.Option(help="Follow topics that begin so.")] = "",
    hashes: HashesOption = HashChoice.AUTO,
    repeats: RepeatsOption = RepeatChoice.AUTO,
    closed: ClosedOption = None,
    ignore: IgnoreOption = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all frames, for `kvcanon audit`.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve Prometheus metrics here; 0 chooses a port."),
    ] = None,
    metrics_address: Annotated[
        str, typer.Option(help="The address that metrics are served on.")
    ] = "127.0.0.1",
    fail_on_violation: Annotated[
        bool, typer.Option("--fail-on-violation", help="End with 1 at the first broken law.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="End after so many seconds.")
    ] = None,
) -> int:
    """Follow the KV events of engines, and check the laws that they show by themselves.

    Shows a dashboard on a terminal, and otherwise a line for each violation. Ends by Ctrl-C
    or SIGTERM, with a summary.
    """
    require_live()
    if replay and len(replay) != len(endpoints):
        raise UsageError(
            f"{len(endpoints)} endpoints and {len(replay)} of --replay; give one for each, in order"
        )
    require_files({"--record": record})
    require_no_file(record)
    config = follower_config(hashes, repeats, closed, ignore)
    sources = _sources(endpoints, replay or (None,) * len(endpoints), ranks)
    out = ReportConsole()
    with ExitStack() as stack:
        watch = _opened(sources, topic, config, record, stack)
        if metrics_port is not None:
            stack.callback(_serve_metrics(watch, metrics_port, metrics_address))
        live = None
        if out.is_terminal:
            live = stack.enter_context(Live(console=out, screen=True, auto_refresh=False))
        # Ctrl-C is the usual end of a watch, and SIGTERM that of one in a container.
        with suppress(KeyboardInterrupt), _ended_by_sigterm():
            _follow(watch, live, seconds, fail_on_violation=fail_on_violation)
        watch.read_rates()
    _print_summary(out, watch)
    heard = len(watch.silent()) < len(sources)
    return BROKEN if not heard or (fail_on_violation and watch.streams.total) else 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end what is inside as Ctrl-C does; the first process of a container, too.

    To that one the system sends no signal which it does not handle.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# The extra may be missing, and the command line works without it: its modules are imported where
# they are used.


def _sources(
    endpoints: Sequence[str], replays: Sequence[str | None], ranks: int
) -> tuple[Source, ...]:
    """Every rank of every publisher. Raises: BadEndpoint."""
    from kvcanon.live.endpoints import endpoint_of_rank  # noqa: PLC0415
    from kvcanon.live.frames import Source  # noqa: PLC0415

    return tuple(
        Source(
            endpoint_of_rank(endpoint, rank),
            None if replay is None else endpoint_of_rank(replay, rank),
        )
        for endpoint, replay in zip(endpoints, replays, strict=True)
        for rank in range(ranks)
    )


def _opened(
    sources: Sequence[Source],
    topic: str,
    config: FollowerConfig,
    record: Path | None,
    stack: ExitStack,
) -> StreamWatch:
    """A watch, and its recording. Raises: BadEndpoint."""
    from kvcanon.live.follower import Streams  # noqa: PLC0415
    from kvcanon.live.stream_recording import StreamRecorder  # noqa: PLC0415
    from kvcanon.live.subscriber import Subscriber  # noqa: PLC0415
    from kvcanon.live.watch import StreamWatch  # noqa: PLC0415

    subscriber = stack.enter_context(Subscriber(sources, topic=topic))
    recorder = None
    if record is not None:
        recorder = stack.enter_context(StreamRecorder(record, sources))
    return StreamWatch(subscriber, Streams(config), recorder)


def _serve_metrics(watch: StreamWatch, port: int, address: str) -> Callable[[], None]:
    """Serve metrics, and return what ends it. Raises: UsageError."""
    from kvcanon.live.metrics import start_metrics  # noqa: PLC0415

    try:
        chosen, close = start_metrics(watch, port, address)
    except OSError as error:
        raise UsageError(
            f"metrics cannot be served on {address}:{port}: {error.strerror or error}; choose "
            "another --metrics-port"
        ) from error
    typer.echo(f"metrics on http://{address}:{chosen}/metrics", err=True)
    return close


def _follow(
    watch: StreamWatch, live: Live | None, seconds: float | None, *, fail_on_violation: bool
) -> None:
    """Receive and show, until it ends."""
    from kvcanon.live.watch import dashboard, finding_line  # noqa: PLC0415

    end = None if seconds is None else time.monotonic() + seconds
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
        if found and fail_on_violation:
            return


def _print_summary(out: Console, watch: StreamWatch) -> None:
    from kvcanon.live.watch import dashboard  # noqa: PLC0415

    out.print(dashboard(watch))
    for finding in list(watch.latest)[:1]:
        out.print(printable(f"{finding.law_id}: {finding.belief}"), markup=False)
    for source in watch.silent():
        typer.echo(
            f"nothing came from {printable(source.endpoint)}: check the address, the topic, and "
            "that the engine publishes KV events",
            err=True,
        )
