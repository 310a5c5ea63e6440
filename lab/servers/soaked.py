"""Soak of a server: chats, retractions, aborts and flushes over and over, with flat memory.

The rounds of the script are played again and again, every second time under a namespace that was
never used before. Every reply is compared with that of transformers. The run fails if a reply is
wrong, if the server ends, if a scheduler's memory grows, or if something was never exercised.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import monotonic, sleep

from attrs import Factory, define, evolve, frozen

from kvcanon.lab.servers.http_client import (
    ask,
    flush,
    generate,
    generate_and_abort,
    generate_together,
)
from kvcanon.lab.servers.runs import EngineRuns, Say
from kvcanon.lab.servers.script import EngineScript, ScriptedRequest, ScriptRound, SendOrder
from kvcanon.lab.servers.server_process import SCHEDULERS, RunningServer, running, session
from kvcanon.lab.servers.server_setup import KVCANON, WRITE_THROUGH, ServerSetup
from kvcanon.lab.servers.tiny_model import SLIDING_MODEL
from kvcanon.lab.servers.transcript import EngineReply

CLIENTS = 8
GROWTH_BYTES = 32 << 20
"""By how much memory may be above that after a tenth of the run: what allocators keep."""
LINE_S = 60.0
REPORT_S = 12.0
"""After so long the core has brought its metrics up to date."""
EXERCISED = ("requests", "hits", "host hits", "retractions", "aborts", "flushes")
_SERIES = re.compile(r"^(kvcanon_\w+)\{.*\} (\S+)$", re.MULTILINE)


@frozen
class MemoryReading:
    """How much memory the schedulers had, and when."""

    at_s: float
    resident: int


def growth(readings: Sequence[MemoryReading], whole_s: float) -> int:
    """By how much the last tenth of a run is above the first, at their largest; in bytes."""
    first = [each.resident for each in readings if each.at_s <= whole_s / 10]
    last = [each.resident for each in readings if each.at_s >= whole_s * 9 / 10]
    return max(last) - max(first) if first and last else 0


def kvcanon_metrics(page: str) -> dict[str, float]:
    """What kvcanon says on a page of metrics, summed over labels."""
    found: dict[str, float] = {}
    for name, value in _SERIES.findall(page):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def run_soak(runs: EngineRuns, core: str, minutes: float) -> list[str]:
    """Use a server of a core for so long; returns what was wrong, in words.

    Raises: UsageError, if it does not start.
    """
    setup = ServerSetup(
        SLIDING_MODEL, core, WRITE_THROUGH, events=False, flags=("--enable-metrics",)
    )
    script = runs.script(setup.model)
    with running(setup, runs.folder / setup.model, runs.folder) as server:
        soak = ServerSoak(server, script, minutes * 60, runs.say)
        try:
            soak.run()
        except OSError as error:
            soak.wrong.append(f"the server: {server.death or error}")
        else:
            soak.judge()
    return soak.wrong


@define(eq=False)
class ServerSoak:
    """A server that is used for a time."""

    server: RunningServer
    script: EngineScript
    whole_s: float
    say: Say
    wrong: list[str] = Factory(list)
    done: Counter[str] = Factory(Counter)
    readings: list[MemoryReading] = Factory(list)
    began_s: float = Factory(monotonic)

    @property
    def port(self) -> int:
        """Where it answers."""
        return self.server.ports.http

    def run(self) -> None:
        """Play the script until the time is over. Raises: OSError, where the server ends."""
        next_line = 0.0
        for turn in count():
            for each in self.script.rounds:
                self.play(each, turn)
                now = monotonic() - self.began_s
                self.readings.append(MemoryReading(now, self.resident()))
                if now >= next_line:
                    next_line = now + LINE_S
                    self.say(f"{now / 60:.0f} min: {self.state()}")
                if now >= self.whole_s or self.wrong:
                    return
            flush(self.port)
            self.done["flushes"] += 1

    def play(self, each: ScriptRound, turn: int) -> None:
        """Play a round, and compare the replies."""
        if each.flush:
            flush(self.port)
            self.done["flushes"] += 1
        requests = each.requests
        if turn % 2:
            requests = tuple(evolve(request, salt=f"{request.salt}{turn}") for request in requests)
        if each.order is SendOrder.TOGETHER:
            replies = generate_together(self.port, requests)
        else:
            clients = CLIENTS if each.order is SendOrder.RACING else 1
            with ThreadPoolExecutor(clients) as pool:
                replies = list(pool.map(self._send, requests))
        for request, reply in zip(requests, replies, strict=True):
            self._compare(request, reply)

    def _send(self, request: ScriptedRequest) -> EngineReply:
        send: Callable[[int, ScriptedRequest], EngineReply] = (
            generate_and_abort if request.abort_after else generate
        )
        return send(self.port, request)

    def _compare(self, request: ScriptedRequest, reply: EngineReply) -> None:
        self.done["requests"] += 1
        self.done["hits"] += reply.cached_tokens > 0
        self.done["host hits"] += reply.host_tokens > 0
        self.done["retractions"] += reply.retractions
        self.done["aborts"] += reply.ending == "abort"
        got = reply.tokens
        if got != request.expected[: len(got)] or (reply.ending == "length" and not got):
            self.wrong.append(f"{request.name}: wrong tokens")

    def resident(self) -> int:
        """The resident memory of the schedulers, in bytes."""
        pages = 0
        for process, name in session(self.server.process.pid).items():
            if name.startswith(SCHEDULERS):
                statm = Path(f"/proc/{process}/statm").read_text(encoding="utf-8")
                pages += int(statm.split()[1])
        return pages * 4096

    def state(self) -> str:
        """What was done, and how much memory there is."""
        counts = ", ".join(f"{self.done[name]:,} {name}" for name in EXERCISED)
        return f"{counts}; {self.readings[-1].resident >> 20} MiB"

    def judge(self) -> None:
        """Say what was wrong when the time is over. Raises: OSError."""
        self.say(f"at the end: {self.state()}")
        grown = growth(self.readings, self.whole_s)
        if grown > GROWTH_BYTES:
            self.wrong.append(f"the schedulers have {grown >> 20} MiB more than at the beginning")
        self.wrong += [f"there were no {name}" for name in EXERCISED if not self.done[name]]
        if self.server.setup.core == KVCANON:
            self._judge_metrics()

    def _judge_metrics(self) -> None:
        sleep(REPORT_S)
        shown = kvcanon_metrics(ask(self.port, "GET", "/metrics").decode())
        for name in ("kvcanon_tree_core", "kvcanon_matches_total", "kvcanon_hit_tokens_total"):
            if not shown.get(name):
                self.wrong.append(f"/metrics has no {name}")
        self.say(", ".join(f"{name} {shown.get(name, 0):g}" for name in sorted(shown)))
