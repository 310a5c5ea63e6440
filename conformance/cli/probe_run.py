"""Runs `kvcanon probe`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from attrs import asdict, evolve, frozen

from kvcanon.conformance.cli.exit_codes import BROKEN
from kvcanon.conformance.cli.files import write_file
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    print_json,
    print_title,
    signs_of_life,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.discovery import ApiName, api_of
from kvcanon.conformance.probe.findings import ProbeFinding
from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.premises import with_options
from kvcanon.conformance.probe.report_text import report_json, report_lines
from kvcanon.conformance.probe.repro_script import script_of
from kvcanon.conformance.probe.rounds import ROUNDS
from kvcanon.conformance.probe.served_log import logged_request
from kvcanon.conformance.probe.session import ProbeLimits, ProbeResult, ProbeSession
from kvcanon.conformance.probe.transport import EngineAddress, ServerProblem, address_of

if TYPE_CHECKING:
    from kvcanon.conformance.probe.beside import StreamBeside

_NO_EXTRA_KEYS = (
    "extra_key: it is not sent beside the stream, since SGLang leaves it out of hashes and events, "
    "and blocks of two keys are one to a router; it is without --events"
)


@frozen
class ProbeOptions:
    """What the command line asks for."""

    url: str
    api: ApiName
    model: str
    api_key: str
    events: str | None
    replay: str | None
    ignored: frozenset[str]
    seed: int
    seconds: float
    requests: int
    only: frozenset[str]
    flush: bool
    window: int | None
    page: int | None
    pool_tokens: int | None
    host_tier: bool | None
    margin: float
    vocabulary: int
    timeout: float
    script: Path | None
    record: Path | None
    log: Path | None
    as_json: bool


def named_rounds(given: str) -> frozenset[str]:
    """The names of rounds between commas. Raises: UsageError."""
    names = frozenset(name.strip() for name in given.split(",") if name.strip())
    known = [each.name for each in ROUNDS]
    for name in sorted(names - set(known)):
        raise UsageError(f"--only {name}: there is no such round; choose of {', '.join(known)}")
    return names


def run_probe(options: ProbeOptions) -> int:
    """Probe a server, and print what was found. Raises: UsageError."""
    address = address_of(options.url, options.api_key, options.timeout)
    with ExitStack() as stack:
        player, beside = _player(options, address, stack)
        try:
            with signs_of_life() as note:
                result = _session(options, player, beside, note).run()
        except ServerProblem as problem:
            raise UsageError(str(problem)) from problem
        if beside is not None:
            _note_beside(beside, result)
        sums = None if beside is None else asdict(beside.sums)
    if options.as_json:
        print_json(report_json(result, options.seed, sums))
    else:
        out = ReportConsole()
        print_title(out, "kvcanon probe", f"{address.url}  seed {options.seed}")
        for line in report_lines(result, sums):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    # A disk may be full, which must not take the report with it.
    _write_script(options, address, result)
    return BROKEN if result.shown else 0


def _player(
    options: ProbeOptions, address: EngineAddress, stack: ExitStack
) -> tuple[ProbePlayer, StreamBeside | None]:
    """Ask the server what it is, and connect to its events. Raises: UsageError."""
    run = f"kvcanon-{options.seed}-{time.time_ns() // 1000:x}-{os.getpid():x}"
    try:
        api = api_of(address, options.api, run, options.model)
        facts = api.facts()
    except ServerProblem as problem:
        raise UsageError(str(problem)) from problem
    facts = with_options(
        facts,
        window=options.window,
        pool_tokens=options.pool_tokens,
        page_size=options.page,
        host=options.host_tier,
    )
    beside = None if options.events is None else _beside(options, stack)
    if beside is not None and facts.extra_keys:
        said = (*facts.not_said, _NO_EXTRA_KEYS)
        facts = evolve(facts, extra_keys=False, not_said=said)
    log = None if options.log is None else _log(options.log, stack)
    return (
        ProbePlayer(
            api,
            facts,
            run,
            time.monotonic() + options.seconds,
            options.requests,
            beside,
            log,
        ),
        beside,
    )


def _session(
    options: ProbeOptions,
    player: ProbePlayer,
    beside: StreamBeside | None,
    note: Callable[[str, int, int | None], None],
) -> ProbeSession:
    limits = ProbeLimits(
        options.seed,
        options.seconds,
        options.requests,
        options.margin,
        options.vocabulary,
        options.flush,
        options.only,
    )

    def found_beside() -> list[ProbeFinding]:
        if beside is None:
            return []
        return beside.take_found(str(options.events), sent=player.computed > 0)

    def say(round_name: str) -> None:
        note(f"{round_name}, requests so far", options.requests - player.requests_left, None)

    return ProbeSession(player, limits, found_beside, say)


def _beside(options: ProbeOptions, stack: ExitStack) -> StreamBeside:
    """Connect to the events of the server. Raises: UsageError."""
    # The extra `live` may be missing, and the command works without it.
    from kvcanon.conformance.probe.beside import stream_beside  # noqa: PLC0415
    from kvcanon.live.endpoints import BadEndpoint  # noqa: PLC0415
    from kvcanon.live.frames import Source  # noqa: PLC0415

    source = Source(str(options.events), options.replay)
    try:
        return stack.enter_context(stream_beside(source, options.ignored, options.record))
    except BadEndpoint as error:
        raise UsageError(str(error)) from error


def _log(path: Path, stack: ExitStack) -> Callable[..., None]:
    """Write each request as a line of JSON, at once, so that a full disk shows soon."""
    file = stack.enter_context(path.open("wb", buffering=0))

    def write(real: Any, sent: Any) -> None:  # noqa: ANN401
        line: Mapping[str, Any] | None = logged_request(real, sent)
        if line is not None:
            try:
                file.write(json.dumps(line).encode() + b"\n")
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error

    return write


def _note_beside(beside: StreamBeside, result: ProbeResult) -> None:
    """Say what of the stream could not be compared."""
    if beside.unknown:
        result.not_shown.append(
            f"{beside.unknown} requests beside the stream: it is that of several ranks, or of "
            "several groups of layers"
        )
    if beside.late:
        result.not_shown.append(
            f"{beside.late} requests beside the stream: events of the one before came late, or the "
            "clock of the server is behind"
        )


def _write_script(options: ProbeOptions, address: EngineAddress, result: ProbeResult) -> None:
    shown = next((each for each in result.shown if each.requests), None)
    if options.script is None:
        return
    if shown is None:
        typer.echo(
            f"nothing was found that requests show: {options.script} is not written", err=True
        )
        return
    write_file(options.script, script_of(shown, address, result.facts, options.margin))
    typer.echo(f"the requests of the first finding: {options.script}", err=True)
