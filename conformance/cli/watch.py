"""`kvcanon watch`: follows the KV events of running engines, and judges them live."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from attrs import frozen
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
from kvcanon.conformance.cli.watch_options import (
    BindOption,
    DiscoverOption,
    EndpointsArgument,
    EveryOption,
    FailOnViolationOption,
    JsonLinesOption,
    KeepTokensOption,
    MetricsAddressOption,
    MetricsPortOption,
    RanksOption,
    RecordMegabytesOption,
    RecordOption,
    ReplayOption,
    SecondsOption,
    SilentAfterOption,
    TopicOption,
)
from kvcanon.conformance.cli.watch_output import JsonLines, Screen, TextLines, WatchOutput
from kvcanon.conformance.errors import UsageError

if TYPE_CHECKING:
    from kvcanon.live.discovery import Discovery
    from kvcanon.live.follower import FollowerConfig
    from kvcanon.live.frames import Source
    from kvcanon.live.watch import StreamWatch

REFRESH_S = 0.5
MOST_FILES = 1 << 16


def watch_command(
    endpoints: EndpointsArgument = None,
    *,
    replay: ReplayOption = None,
    ranks: RanksOption = 1,
    bind: BindOption = None,
    discover: DiscoverOption = None,
    every: EveryOption = 10.0,
    topic: TopicOption = "",
    hashes: HashesOption = HashChoice.AUTO,
    repeats: RepeatsOption = RepeatChoice.AUTO,
    closed: ClosedOption = None,
    ignore: IgnoreOption = None,
    record: RecordOption = None,
    record_megabytes: RecordMegabytesOption = 1024,
    keep_tokens: KeepTokensOption = False,
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
    silent_after: SilentAfterOption = 60.0,
    as_json: JsonLinesOption = False,
    fail_on_violation: FailOnViolationOption = False,
    seconds: SecondsOption = None,
) -> int:
    """Follow the KV events of engines, and check the laws that they show by themselves.

    Shows a dashboard on a terminal, and otherwise a line for each violation. Ends by Ctrl-C
    or SIGTERM, with a summary.
    """
    require_live()
    if replay and len(replay) != len(endpoints or ()):
        raise UsageError(
            f"{len(endpoints or ())} endpoints and {len(replay)} of --replay; give one for each, "
            "in order"
        )
    require_files({"--record": record})
    for path in (record, record and put_aside(record)):
        require_no_file(path)
    config = follower_config(hashes, repeats, closed, ignore)
    sources = _sources(endpoints or (), replay or (None,) * len(endpoints or ()), ranks, bind or ())
    if not sources and discover is None:
        raise UsageError("nobody is named; give endpoints, --bind ENDPOINT or --discover PLACE")
    out = ReportConsole()
    with ExitStack() as stack:
        recording = None
        if record is not None:
            recording = RecordingChoice(record, record_megabytes << 20, keeps_tokens=keep_tokens)
        watch = _opened(sources, topic, config, recording, stack)
        watch.silent_after_s = silent_after
        if discover is not None:
            watch.discovery = _discovery(discover, every)
        if metrics_port is not None:
            stack.callback(_serve_metrics(watch, metrics_port, metrics_address))
        shown: WatchOutput = JsonLines() if as_json else TextLines()
        if out.is_terminal and not as_json:
            shown = Screen(stack.enter_context(Live(console=out, screen=True, auto_refresh=False)))
        # Ctrl-C is the usual end of a watch, and SIGTERM that of one in a container.
        with suppress(KeyboardInterrupt), _ended_by_sigterm():
            _follow(watch, shown, seconds, fail_on_violation=fail_on_violation)
        watch.read_rates()
        watch.end_discovery()
        heard = len(watch.silent()) < len(watch.subscriber.sources)
    shown.end(watch, out)
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
    endpoints: Sequence[str], replays: Sequence[str | None], ranks: int, bound: Sequence[str]
) -> tuple[Source, ...]:
    """Every rank of every publisher. Raises: BadEndpoint, UsageError."""
    from kvcanon.live.endpoints import endpoint_of_rank  # noqa: PLC0415
    from kvcanon.live.frames import Source  # noqa: PLC0415

    sources = [
        Source(
            endpoint_of_rank(endpoint, rank),
            None if replay is None else endpoint_of_rank(replay, rank),
            rank if ranks > 1 else None,
        )
        for endpoint, replay in zip(endpoints, replays, strict=True)
        for rank in range(ranks)
    ]
    sources += [Source(each, is_bound=True) for each in bound]
    times = Counter(each.endpoint for each in sources)
    for endpoint, count in times.items():
        if count > 1:
            raise UsageError(f"{endpoint} is named {count} times; name each publisher once")
    return tuple(sources)


def put_aside(record: Path) -> Path:
    """Where a recording is put when it is begun anew."""
    return record.with_name(record.name + ".1")


@frozen
class RecordingChoice:
    """What is recorded, and where."""

    path: Path
    limit_bytes: int
    keeps_tokens: bool


def _opened(
    sources: Sequence[Source],
    topic: str,
    config: FollowerConfig,
    recording: RecordingChoice | None,
    stack: ExitStack,
) -> StreamWatch:
    """A watch, and its recording. Raises: BadEndpoint."""
    from kvcanon.live.follower import Streams  # noqa: PLC0415
    from kvcanon.live.stream_recording import StreamRecorder  # noqa: PLC0415
    from kvcanon.live.subscriber import Subscriber  # noqa: PLC0415
    from kvcanon.live.watch import StreamWatch  # noqa: PLC0415

    _allow_many_files()
    subscriber = stack.enter_context(Subscriber(sources, topic=topic))
    watch = StreamWatch(subscriber, Streams(config, sources))
    if recording is not None:
        watch.recorder = StreamRecorder(
            recording.path,
            sources,
            masks=not recording.keeps_tokens,
            limit_bytes=recording.limit_bytes,
        )
    stack.callback(watch.end_recording)
    return watch


def _allow_many_files() -> None:
    """Allow as many open files as the system lets this process have: sockets are files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _discovery(place: str, every_s: float) -> Discovery:
    """Where publishers are found. Raises: BadEndpoint, for what can never be read."""
    from kvcanon.live.discovery import Discovery, check_place  # noqa: PLC0415

    check_place(place)
    return Discovery(place, every_s)


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
    host = f"[{address}]" if ":" in address else address
    typer.echo(f"metrics on http://{host}:{chosen}/metrics", err=True)
    return close


def _follow(
    watch: StreamWatch, shown: WatchOutput, seconds: float | None, *, fail_on_violation: bool
) -> None:
    """Receive and show, until it ends."""
    end = None if seconds is None else time.monotonic() + seconds
    refreshed = 0.0
    while end is None or time.monotonic() < end:
        found = watch.step(0.1)
        now = time.monotonic()
        if now - refreshed >= REFRESH_S:
            refreshed = now
            watch.read_rates()
            watch.flush()
            shown.refresh(watch)
        shown.found(watch, found)
        if found and fail_on_violation:
            return
