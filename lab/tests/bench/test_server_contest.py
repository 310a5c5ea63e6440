"""Servers under load: each core plays in turn and alone, and what failed is one line."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from descendants import is_paused
from fakes.release import release_in, write_loaded
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench import server_contest
from kvcanon.lab.bench.case import BenchCell, HostSetup
from kvcanon.lab.bench.server_contest import ServerLoad, measure_servers, setup_for
from kvcanon.lab.bench.server_load import (
    CONTEXT,
    REPLY_TOKENS,
    LoadFigures,
    draw_load,
    percentile,
    play_load,
)
from kvcanon.lab.servers.server_process import SCHEDULERS, RunningServer, session
from kvcanon.lab.servers.server_setup import Ports, arguments, variables
from kvcanon.lab.servers.tiny_model import VOCABULARY
from kvcanon.spec.types import WritePolicy

CELL = BenchCell(page_size=1, pool_tokens=49_152)
LOAD = ServerLoad(("kvcanon", "rust", "none"), CELL, requests=12, clients=2, rounds=2, seed=0)


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release with servers that can be under load, and no model."""
    made = SimpleNamespace(save_pretrained=lambda _: None)
    monkeypatch.setattr(server_contest, "make_model", lambda *_: made)
    return release_in(tmp_path, monkeypatch)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunningServer]:
    """The servers that were started."""
    found: list[RunningServer] = []
    require = server_contest._require_core

    def note(server: RunningServer) -> None:
        found.append(server)
        require(server)

    monkeypatch.setattr(server_contest, "_require_core", note)
    return found


def scheduler(server: RunningServer) -> int:
    """The scheduler of a server."""
    names = session(server.process.pid)
    (found,) = (each for each, name in names.items() if name.startswith(SCHEDULERS))
    return found


def test_servers_play_alone_in_turns_and_end(
    release: Path,
    tmp_path: Path,
    started: list[RunningServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slower cache gives fewer requests a second; each round begins with another core."""
    write_loaded(release)
    order: list[str] = []
    play: Callable[..., LoadFigures] = play_load

    def watched(port: int, *given: Any, **named: Any) -> LoadFigures:  # noqa: ANN401 # As it is.
        (server,) = (each for each in started if each.ports.http == port)
        assert not is_paused(scheduler(server), seconds=0)
        assert all(is_paused(scheduler(each)) for each in started if each is not server)
        order.append(server.setup.core)
        return play(port, *given, **named)

    monkeypatch.setattr(server_contest, "play_load", watched)
    found = measure_servers(LOAD, tmp_path)
    assert order == [*LOAD.cores, *LOAD.cores, "rust", "none", "kvcanon"]
    ours, rust, none = (each.to_json(found[0]) for each in found)
    times: Any = rust["times"]
    assert times["least"] <= times["median"] <= times["most"] > 1
    assert ours["times"] == {"median": 1, "least": 1, "most": 1}
    assert ours["hit_rate"] == rust["hit_rate"] != none["hit_rate"] == 0
    assert 2_000 <= float(str(ours["cache_us"])) < float(str(rust["cache_us"]))
    assert float(str(rust["cache_us"])) >= 12_000
    assert 0.2 < float(str(rust["cache_share"])) <= 1
    waits: Any = none["first_token_ms"]
    assert 6 <= waits["p50"] <= waits["p99"]
    assert all(len(figures.first_ms) == LOAD.requests for figures in found[0].rounds)
    assert all(server.process.poll() is not None for server in started)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"dies_after": 8}, "kvcanon did not serve the load: .*no room is left"),
        ({"ending": "abort"}, "tokens was not served: abort"),
    ],
)
def test_a_server_that_fails_is_one_line(
    release: Path,
    tmp_path: Path,
    started: list[RunningServer],
    fault: dict[str, Any],
    words: str,
) -> None:
    """The line has the server's last words, and no server is left."""
    write_loaded(release, **fault)
    with pytest.raises(UsageError, match=words):
        measure_servers(LOAD, tmp_path)
    assert started
    assert all(server.process.poll() is not None for server in started)


def test_another_core_than_asked_for_is_refused(release: Path, tmp_path: Path) -> None:
    """SGLang may fall back to its Python core, whose figures would pass for another's."""
    write_loaded(release, other="SomeTreeCore")
    load = ServerLoad(("python",), CELL, requests=2, clients=1, rounds=1, seed=0)
    with pytest.raises(UsageError, match="serves with SomeTreeCore where python was asked for"):
        measure_servers(load, tmp_path)


def test_servers_are_started_as_a_user_does() -> None:
    """Nothing of SGLang's checks is on, and sizes, events and tiers are those of the cell."""
    host = HostSetup(WritePolicy.WRITE_BACK, 4 * CELL.pool_tokens)
    cell = BenchCell(16, 8192, 16, 4096, events=True, host=host)
    load = ServerLoad(("kvcanon", "none"), cell, requests=1, clients=3, rounds=1, seed=0)
    ours, none = (setup_for(load, core) for core in load.cores)
    given = arguments(ours, Path("model"), Ports(1, 2, 3))
    flags = dict(pairwise(given))
    assert (flags["--page-size"], flags["--max-total-tokens"]) == ("16", "8192")
    assert (flags["--max-running-requests"], flags["--context-length"]) == ("3", str(CONTEXT))
    assert flags["--hicache-write-policy"] == "write_back"
    assert "--kv-events-config" in given
    assert "--schedule-conservativeness" not in given
    assert not [name for name in variables(ours, Path("plugins"), {}) if "CHECK" in name]
    without = arguments(none, Path("model"), Ports(1, 2, 3))
    assert "--disable-radix-cache" in without
    assert "--enable-hierarchical-cache" not in without
    plain = setup_for(LOAD, "rust")
    assert "--kv-events-config" not in arguments(plain, Path("model"), Ports(1, 2, 3))


def test_load_is_that_of_its_seed() -> None:
    """Prompts fit the model, begin alike in part, and are drawn anew by another seed."""
    script = draw_load(60, 3)
    assert script == draw_load(60, 3) != draw_load(60, 4)
    assert script.prompts[:20] == draw_load(20, 3).prompts
    assert max(map(len, script.prompts)) + REPLY_TOKENS <= CONTEXT
    assert {token for prompt in script.prompts for token in prompt} <= set(range(3, VOCABULARY))
    begun = [sum(prompt[: len(text)] == text for prompt in script.prompts) for text in script.texts]
    assert sum(begun) == len(set(script.prompts)) == 60
    assert max(begun) > 1


def test_percentiles_are_of_the_values() -> None:
    """p99 of few values is the largest."""
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3
    assert percentile([float(each) for each in range(200)], 0.99) == 198
