"""Starts a server as a user would, waits for it, and ends it with all that it started."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from time import monotonic, sleep

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.ending import tied
from kvcanon.lab.servers.http_client import ask
from kvcanon.lab.servers.server_setup import PLUGIN, Ports, ServerSetup, arguments, variables

START_SECONDS = 400.0
STOP_SECONDS = 10.0

SCHEDULERS = "sglang::sched"
"""How the names of its schedulers begin."""

_CORE = "Tree Core: "
_ERROR = re.compile(r"[A-Za-z_][\w.]*(: |$)")
"""The end of a traceback: the name of an error, which stands at the beginning of the line."""
_REFUSED = "Connection"
"""SGLang calls itself at its start before it listens, and its log has that error in every run."""
_TAKEN = "address already in use"
"""What is said of a port that another program took; SGLang then ends after another error."""
_PORTS = range(20_000, 30_000)
"""Below those that Linux gives to connections: one of them could take a port before its server."""
_ENTRY_POINTS = f"""[sglang.srt.plugins]
{PLUGIN} = kvcanon.lab.servers.server_plugin:register
kvcanon = kvcanon.sglang_plugin:register
[vllm.general_plugins]
{PLUGIN} = kvcanon.lab.servers.vllm_plugin:register
"""
"""The second is that of kvcanon itself, which the environment has as a link without metadata."""


@frozen
class RunningServer:
    """A server that answers."""

    setup: ServerSetup
    ports: Ports
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def core(self) -> str:
        """The class of its tree core, from its log; empty without a cache."""
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if _CORE in line:
                return line.partition(_CORE)[2].split()[0].strip(",.")
        return ""

    def pause(self) -> None:
        """Stop its schedulers until `resume`: an idle one asks for work all the time.

        They alone, since they end with the launcher, however it ends, also while they are stopped.
        """
        self._signal_schedulers(signal.SIGSTOP)

    def resume(self) -> None:
        """Let its schedulers run again; does nothing if they run, or have ended."""
        self._signal_schedulers(signal.SIGCONT)

    def _signal_schedulers(self, number: signal.Signals) -> None:
        for process, name in session(self.process.pid).items():
            if name.startswith(SCHEDULERS):
                with suppress(ProcessLookupError):
                    os.kill(process, number)

    @property
    def death(self) -> str:
        """Why it has ended, from its log; empty while it runs."""
        return "" if self.process.poll() is None else last_words(self.log)


@contextmanager
def running(
    setup: ServerSetup,
    model: Path,
    folder: Path,
    more: Mapping[str, str] | None = None,
    ports: Ports | None = None,
) -> Iterator[RunningServer]:
    """Run a server, with its log in a folder. Raises: UsageError, if it does not start.

    `more` are variables that it gets besides its usual ones; its ports are free ones if none are
    given.
    """
    ports = ports or Ports(*free_ports(3))
    log = folder / f"{setup.name}.log"
    command = ["sglang.launch_server", *arguments(setup, model, ports)]
    env = variables(setup, plugin_folder(folder), os.environ) | dict(more or {})
    with started(setup.name, command, env, log, (ports.http, "/server_info")) as process:
        yield RunningServer(setup, ports, process, log)


@contextmanager
def started(
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    log: Path,
    ready: tuple[int, str],
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module as a server until the block ends. Raises: UsageError, if it does not start.

    `ready` is the port and the path that answer once it has started. The process is the leader of a
    session of its own, and the whole session is ended: schedulers and detokenizer too, however the
    caller ends.
    """
    with log.open("wb") as written:
        process = subprocess.Popen(  # noqa: S603  # Our own interpreter.
            [sys.executable, "-W", "ignore", "-m", *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=tied(),  # noqa: PLW1509  # It makes two calls of the system.
        )
    try:
        _wait(name, process, log, *ready)
        yield process
    finally:
        stop(process)


def session(leader: int) -> dict[int, str]:
    """The processes of a session that run, with their names."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            before, _, after = path.read_text(encoding="utf-8", errors="replace").rpartition(")")
            state, _, _, own, *_ = after.split()
            if int(own) == leader and state not in "ZX":
                found[int(path.parent.name)] = before.partition("(")[2]
    return found


def plugin_folder(folder: Path) -> Path:
    """Make a folder with the metadata of the plugin; servers that have it on their path load it."""
    made = folder / "plugins"
    facts = made / f"{PLUGIN}-0.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 0\n"
    (facts / "METADATA").write_text(metadata, encoding="utf-8")
    (facts / "entry_points.txt").write_text(_ENTRY_POINTS, encoding="utf-8")
    return made


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on. Raises: OSError, if there are too few."""
    with ExitStack() as held:
        found = list[int]()
        for port in SystemRandom().sample(_PORTS, len(_PORTS)):
            if len(found) == count:
                return found
            each = held.enter_context(socket.socket())
            with suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
    raise OSError(f"no {count} free ports from {_PORTS.start} to {_PORTS.stop - 1}")


def last_words(log: Path) -> str:
    """The line of a log that says best why a server ended: the end of its last traceback."""
    lines = [
        line.rstrip()
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip() and _REFUSED not in line
    ]
    errors = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if before.startswith("  ") and _ERROR.match(line)
    ]
    taken = [line for line in lines if _TAKEN in line]
    return (taken or errors or lines or ["it said nothing"])[-1].strip()


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and every process of its session."""
    # The launcher ends its schedulers; where they end first, it looks for the cause for seconds.
    process.terminate()
    try:
        # A paused one hears it only then.
        _signal_all(process, signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    finally:
        _signal_all(process, signal.SIGKILL)
        process.wait(STOP_SECONDS)


def _signal_all(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to every process of a server's session that is there."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _wait(name: str, process: subprocess.Popen[bytes], log: Path, port: int, path: str) -> None:
    ends = monotonic() + START_SECONDS
    while monotonic() < ends:
        if process.poll() is not None:
            raise UsageError(
                f"the server {name} ended at its start: {last_words(log)} (log: {log})"
            )
        try:
            ask(port, "GET", path, timeout=5.0)
        except OSError:
            sleep(0.2)
        else:
            return
    raise UsageError(f"the server {name} did not answer in {START_SECONDS:g} s (log: {log})")
