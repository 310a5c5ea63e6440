"""Servers that are killed at any point, and started again at once on the same ports.

A cache lives in the memory of its process alone: a kill leaves nothing that stops the next start,
and the next server answers right from an empty cache.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.servers.http_client import generate
from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script import EngineScript, ScriptedRequest
from kvcanon.lab.servers.server_process import (
    SCHEDULERS,
    RunningServer,
    free_ports,
    running,
    session,
)
from kvcanon.lab.servers.server_setup import WRITE_THROUGH, Ports, ServerSetup
from kvcanon.lab.servers.tiny_model import SLIDING_MODEL

LAUNCHER, SCHEDULER, ALL = "the launcher", "the scheduler", "every process"
CLIENTS = 4
LOAD_SECONDS = 1.5
START_SECONDS = 6.0
END_SECONDS = 30.0
SGLANGS_OWN = ("sglang_loads_", "sgl_shm_mq_", "sem.mp-")
"""What SGLang and Python leave in shared memory after a kill, over any core. Each server
makes them under new names, so that they stop none."""
SHARED = Path("/dev/shm")  # noqa: S108  # It is looked at, and nothing is written there.


@frozen
class ServerKill:
    """Which processes get SIGKILL, and when."""

    whom: str
    serving: bool = True
    """Under load, or while it starts."""

    @property
    def name(self) -> str:
        """What is printed."""
        return f"{self.whom}, {'under load' if self.serving else 'while it starts'}"


KILLS = (
    ServerKill(SCHEDULER),
    ServerKill(LAUNCHER),
    ServerKill(LAUNCHER, serving=False),
    ServerKill(ALL),
)


def run_kills(runs: EngineRuns, core: str) -> list[str]:
    """Kill a server of a core in each way, and start it again; returns what was wrong, in words."""
    setup = ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH)
    script, ports = runs.script(setup.model), Ports(*free_ports(3))
    before = _shared_names()
    wrong: list[str] = []
    for kill in (*KILLS, None):
        name = kill.name if kill else "no kill"
        try:
            if kill is not None and not kill.serving:
                left = _killed_at_start(setup, runs, ports)
            else:
                left = _serve_and_kill(setup, runs, ports, script, kill)
        except (OSError, UsageError) as failure:
            left = str(failure)
        runs.say(f"{name}: {left or 'ended, and nothing is left'}")
        if left:
            wrong.append(f"{name}: {left}")
    leaked = sorted(_shared_names() - before)
    others = [name for name in leaked if not name.startswith(SGLANGS_OWN)]
    runs.say(f"SGLang left {len(leaked) - len(others)} files of its own in {SHARED}")
    return wrong + ([f"left in {SHARED}: {', '.join(others)}"] if others else [])


def _serve_and_kill(
    setup: ServerSetup,
    runs: EngineRuns,
    ports: Ports,
    script: EngineScript,
    kill: ServerKill | None,
) -> str:
    """Start a server, check what it answers, and kill it under load; returns what was wrong."""
    chats = script.rounds[0].requests
    with running(setup, runs.folder / setup.model, runs.folder, ports=ports) as server:
        if wrong := _wrong_replies(server, chats):
            return wrong
        if kill is None:
            return ""
        processes = session(server.process.pid)
        with _load(server, script):
            sleep(LOAD_SECONDS)
            for each in _victims(kill, server.process.pid, processes):
                os.kill(each, signal.SIGKILL)
            return _wait_for_end(server, processes)


def _killed_at_start(setup: ServerSetup, runs: EngineRuns, ports: Ports) -> str:
    """Kill a server before it serves."""
    began = monotonic()
    killed: list[int] = []

    def kill() -> None:
        sleep(START_SECONDS)
        for each in _launchers():
            killed.append(each)
            os.kill(each, signal.SIGKILL)

    thread = Thread(target=kill)
    thread.start()
    try:
        with running(setup, runs.folder / setup.model, runs.folder, ports=ports):
            return f"it served within {monotonic() - began:.0f} s, before it was killed"
    except UsageError:
        return "" if killed else "it ended before it was killed"
    finally:
        thread.join()


def _victims(kill: ServerKill, leader: int, processes: Mapping[int, str]) -> list[int]:
    if kill.whom == LAUNCHER:
        return [leader]
    if kill.whom == ALL:
        return list(processes)
    found = [each for each, name in processes.items() if name.startswith(SCHEDULERS)]
    if not found:
        raise UsageError(f"no scheduler among {', '.join(processes.values())}")
    return found


def _launchers() -> list[int]:
    """The children of this process that lead a session: the server that starts."""
    own = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    children = [int(each) for each in Path(own).read_text(encoding="utf-8").split()]
    return [each for each in children if os.getsid(each) == each]


def _wrong_replies(server: RunningServer, requests: tuple[ScriptedRequest, ...]) -> str:
    """What a fresh server answers wrong; empty if all is right, and the cache was empty."""
    first = generate(server.ports.http, requests[0])
    if first.cached_tokens:
        return f"{first.cached_tokens} tokens are cached in a fresh server"
    for request in requests[1:]:
        if generate(server.ports.http, request).tokens != request.expected:
            return f"{request.name}: wrong tokens"
    return ""


@contextmanager
def _load(server: RunningServer, script: EngineScript) -> Iterator[None]:
    """Send requests all the time, until the block ends or the server does."""
    over = Event()
    requests = script.requests

    def client(first: int) -> None:
        at = first
        with suppress(OSError):
            while not over.is_set():
                generate(server.ports.http, requests[at % len(requests)])
                at += 1

    with ThreadPoolExecutor(CLIENTS) as clients:
        for number in range(CLIENTS):
            clients.submit(client, number * len(requests) // CLIENTS)
        try:
            yield
        finally:
            over.set()


def _wait_for_end(server: RunningServer, processes: Mapping[int, str]) -> str:
    """Wait until all processes have ended by themselves; returns those that have not."""
    ends = monotonic() + END_SECONDS
    while monotonic() < ends:
        server.process.poll()
        left = {name for each, name in processes.items() if _runs(each)}
        if not left:
            return ""
        sleep(0.1)
    return f"after {END_SECONDS:g} s there still run {', '.join(sorted(left))}"


def _runs(process: int) -> bool:
    with suppress(OSError):
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[0] not in "ZX"
    return False


def _shared_names() -> set[str]:
    """What is in shared memory; nothing where the system has no such folder."""
    if sys.platform != "linux":
        return set()
    return {each.name for each in SHARED.iterdir()}
