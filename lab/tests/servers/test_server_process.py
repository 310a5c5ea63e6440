"""Servers are started, found out when they do not answer, and ended with all that they started."""

import os
import signal
import socket
import textwrap
import tomllib
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from descendants import is_paused, is_running
from fakes.release import release_in, write_killed
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.servers import server_process
from kvcanon.lab.servers.server_process import SCHEDULERS, free_ports, last_words, running, session
from kvcanon.lab.servers.server_setup import FAULT, PLUGIN, ServerSetup
from paths import ROOT

SETUP = ServerSetup("full", "rust", fault="some-fault")

ANSWERS = f"""
    import json, os, signal, subprocess, sys
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from importlib.metadata import entry_points

    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", stubborn])
    plugins = [each.name for each in entry_points(group="sglang.srt.plugins")]
    print("child", child.pid, os.environ["{FAULT}"], plugins, flush=True)
    print("Init Unified Radix Cache. Tree Core: SomeTreeCore", flush=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    port = int(sys.argv[sys.argv.index("--port") + 1])
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
FAILS = """
    raise ValueError("the tree core kvcanon cannot serve with --some-flag: it has none")
"""
SILENT = """
    import time
    time.sleep(60)
"""


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a release whose launcher is a script of the test."""
    return release_in(tmp_path, monkeypatch)


def ends(process: int) -> bool:
    """Whether a process is gone in time."""
    until = monotonic() + 5
    while is_running(process) and monotonic() < until:
        sleep(0.02)
    return not is_running(process)


def test_server_runs_with_plugin_and_ends_with_its_children(release: Path, tmp_path: Path) -> None:
    """It finds the plugin and its fault; a child that ignores SIGTERM ends with it, on an error."""
    release.write_text(textwrap.dedent(ANSWERS), encoding="utf-8")
    with suppress(RuntimeError), running(SETUP, tmp_path / "model", tmp_path) as server:
        assert (server.core, server.death) == ("SomeTreeCore", "")
        _, child, fault, plugins = server.log.read_text("utf-8").splitlines()[0].split(" ", 3)
        assert (fault, PLUGIN in plugins) == ("some-fault", True)
        assert is_running(int(child))
        assert os.getsid(server.process.pid) == server.process.pid
        raise RuntimeError("the caller")
    assert server.process.poll() is not None
    assert ends(int(child))


def test_server_that_is_paused_ends_all_the_same(release: Path, tmp_path: Path) -> None:
    """Its scheduler alone is stopped, and ends with it; also where the launcher is killed."""
    write_killed(release)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with running(SETUP, tmp_path / "model", tmp_path) as server:
            processes = session(server.process.pid)
            (scheduler,) = (each for each, name in processes.items() if name.startswith(SCHEDULERS))
            server.pause()
            assert is_paused(scheduler)
            assert not is_paused(server.process.pid, seconds=0)
            server.resume()
            assert not is_paused(scheduler, seconds=0)
            server.pause()
            server.process.send_signal(number)
        assert server.process.poll() is not None
        assert ends(scheduler)


def test_server_that_fails_to_start_is_told_with_its_reason(release: Path, tmp_path: Path) -> None:
    """The error has the sentence of the log that says why."""
    release.write_text(textwrap.dedent(FAILS), encoding="utf-8")
    with (
        pytest.raises(UsageError, match=r"full-rust-tp1-some-fault ended.*with --some-flag"),
        running(SETUP, tmp_path / "model", tmp_path),
    ):
        pytest.fail("it started")


def test_server_that_never_answers_is_given_up(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded."""
    monkeypatch.setattr(server_process, "START_SECONDS", 0.5)
    release.write_text(textwrap.dedent(SILENT), encoding="utf-8")
    with (
        pytest.raises(UsageError, match=r"did not answer in 0\.5 s"),
        running(SETUP, tmp_path / "model", tmp_path),
    ):
        pytest.fail("it started")


def test_servers_find_the_core_as_users_do() -> None:
    """The entry point that servers are given is the one that an installed kvcanon has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = ConfigParser()
    given.read_string(server_process._ENTRY_POINTS)
    core = project["entry-points"]["sglang.srt.plugins"]["kvcanon"]
    assert given["sglang.srt.plugins"]["kvcanon"] == core


def test_last_words_are_the_last_error_that_ended_it(tmp_path: Path) -> None:
    """The refused /freeze_gc of every start is not why a server ended."""
    log = tmp_path / "log"
    refused = "  raise\nrequests.exceptions.ConnectionError: ... url: /freeze_gc (Caused by ...)"
    ended = "  File ...\n    insert()\nerrors.PrefixNotCached: 7 pages are needed\n"
    log.write_text(f"{refused}\n{ended}[12:00] killed\nuser: said\n{refused}\n\n", "utf-8")
    assert last_words(log) == "errors.PrefixNotCached: 7 pages are needed"
    log.write_text(f"{refused}\nLoading\n\n", encoding="utf-8")
    assert last_words(log) == "Loading"
    log.write_text("", encoding="utf-8")
    assert last_words(log) == "it said nothing"


def test_port_that_another_program_took_is_why_a_server_ended(tmp_path: Path) -> None:
    """SGLang says so, and ends ten seconds later after another error."""
    log = tmp_path / "log"
    later = "  raise\nTimeoutError: timed out\n[12:00] killed\n"
    taken = "[12:00] ERROR: [Errno 98] error while attempting to bind: address already in use"
    log.write_text(f"Loading\n{taken}\n{later}", encoding="utf-8")
    assert last_words(log) == taken


def test_free_ports_are_none_that_a_connection_can_get() -> None:
    """Linux takes the ports of connections from a range of its own."""
    with socket.socket() as held:
        (first,) = free_ports(1)
        held.bind(("127.0.0.1", first))
        ports = free_ports(200)
    lowest = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0]
    assert len(set(ports)) == 200
    assert first not in ports
    assert max(ports) < int(lowest)
