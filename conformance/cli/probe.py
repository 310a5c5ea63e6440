"""`kvcanon probe`: judges a running engine over its HTTP interface."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from attrs import asdict, evolve

from kvcanon.conformance.cli.command_line import BROKEN, INCOMPLETE
from kvcanon.conformance.cli.live_options import IgnoreOption, ignored_laws, require_live
from kvcanon.conformance.cli.options import require_files, write_file
from kvcanon.conformance.cli.terminal import (
    ReportConsole,
    print_json,
    print_lines,
    print_title,
    signs_of_life,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.bounded_http import ClientCertificate, security_of
from kvcanon.conformance.probe.coverage import ProbeVerdict
from kvcanon.conformance.probe.discovery import ApiName, api_of
from kvcanon.conformance.probe.player import ProbePlayer, logged_request
from kvcanon.conformance.probe.report_text import report_json, report_lines
from kvcanon.conformance.probe.repro_script import script_of
from kvcanon.conformance.probe.request_judge import USUAL_MARGIN
from kvcanon.conformance.probe.rounds import ROUNDS
from kvcanon.conformance.probe.session import ProbeLimits, ProbeSession
from kvcanon.conformance.probe.talk import ProbeRequest, SentRequest
from kvcanon.conformance.probe.transport import EngineAddress, address_of, headers_of

if TYPE_CHECKING:
    from kvcanon.conformance.probe.beside import StreamBeside

_NO_EXTRA_KEYS = (
    "extra_key: it is not sent beside the stream, since SGLang leaves it out of hashes and events, "
    "and blocks of two keys are one to a router; it is without --events"
)

STANDARD_ERROR = 2
MOST_CHANGE_SECONDS = 600.0
"""How long a command may take that replaces weights."""
USUAL_RATE = 20.0
"""Requests a second. A probe without it sends 10 to 25 a second to a server on one core."""
EXIT_CODES = {
    ProbeVerdict.HELD: 0,
    ProbeVerdict.BROKEN: BROKEN,
    ProbeVerdict.INCOMPLETE: INCOMPLETE,
}

Url: TypeAlias = Annotated[str, typer.Argument(help="The server, as http://127.0.0.1:30000.")]
Api: TypeAlias = Annotated[
    ApiName, typer.Option(help="The server's interface; auto asks the server.")
]
Model: TypeAlias = Annotated[
    str, typer.Option(help="The model to ask, if an OpenAI interface lists several.")
]
ApiKey: TypeAlias = Annotated[
    str, typer.Option(envvar="KVCANON_API_KEY", help="The key that the server asks for.")
]
Header: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME: VALUE", help="A header of each request; repeat it for more."),
]
ClientCert: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The client's certificate, for a server that asks for one."),
]
ClientKey: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Its key, if it is not in the same file.")
]
Speculative: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--speculative",
        help="The server decodes speculatively, and computes the last page of a hit again.",
    ),
]
Changed: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Run this at the end, to replace weights or an adapter, and see that nothing stays.",
    ),
]
Events: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Its KV events, as tcp://127.0.0.1:5557: compared with its answers."),
]
Replay: TypeAlias = Annotated[
    str | None, typer.Option(help="With --events: the replay endpoint of the publisher.")
]
Seed: TypeAlias = Annotated[int, typer.Option(help="The seed of all prompts.")]
Seconds: TypeAlias = Annotated[
    float, typer.Option(min=1, help="No request begins after so many seconds.")
]
Requests: TypeAlias = Annotated[int, typer.Option(min=1, help="The most requests.")]
Tokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The most tokens that the server computes: half of its pool if none are given, or "
        "50,000 if it does not say how large that is; any number with --fill.",
    ),
]
Rate: TypeAlias = Annotated[float, typer.Option(min=0.01, help="Requests that begin in a second.")]
AtOnce: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Requests that run at one time; no round has more than 3.")
]
Fill: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--fill",
        help="Play the rounds that fill the pool, too: they evict what others have cached.",
    ),
]
Only: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME,...", help="Play these rounds only, and repeats.")
]
Flush: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--flush",
        help="Where a server takes no salts, empty its cache before prompts: never while others "
        "use it.",
    ),
]
Window: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, help="Tokens of the sliding window; 0 if no layer has one or a state."),
]
PageTokens: TypeAlias = Annotated[
    int | None, typer.Option("--page", min=1, help="Tokens of a page, or block.")
]
PoolTokens: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Tokens that fit into the cache on the device.")
]
HostTier: TypeAlias = Annotated[
    bool | None,
    typer.Option("--host-tier/--no-host-tier", help="Whether prompts are also kept elsewhere."),
]
Margin: TypeAlias = Annotated[
    float, typer.Option(min=0, help="The most that rounding changes a log-probability.")
]
Vocabulary: TypeAlias = Annotated[
    int, typer.Option(min=16, help="Prompts are drawn of token ids below this.")
]
Timeout: TypeAlias = Annotated[
    float, typer.Option(min=0.1, max=86_400, help="Seconds for one answer.")
]
ScriptFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the requests that show the first finding."),
]
RecordFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --events: write them, for `kvcanon audit`."),
]
LogFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write prompts and cached tokens, for `kvcanon audit --served`."
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def probe_command(
    url: Url,
    *,
    api: Api = ApiName.AUTO,
    model: Model = "",
    api_key: ApiKey = "",
    header: Header = None,
    client_cert: ClientCert = None,
    client_key: ClientKey = None,
    events: Events = None,
    replay: Replay = None,
    ignore: IgnoreOption = None,
    seed: Seed = 0,
    seconds: Seconds = 55.0,
    requests: Requests = 1000,
    tokens: Tokens = None,
    rate: Rate = USUAL_RATE,
    at_once: AtOnce = 3,
    fill: Fill = False,
    only: Only = "",
    flush: Flush = False,
    changed: Changed = None,
    speculative: Speculative = False,
    window: Window = None,
    page: PageTokens = None,
    pool_tokens: PoolTokens = None,
    host_tier: HostTier = None,
    margin: Margin = USUAL_MARGIN,
    vocabulary: Vocabulary = 256,
    timeout: Timeout = 60.0,
    script: ScriptFile = None,
    record: RecordFile = None,
    log: LogFile = None,
    as_json: AsJson = False,
) -> int:
    """Judge a running engine: its tokens, its cached tokens, its namespaces and its KV events.

    Prompts go out under fresh salts, so what others have cached is never used. --fill fills the
    pool, which evicts it. Ends with 0 if nothing is wrong, with 1 if a law is broken or the server
    ends, with 2 if it cannot be probed, and with 3 if too little was played.
    """
    require_files({"--script": script, "--record": record, "--log": log})
    _require_events(events, {"--replay": replay, "--record": record, "--ignore": ignore})
    change = None if changed is None else partial(_run_change, changed)
    named = _named_rounds(only, fill=fill, changes=change is not None)
    limits = ProbeLimits(
        seed, seconds, requests, tokens, rate, at_once, fill, margin, vocabulary, named, change
    )
    certificate = _certificate(client_cert, client_key)
    address = address_of(url, api_key, timeout, headers_of(header or ()), certificate)
    player = _player(address, api, model, limits)
    player.may_flush = flush
    player.facts = player.facts.but(
        window=window,
        pool_tokens=pool_tokens,
        page_size=page,
        has_host=host_tier,
        speculative=speculative or None,
    )
    with ExitStack() as stack:
        beside = None
        if events is not None:
            beside = _beside(events, replay, ignored_laws(ignore), record, stack)
        if log is not None:
            player.log = _log(log, stack)
        result = _probed(player, limits, beside)
    _print_report(result, beside, address, as_json=as_json)
    if script is not None:  # A full disk must not take the report with it.
        _write_script(script, address, result, margin)
    return EXIT_CODES[result.verdict]


def _require_events(events: str | None, about: Mapping[str, object]) -> None:
    """Refuse options about KV events where no address of them is given. Raises: UsageError."""
    for name, value in about.items():
        if value and events is None:
            raise UsageError(f"{name} is about KV events; give their address by --events")
    if events is not None:
        require_live()


def _print_report(
    result: ProbeSession, beside: StreamBeside | None, address: EngineAddress, *, as_json: bool
) -> None:
    """Print the report, as text or as JSON."""
    sums, seed = None if beside is None else asdict(beside.sums), result.limits.seed
    if as_json:
        print_json(report_json(result, seed, sums))
        return
    out = ReportConsole()
    print_title(out, "kvcanon probe", f"{address.url}  seed {seed}")
    print_lines(out, report_lines(result, sums))


def _certificate(file: Path | None, key: Path | None) -> ClientCertificate | None:
    """The client's certificate. Raises: UsageError."""
    if file is None:
        if key is not None:
            raise UsageError("--client-key is the key of a certificate; give it by --client-cert")
        return None
    certificate = ClientCertificate(file, key)
    security_of(certificate)
    return certificate


