"""Probes real servers: nothing may be found of a sound one, and each planted fault must be.

The probe is that of `kvcanon probe`: it knows nothing of a server but what it says, and the size of
a window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from attrs import asdict, evolve, frozen

from kvcanon.conformance.probe.discovery import ApiName, api_of
from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.report_text import sums_words
from kvcanon.conformance.probe.session import ProbeLimits, ProbeSession
from kvcanon.conformance.probe.sglang_api import SglangApi
from kvcanon.conformance.probe.talk import EngineApi, EngineFacts
from kvcanon.conformance.probe.transport import EngineAddress
from kvcanon.lab.servers.server_process import running
from kvcanon.lab.servers.server_setup import WRITE_THROUGH, ServerSetup
from kvcanon.lab.servers.tiny_model import (
    FULL_MODEL,
    SLIDING_MODEL,
    VOCABULARY,
    WIDE_MODEL,
    WINDOW,
    make_model,
)
from kvcanon.lab.servers.vllm_server import VLLM, running_vllm

PROBED_FAULTS: Mapping[str, tuple[frozenset[ProbeFault], str]] = {
    "wrong-slot-after-split": (frozenset({ProbeFault.TOKENS}), "forks"),
    "insert-swaps-pages": (frozenset({ProbeFault.TOKENS}), "forks"),
    "load-back-one-page-off": (frozenset({ProbeFault.TOKENS}), "pressure"),
    "backup-one-page-off": (frozenset({ProbeFault.TOKENS}), "pressure"),
    "namespace-ignored": (frozenset({ProbeFault.SHARED}), "namespaces"),
    "hit-one-page-short": (frozenset({ProbeFault.TOO_FEW}), "repeats"),
    "window-refreshed-too-far": (frozenset({ProbeFault.WINDOW_ORDER}), "window order"),
    "first-token-compared": (frozenset({ProbeFault.TOO_MANY}), "forks"),
    "lock-forgotten": (frozenset({ProbeFault.TOKENS, ProbeFault.ENDED}), "together"),
}
"""The faults of `core_faults` that answers over HTTP show: what each is found as, and in which
round. The others show in counts beside a reference, or in events."""

VLLM_FAULTS: Mapping[str, tuple[frozenset[ProbeFault], str]] = {
    "parent-ignored": (frozenset({ProbeFault.TOO_MANY, ProbeFault.TOKENS}), "mixed"),
    "first-token-hashed": (frozenset({ProbeFault.TOO_MANY, ProbeFault.TOKENS}), "forks"),
    "salt-ignored": (frozenset({ProbeFault.SHARED}), "namespaces"),
    "blocks-swapped": (frozenset({ProbeFault.TOKENS}), "forks"),
    "hit-one-block-short": (frozenset({ProbeFault.TOO_FEW}), "repeats"),
    "hit-one-block-more": (frozenset({ProbeFault.TOO_MANY, ProbeFault.TOKENS}), "forks"),
    "abort-keeps-blocks": (frozenset({ProbeFault.HELD}), "aborts"),
    "hit-leaves-first": (frozenset({ProbeFault.ORDER}), "order"),
    "evicted-is-still-found": (frozenset({ProbeFault.TOKENS, ProbeFault.ORDER}), "pressure"),
    "hit-not-held": (frozenset({ProbeFault.TOKENS, ProbeFault.ENDED}), "together"),
}
"""The faults of `vllm_faults`: what each is found as, and in which round."""

SOUND = "sound"
MARGIN = 0.05
"""The servers compute in float32."""
SECONDS = 60.0
"""Each fault must be found in a minute."""
SOUND_SECONDS = 180.0
"""Time for all rounds, on a busy machine too."""


VLLM_STREAM = frozenset({"EVENT-1", "EVENT-2", "EVENT-12", "EVENT-13"})
"""The laws of a stream that every vLLM breaks, as docs/probe.md says."""


@frozen
class StartedServer:
    """A server that runs."""

    api: EngineApi
    facts: EngineFacts
    """What is known of it."""
    events: str = ""
    """Where its KV events are that a sound one is probed beside; empty for none."""


@frozen
class ProbedServer:
    """A server that can be started, sound or with a fault."""

    name: str
    faults: Mapping[str, tuple[frozenset[ProbeFault], str]]
    """Those that are planted in it."""
    start: Callable[[str], AbstractContextManager[StartedServer]]
    """Starts it with a fault, or sound."""


def sglang_servers(core: str, folder: Path, seed: int) -> tuple[ProbedServer, ...]:
    """Servers of SGLang with a tree core: a window with HiCache, and full attention without."""

    def start_with(setup: ServerSetup) -> ProbedServer:
        model = _saved(setup.model, folder, seed)

        @contextmanager
        def start(fault: str) -> Iterator[StartedServer]:
            with running(evolve(setup, fault=fault), model, folder) as server:
                api = SglangApi(EngineAddress("127.0.0.1", server.ports.http), _unique())
                facts = api.facts()
                known = evolve(facts, window=WINDOW) if setup.model == SLIDING_MODEL else facts
                yield StartedServer(api, known)

        faults = PROBED_FAULTS if setup.model == SLIDING_MODEL else {}
        return ProbedServer(f"{SOUND}-{setup.model}", faults, start)

    windowed = ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH)
    return start_with(windowed), start_with(ServerSetup(FULL_MODEL, core))


def vllm_server(folder: Path, seed: int) -> ProbedServer:
    """A server of vLLM: full attention, no host tier."""
    model = _saved(WIDE_MODEL, folder, seed)

    @contextmanager
    def start(fault: str) -> Iterator[StartedServer]:
        with running_vllm(fault, model, folder) as (port, events):
            api = api_of(EngineAddress("127.0.0.1", port), ApiName.OPENAI, _unique(), "")
            facts = evolve(api.facts(), window=0, has_host=False)
            yield StartedServer(api, facts, f"tcp://127.0.0.1:{events}")

    return ProbedServer(f"{SOUND}-{VLLM}", VLLM_FAULTS, start)


@frozen
class ProbedRun:
    """What a probe of a server found."""

    server: str
    fault: str
    """Empty for a sound server."""
    seed: int
    wrong: str
    """What is wrong about the run, in words; empty where it is as it should be."""
    requests: int
    with_hits: int
    seconds: float
    found: Sequence[FoundByProbe]
    beside: Mapping[str, object]
    """What was promised by the KV events and what was served; empty without events."""


@frozen
class FoundByProbe:
    """A finding, and how many requests show it."""

    words: str
    requests: int
    detail: str


def run_probes(
    core: str, folder: Path, seeds: range, only: str, say: Callable[[str], None]
) -> list[ProbedRun]:
    """Probe sound servers with each seed, and one for each fault.

    `core` is a tree core of SGLang, or `VLLM`. Raises: UsageError, if a server does not start.
    """
    if core == VLLM:
        servers: tuple[ProbedServer, ...] = (vllm_server(folder, seeds.start),)
    else:
        servers = sglang_servers(core, folder, seeds.start)
    usual = ProbeLimits(seeds.start, SECONDS, fill=True, margin=MARGIN, vocabulary=VOCABULARY)
    runs: list[ProbedRun] = []
    for server in servers:
        if only in server.name:
            runs += _probe_sound(server, usual, seeds, say)
        for name, (expected, round_name) in server.faults.items():
            if only not in name:
                continue
            with server.start(name) as started:
                result, _ = _probe(started, evolve(usual, only=frozenset({round_name})))
            say(f"{name}: {_words(result)}")
            is_found = bool({each.finding.fault for each in result.shown} & expected)
            wrong = "" if is_found else f"{name} is not found"
            runs.append(_run_of(server.name, name, result, wrong, {}))
    return runs


def _probe_sound(
    server: ProbedServer, usual: ProbeLimits, seeds: range, say: Callable[[str], None]
) -> Iterator[ProbedRun]:
    """Probe a sound server with several seeds."""
    with server.start("") as started:
        for seed in seeds:
            limits = evolve(usual, seed=seed, seconds=SOUND_SECONDS)
            result, beside = _probe(started, limits, events=started.events)
            name = f"{server.name}, seed {seed}"
            promised = f"; {sums_words(beside)}" if beside else ""
            say(f"{name}: {_words(result)}{promised}")
            wrong = ""
            if result.shown:
                wrong = name
            elif any(each.cut_short for each in result.coverage.played):
                wrong = f"{name} was cut short"
            yield _run_of(server.name, "", result, wrong, beside)


def _run_of(
    server: str, fault: str, result: ProbeSession, wrong: str, beside: Mapping[str, object]
) -> ProbedRun:
    """A probe that has ended."""
    found = [
        FoundByProbe(each.finding.fault.words, len(each.requests), each.finding.words)
        for each in result.shown
    ]
    sent, seconds = (result.requests, result.hits), round(result.seconds, 1)
    return ProbedRun(server, fault, result.limits.seed, wrong, *sent, seconds, found, beside)


def _probe(
    server: StartedServer, limits: ProbeLimits, *, events: str = ""
) -> tuple[ProbeSession, Mapping[str, object]]:
    """Probe a server, beside its events if their address is given; also what these promised."""
    ends = time.monotonic() + limits.seconds
    with ExitStack() as stack:
        player = ProbePlayer(server.api, server.facts, _unique(), ends, limits.requests)
        if not events:
            return ProbeSession(player, limits).run(), {}
        # A server that is probed without its events needs nothing of the extra `live`.
        from kvcanon.conformance.probe.beside import stream_beside  # noqa: PLC0415
        from kvcanon.live.frames import Source  # noqa: PLC0415

        beside = stack.enter_context(stream_beside(Source(events), VLLM_STREAM))
        player.beside = beside
        result = ProbeSession(player, limits).run()
        return result, asdict(beside.sums)


def _saved(name: str, folder: Path, seed: int) -> Path:
    """Make a model, and save it."""
    model = folder / name
    make_model(name, seed).save_pretrained(model)
    return model


def _unique() -> str:
    """A word that no other run has."""
    return f"kvcanon-{time.time_ns():x}"


def _words(result: ProbeSession) -> str:
    """What was found, and how few requests show it."""
    found = [
        f"{each.finding.fault.words}, shown by {len(each.requests)} requests: {each.finding.words}"
        for each in result.shown
    ]
    played = f"{result.requests} requests, {result.hits} with cached tokens"
    return f"{'; '.join(found) or 'nothing was found'} ({played}, {result.seconds:.0f} s)"
