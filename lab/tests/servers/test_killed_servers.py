"""Killed servers start again; one that leaves a process, a file or a cache behind is found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.release import release_in, write_killed
from kvcanon.lab.servers import killed_servers
from kvcanon.lab.servers.killed_servers import run_kills
from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, ScriptRound, SendOrder

REQUESTS = tuple(ScriptedRequest(f"chat {number}", (7, 8, 9), (1, 2)) for number in range(3))
SCRIPT = EngineScript("sliding", 0, 4, (ScriptRound("chats", SendOrder.ONE_BY_ONE, REQUESTS),))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 # A stand-in.
    """Runs whose script needs no model, in short times."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(killed_servers, "SHARED", shared)
    monkeypatch.setattr(killed_servers, "LOAD_SECONDS", 0.05)
    monkeypatch.setattr(killed_servers, "START_SECONDS", 0.3)
    monkeypatch.setattr(killed_servers, "END_SECONDS", 0.5)
    said: list[str] = []
    return SimpleNamespace(folder=tmp_path, script=lambda _: SCRIPT, say=said.append, said=said)


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a server."""
    return release_in(tmp_path, monkeypatch)


def test_servers_that_end_whole_start_again(runs: Any, launcher: Path) -> None:  # noqa: ANN401
    """Each kill is followed by a start on the same ports, and the last server is right."""
    write_killed(launcher, starts_after=0.5)
    assert run_kills(runs, "kvcanon") == []
    assert [line.partition(": ")[0] for line in runs.said] == [
        "the scheduler, under load",
        "the launcher, under load",
        "the launcher, while it starts",
        "every process, under load",
        "no kill",
        f"SGLang left 0 files of its own in {killed_servers.SHARED}",
    ]


def test_a_scheduler_that_outlives_its_launcher_is_found(
    runs: Any,  # noqa: ANN401
    launcher: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would hold the ports and the memory."""
    monkeypatch.setattr(
        killed_servers, "KILLS", (killed_servers.ServerKill(killed_servers.LAUNCHER),)
    )
    write_killed(launcher, orphaned=True)
    (wrong,) = run_kills(runs, "kvcanon")
    assert wrong.startswith("the launcher, under load: after 0.5 s there still run sglang::sched")


def test_what_a_server_leaves_is_found(
    runs: Any,  # noqa: ANN401
    launcher: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file in shared memory is named, and so is a fresh server that has something cached.

    What SGLang itself leaves is counted.
    """
    monkeypatch.setattr(killed_servers, "KILLS", (killed_servers.ServerKill(killed_servers.ALL),))
    write_killed(launcher, leaves=str(killed_servers.SHARED / "sglang_loads_1"))
    assert run_kills(runs, "kvcanon") == ["no kill: 4 tokens are cached in a fresh server"]
    assert runs.said[-1].startswith("SGLang left 1 files")
    write_killed(launcher, leaves=str(killed_servers.SHARED / "prompts"))
    assert run_kills(runs, "kvcanon") == [
        "no kill: 4 tokens are cached in a fresh server",
        f"left in {killed_servers.SHARED}: prompts",
    ]