def _run_change(command: str) -> None:
    """Run the command that replaces weights. Raises: UsageError, if it fails."""
    try:
        done = subprocess.run(  # noqa: S602  # The user's own command, in their own shell.
            command,
            shell=True,
            check=False,
            timeout=MOST_CHANGE_SECONDS,
            stdin=subprocess.DEVNULL,
            # What it prints is no part of the report.
            stdout=STANDARD_ERROR,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"--changed {command!r} did not end within {MOST_CHANGE_SECONDS:g} s"
        ) from error
    if done.returncode:
        raise UsageError(f"--changed {command!r} ended with {done.returncode}; mend the command")


def _named_rounds(given: str, *, fill: bool, changes: bool) -> frozenset[str]:
    """The names of rounds between commas. Raises: UsageError."""
    names = frozenset(name.strip() for name in given.split(",") if name.strip())
    known = [each.name for each in ROUNDS]
    for name in sorted(names - set(known)):
        raise UsageError(f"--only {name}: there is no such round; choose of {', '.join(known)}")
    for each in ROUNDS:
        if each.name in names and each.changes and not changes:
            raise UsageError(
                f"--only {each.name}: this round replaces weights or an adapter; say by --changed "
                "which command does"
            )
        if each.name in names and each.fills and not fill:
            raise UsageError(
                f"--only {each.name}: this round fills the pool, and evicts what others have "
                "cached; add --fill to play it"
            )
    return names


