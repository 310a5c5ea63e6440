"""Whole servers under the same load, one for each tree core, in turns.

All servers are started first. One plays at a time, while the others are paused, and every round
begins with another one: what disturbs one disturbs all, and a ratio is taken within a round.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from statistics import median

from attrs import Factory, asdict, define, evolve, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.server_load import (
    CONTEXT,
    LoadFigures,
    LoadScript,
    draw_load,
    percentile,
    play_load,
)
from kvcanon.lab.servers.cache_clock import CLOCK, make_clock
from kvcanon.lab.servers.server_process import RunningServer, last_words, running
from kvcanon.lab.servers.server_setup import NO_CACHE, NO_HOST, ServerSetup, ServerSizes
from kvcanon.lab.servers.tiny_model import FULL_MODEL, SLIDING_MODEL, make_model
from kvcanon.lab.servers.verdict import CORE_CLASSES

WARM_UP = 16
"""Requests that each server serves before it is timed."""
CHUNK = 2048


@frozen
class ServerLoad:
    """What is played to each server."""

    cores: tuple[str, ...]
    """Tree cores; the first is compared with the others."""
    cell: BenchCell
    requests: int
    clients: int
    rounds: int
    seed: int


@define
class CoreUnderLoad:
    """What one server did, by round."""

    core: str
    rounds: list[LoadFigures] = Factory(list)

    def to_json(self, first: CoreUnderLoad) -> dict[str, object]:
        """All figures, and how many times more requests a second the first core serves."""
        times = [
            ours.requests_per_second / theirs.requests_per_second
            for ours, theirs in zip(first.rounds, self.rounds, strict=True)
        ]
        waits = [wait for each in self.rounds for wait in each.first_ms]
        return {
            "core": self.core,
            "requests_per_second": median(each.requests_per_second for each in self.rounds),
            "times": {"median": median(times), "least": min(times), "most": max(times)},
            "first_token_ms": {"p50": percentile(waits, 0.5), "p99": percentile(waits, 0.99)},
            "hit_rate": median(each.hit_rate for each in self.rounds),
            "cache_us": median(each.cache_us for each in self.rounds),
            "cache_share": median(each.cache_share for each in self.rounds),
            "rounds": [asdict(each) for each in self.rounds],
        }


def measure_servers(load: ServerLoad, folder: Path) -> list[CoreUnderLoad]:
    """Start a server for each core, play the load to all in turns, and stop them.

    Logs are in the folder. Raises: UsageError, if a server does not start, or ends.
    """
    script = draw_load(load.requests, load.seed)
    model = folder / (SLIDING_MODEL if load.cell.window_tokens else FULL_MODEL)
    make_model(model.name, load.seed, CONTEXT).save_pretrained(model)
    found = {core: CoreUnderLoad(core) for core in load.cores}
    with ExitStack() as stack:
        servers: dict[str, RunningServer] = {}
        for core in load.cores:
            clock = _clock(folder, core)
            make_clock(clock)
            setup = setup_for(load, core)
            server = stack.enter_context(running(setup, model, folder, {CLOCK: str(clock)}))
            _require_core(server)
            _play(server, load, evolve(script, prompts=script.prompts[:WARM_UP]), clock)
            servers[core] = server
        for number in range(load.rounds):
            at = number % len(load.cores)
            for core in (*load.cores[at:], *load.cores[:at]):
                servers[core].resume()
                figures = _play(servers[core], load, script, _clock(folder, core))
                found[core].rounds.append(figures)
    return list(found.values())


def setup_for(load: ServerLoad, core: str) -> ServerSetup:
    """The server of a core."""
    cell = load.cell
    sizes = ServerSizes(
        cell.page_size, cell.pool_tokens, CHUNK, CONTEXT, at_once=load.clients, checked=False
    )
    cached = core != NO_CACHE
    return ServerSetup(
        SLIDING_MODEL if cell.window_tokens else FULL_MODEL,
        core,
        cell.host.write_policy.value if cell.host and cached else NO_HOST,
        sizes=sizes,
        events=cell.events,
    )


def _play(server: RunningServer, load: ServerLoad, script: LoadScript, clock: Path) -> LoadFigures:
    """Play to a server that runs, and pause it. Raises: UsageError, with its last words."""
    cached = server.setup.core != NO_CACHE
    try:
        figures = play_load(server.ports.http, script, load.clients, clock, cached=cached)
    except OSError as error:
        why = server.death or f"{error}; {last_words(server.log)}"
        raise UsageError(
            f"the server of {server.setup.core} did not serve the load: {why} (log: {server.log})"
        ) from error
    server.pause()
    return figures


def _require_core(server: RunningServer) -> None:
    """Check that no other core serves. Raises: UsageError."""
    core = server.setup.core
    if core != NO_CACHE and not server.core.startswith(CORE_CLASSES[core]):
        raise UsageError(
            f"SGLang serves with {server.core or 'no tree core'} where {core} was asked for; "
            f"its log says why: {server.log}"
        )


def _clock(folder: Path, core: str) -> Path:
    return folder / f"{core}.clock"
