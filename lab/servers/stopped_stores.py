"""Real servers over Redis and Mooncake Store, which are stopped: no request may wait for them.

A server stores prompts. Another one serves them while the store answers, while it stands still
(SIGSTOP) and after it has gone on. What is measured is the time to the first token. While the store
stands still that is, at most, its deadline more than where nothing is stored; replies stay right;
and once the store goes on its pages are found again.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from time import monotonic, sleep
from typing import Any, Protocol, cast

from attrs import define, evolve, frozen

from kvcanon.conformance.probe import transport
from kvcanon.conformance.probe.transport import EngineAddress
from kvcanon.conformance.stores.check import ground_of
from kvcanon.conformance.stores.names import load_store
from kvcanon.lab.servers.http_client import server_at
from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script import Tokens
from kvcanon.lab.servers.server_process import RunningServer, free_ports, running
from kvcanon.lab.servers.server_setup import KVCANON, RUST, SCRIPTED, WRITE_THROUGH, ServerSetup
from kvcanon.lab.servers.storage_hits import KEY, detach
from kvcanon.lab.servers.tiny_model import FULL_MODEL, VOCABULARY, GreedyOracle, make_model

PROMPT_TOKENS = 200
PAGE_SIZE = 16
REPLY_TOKENS = 6
BEFORE, UNKNOWN, STOPPED = 6, 6, 12
"""Requests of each kind: stored ones, others, and stored ones while the store stands still."""
LEAST_FOUND = 0.5
"""The least share of stored prompts that come from a store that runs: where this machine has other
work, a read may miss its deadline now and then."""
DEADLINE_SECONDS = 2.0
PAUSE_SECONDS = 0.5
"""Between two requests, so that rests of the store end meanwhile, and it is tried."""
SLACK_SECONDS = 0.5
"""How much later than the deadline a machine with other work may be."""
BACK_SECONDS = 60.0
"""How long a store that goes on may be left alone: its longest rest, and some."""
CORES = (KVCANON, RUST)


class StoppableStore(Protocol):
    """A store that was started."""

    @property
    def url(self) -> str:
        """Its address."""

    def stop(self) -> None:
        """Let it stand still."""

    def go_on(self) -> None:
        """Let it go on."""


@frozen
class _Started:
    url: str
    pid: int

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class _Process(Protocol):
    pid: int


class _StartedRedis(Protocol):
    socket: str
    server: _Process


class _StartedMooncake(Protocol):
    master: str
    processes: Sequence[_Process]


@contextmanager
def _redis() -> Iterator[StoppableStore]:
    with ground_of(load_store("redis")) as ground:
        redis = cast("_StartedRedis", ground)
        yield _Started(f"unix://{redis.socket}", redis.server.pid)


@contextmanager
def _mooncake(number: int) -> Iterator[StoppableStore]:
    with ground_of(load_store("mooncake")) as ground:
        mooncake = cast("_StartedMooncake", ground)
        yield _Started(f"mooncake://{mooncake.master}", mooncake.processes[number].pid)


STOPPED_PARTS: Mapping[str, Callable[[], AbstractContextManager[StoppableStore]]] = {
    "Redis": _redis,
    "Mooncake's provider": lambda: _mooncake(1),
    "Mooncake's master": lambda: _mooncake(0),
}
"""What is stopped, and how it is started."""


@frozen
class FirstToken:
    """A reply, and when it began."""

    seconds: float
    """To the first token."""
    tokens: Tokens
    stored: int
    """Tokens of the prompt that came from the store."""


@frozen
class StoppedRow:
    """What was measured of a server and a store."""

    part: str
    core: str
    unknown: tuple[float, ...] = ()
    """Seconds to the first token of prompts that are not stored."""
    before: tuple[float, ...] = ()
    """Of prompts that come from the store."""
    stopped: tuple[float, ...] = ()
    """Of stored prompts while the store stands still."""
    back_seconds: float | None = None
    """From when the store went on until pages came from it again; None if they did not."""
    after: tuple[float, ...] = ()
    """Of stored prompts once they came from the store again."""
    before_found: int = 0
    after_found: int = 0
    """How many of them came from the store."""
    replies: int = 0
    right: int = 0
    wrong: tuple[str, ...] = ()
    """What was wrong, in words."""

    @property
    def held_seconds(self) -> float:
        """The longest time to a first token while the store stands still."""
        return max(self.stopped, default=0.0)


def run_stopped(runs: EngineRuns, cores: Sequence[str] = CORES, only: str = "") -> list[StoppedRow]:
    """Play all stores to servers of each core."""
    made = make_model(FULL_MODEL, runs.seed)
    made.save_pretrained(runs.folder / FULL_MODEL)
    prompts = _Prompts.drawn(runs.seed, GreedyOracle(made))
    rows = []
    for part in STOPPED_PARTS:
        for core in cores:
            if only in f"{part} {core}":
                rows.append(_measured(runs, part, core, prompts))
                runs.say(in_words(rows[-1]))
    return rows


def in_words(row: StoppedRow) -> str:
    """A row in one line."""
    back = "not used again" if row.back_seconds is None else f"back after {row.back_seconds:.1f} s"
    times = ", ".join(
        f"{name} {median(each) * 1e3:.0f} (most {max(each) * 1e3:.0f})"
        for name, each in (
            ("not stored", row.unknown),
            ("stored", row.before),
            ("stopped", row.stopped),
            ("after", row.after),
        )
        if each
    )
    return (
        f"{row.part}, {row.core}: first token in ms: {times}; {back}; "
        f"{row.right} of {row.replies} replies right"
    )


@frozen
class _Prompts:
    """Prompts, with what follows each by transformers."""

    stored: tuple[tuple[Tokens, Tokens], ...]
    unknown: tuple[tuple[Tokens, Tokens], ...]

    @classmethod
    def drawn(cls, seed: int, oracle: GreedyOracle) -> _Prompts:
        rng = random.Random(seed)
        drawn = [
            tuple(rng.randrange(3, VOCABULARY) for _ in range(PROMPT_TOKENS))
            for _ in range(BEFORE + STOPPED + UNKNOWN)
        ]
        with_replies = [(tokens, oracle(tokens, REPLY_TOKENS)) for tokens in drawn]
        return cls(tuple(with_replies[:-UNKNOWN]), tuple(with_replies[-UNKNOWN:]))


def extra_config(url: str) -> str:
    """What a server is told of its store."""
    return json.dumps(
        {
            "backend_name": "kvcanon",
            "module_path": "kvcanon.external.sglang_storage",
            "class_name": "ExternalStorage",
            "interface_v1": 1,
            "store": url,
            "here": f"127.0.0.1:{free_ports(1)[0]}",
            "deadline_seconds": DEADLINE_SECONDS,
            "prefetch_threshold": 16,
            "hicache_storage_pass_prefix_keys": True,
        }
    )


def _setup(core: str, url: str) -> ServerSetup:
    flags = (
        *("--hicache-storage-backend", "dynamic"),
        *("--hicache-storage-prefetch-policy", "wait_complete"),
        *("--hicache-storage-backend-extra-config", extra_config(url)),
        *("--admin-api-key", KEY),
    )
    sizes = evolve(SCRIPTED, page_size=PAGE_SIZE, at_once=1)
    return ServerSetup(FULL_MODEL, core, WRITE_THROUGH, sizes=sizes, events=False, flags=flags)


def _measured(runs: EngineRuns, part: str, core: str, prompts: _Prompts) -> StoppedRow:
    """Play one store to a server of one core."""
    own = runs.folder / f"{part} {core}".replace(" ", "-").replace("'", "")
    for each in ("writer", "reader"):
        (own / each).mkdir(parents=True, exist_ok=True)
    model = runs.folder / FULL_MODEL
    with STOPPED_PARTS[part]() as store:
        with running(_setup(core, store.url), model, own / "writer") as server:
            writer = _Play.of(server, store, prompts, StoppedRow(part, core))
            writer.asked(prompts.stored)
            detach(writer.at)
        with running(_setup(core, store.url), model, own / "reader") as server:
            try:
                return _Play.of(server, store, prompts, writer.row).row_of_all()
            finally:
                store.go_on()


@define
class _Play:
    """One server, its store, and what was measured so far."""

    at: EngineAddress
    store: StoppableStore
    prompts: _Prompts
    row: StoppedRow

    @classmethod
    def of(
        cls, server: RunningServer, store: StoppableStore, prompts: _Prompts, row: StoppedRow
    ) -> _Play:
        """Play to a server."""
        at = evolve(server_at(server.ports.http, timeout=120.0), api_key=KEY)
        return cls(at, store, prompts, row)

    def row_of_all(self) -> StoppedRow:
        """Play everything."""
        stored = self.prompts.stored
        unknown = self.asked(self.prompts.unknown)
        before = self.asked(stored[:BEFORE])
        self.store.stop()
        stopped = self.asked(stored[BEFORE:], PAUSE_SECONDS)
        self.store.go_on()
        back, after = self.back(stored[:BEFORE])
        row = evolve(
            self.row,
            unknown=_seconds(unknown),
            before=_seconds(before),
            stopped=_seconds(stopped),
            back_seconds=back,
            after=_seconds(after),
            before_found=_found(before),
            after_found=_found(after),
        )
        return evolve(row, wrong=tuple(wrong_of(row, _found(stopped))))

    def asked(
        self, prompts: Sequence[tuple[Tokens, Tokens]], pause: float = 0.0
    ) -> list[FirstToken]:
        """Send prompts one after another, and look at the replies."""
        replies = []
        for tokens, expected in prompts:
            replies.append(timed(self.at, tokens))
            is_right = replies[-1].tokens[: len(expected)] == expected
            self.row = evolve(
                self.row, replies=self.row.replies + 1, right=self.row.right + is_right
            )
            sleep(pause)
        return replies

    def back(
        self, prompts: Sequence[tuple[Tokens, Tokens]]
    ) -> tuple[float | None, list[FirstToken]]:
        """Ask until pages come from the store again; after how many seconds.

        The replies are to prompts that were asked for once more after that.
        """
        begun = monotonic()
        while monotonic() < begun + BACK_SECONDS:
            self.flush()
            (reply,) = self.asked(prompts[:1])
            if reply.stored:
                seconds = monotonic() - begun
                # Mooncake's master forgets the pages of a provider that was away for long.
                self.asked(prompts[1:])
                sleep(DEADLINE_SECONDS)
                self.flush()
                return seconds, self.asked(prompts)
            sleep(PAUSE_SECONDS)
        return None, []

    def flush(self) -> None:
        """Empty the caches above the store."""
        transport.ask(self.at, "POST", "/flush_cache?timeout=60", {})


def timed(at: EngineAddress, tokens: Tokens) -> FirstToken:
    """Send a prompt, and take the time until its first token. Raises: ServerProblem."""
    sampling = {"temperature": 0, "max_new_tokens": REPLY_TOKENS}
    body = {"input_ids": list(tokens), "sampling_params": sampling, "stream": True}
    begun, first = monotonic(), None
    last: Mapping[str, Any] = {}
    for part in transport.stream(at, "/generate", body):
        if first is None and part.get("output_ids"):
            first = monotonic() - begun
        last = part
    details = (last.get("meta_info") or {}).get("cached_tokens_details") or {}
    seconds = monotonic() - begun if first is None else first
    return FirstToken(seconds, tuple(last.get("output_ids", ())), int(details.get("storage") or 0))


def _seconds(replies: Sequence[FirstToken]) -> tuple[float, ...]:
    return tuple(each.seconds for each in replies)


def _found(replies: Sequence[FirstToken]) -> int:
    return sum(each.stored > 0 for each in replies)


def wrong_of(row: StoppedRow, stopped_found: int) -> Iterator[str]:
    """What was wrong, in words."""
    name = f"{row.part}, {row.core}"
    if row.right < row.replies:
        yield f"{name}: {row.replies - row.right} replies are wrong"
    for when, found, some in (
        ("before it was stopped", row.before_found, row.before),
        ("after it went on", row.after_found, row.after),
    ):
        if found < LEAST_FOUND * len(some):
            yield f"{name}: {when}, {found} of {len(some)} stored prompts came from the store"
    most = max(row.unknown) + DEADLINE_SECONDS + SLACK_SECONDS
    if row.held_seconds > most:
        yield f"{name}: a request waited {row.held_seconds:.1f} s, which is above {most:.1f} s"
    if stopped_found == len(row.stopped):
        yield f"{name}: it was not stopped: every prompt came from it"
    if row.back_seconds is None:
        yield f"{name}: it was not used again within {BACK_SECONDS:g} s"