def _player(address: EngineAddress, api: ApiName, model: str, limits: ProbeLimits) -> ProbePlayer:
    """Ask the server what it is. Raises: UsageError, ServerProblem."""
    run = f"kvcanon-{limits.seed}-{time.time_ns() // 1000:x}-{os.getpid():x}"
    engine = api_of(address, api, run, model)
    ends = time.monotonic() + limits.seconds
    return ProbePlayer(engine, engine.facts(), run, ends, limits.requests)


def _beside(
    events: str,
    replay: str | None,
    ignored: frozenset[str],
    record: Path | None,
    stack: ExitStack,
) -> StreamBeside:
    """Connect to the events of the server. Raises: BadEndpoint."""
    # The extra `live` may be missing, and the command works without it.
    from kvcanon.conformance.probe.beside import stream_beside  # noqa: PLC0415
    from kvcanon.live.frames import Source  # noqa: PLC0415

    return stack.enter_context(stream_beside(Source(events, replay), ignored, record))


def _log(path: Path, stack: ExitStack) -> Callable[[ProbeRequest, SentRequest], None]:
    """Write each request as a line of JSON, at once, so that a full disk shows soon."""
    file = stack.enter_context(path.open("wb", buffering=0))

    def write(real: ProbeRequest, sent: SentRequest) -> None:
        line = logged_request(real, sent)
        if line is not None:
            try:
                file.write(json.dumps(line).encode() + b"\n")
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error

    return write


def _probed(player: ProbePlayer, limits: ProbeLimits, beside: StreamBeside | None) -> ProbeSession:
    """Play the rounds. Raises: ServerProblem."""
    if beside is not None:
        player.beside = beside
        if player.facts.extra_keys:
            said = (*player.facts.not_said, _NO_EXTRA_KEYS)
            player.facts = evolve(player.facts, extra_keys=False, not_said=said)
    # To connect to the stream took time.
    player.deadline = time.monotonic() + limits.seconds
    with signs_of_life() as note:

        def say(round_name: str) -> None:
            note(f"{round_name}, requests so far", limits.requests - player.requests_left, None)

        result = ProbeSession(player, limits, say).run()
    if beside is not None:
        _note_beside(beside, result)
    return result


def _note_beside(beside: StreamBeside, result: ProbeSession) -> None:
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


def _write_script(path: Path, address: EngineAddress, result: ProbeSession, margin: float) -> None:
    shown = next((each for each in result.shown if each.requests), None)
    if shown is None:
        typer.echo(f"nothing was found that requests show: {path} is not written", err=True)
        return
    write_file(path, script_of(shown, address, result.player, margin))
    typer.echo(f"the requests of the first finding: {path}", err=True)
