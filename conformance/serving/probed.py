"""Probes real servers: nothing may be found of a sound one, and each planted fault must be.

The probe is that of `kvcanon probe`: it knows nothing of a server but what it says, and the size of
a window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from attrs import evolve, frozen

from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.openai_api import OpenaiApi
from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.session import ProbeLimits, ProbeResult, ProbeSession
from kvcanon.conformance.probe.sglang_api import SglangApi
from kvcanon.conformance.probe.talk import EngineApi, EngineFacts
from kvcanon.conformance.probe.transport import EngineAddress
from kvcanon.conformance.serving.server_process import running
from kvcanon.conformance.serving.server_setup import WRITE_THROUGH, ServerSetup
from kvcanon.conformance.serving.tiny_model import (
    FULL_MODEL,
    SLIDING_MODEL,
    VOCABULARY,
    WIDE_MODEL,
    WINDOW,
    make_model,
)
from kvcanon.conformance.serving.vllm_server import VLLM, running_vllm

PROBED_FAULTS: Mapping[str, tuple[frozenset[ProbeFault], str]] = {
    "wrong-slot-after-split": (frozenset({ProbeFault.TOKENS}), "forks"),
    "insert-swaps-pages": (frozenset({ProbeFault.TOKENS}), "forks"),
    "load-back-one-page-off": (frozenset({ProbeFault.TOKENS}), "pressure"),
    "backup-one-page-off": (frozenset({ProbeFault.TOKENS}), "pressure"),
    "namespace-ignored": (frozenset({ProbeFault.SHARED}), "namespaces"),
    "hit-one-page-short": (frozenset({ProbeFault.TOO_FEW}), "repeats"),
    "window-refreshed-too-far": (frozenset({ProbeFault.WINDOW_ORDER}), "window order"),
    "first-token-compared": (frozenset({ProbeFault.TOO_MANY}), "forks"),
}
"""The faults of `core_faults` that answers over HTTP show: what each is found as, and in which
round. The others show in counts beside a reference, in events, or in requests that overlap."""

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
    "hit-not-held": (frozenset({ProbeFault.TOKENS, ProbeFault.ENDED}), "pressure"),
}
"""The faults of `vllm_faults`: what each is found as, and in which round."""

SOUND = "sound"
MARGIN = 0.05
"""The servers compute in float32."""
SECONDS = 60.0
"""Each fault must be found in a minute."""
SOUND_SECONDS = 180.0
"""Time for all rounds, on a busy machine too."""
SOUND_SEEDS = 10
"""Seeds with which nothing may be found of a sound server."""


@frozen
class ProbedServer:
    """A server that can be started, sound or with a fault."""

    name: str
    faults: Mapping[str, tuple[frozenset[ProbeFault], str]]
    """Those that are planted in it."""
    start: Callable[[str], AbstractContextManager[tuple[EngineApi, EngineFacts]]]
    """Starts it with a fault, or sound; gives its dialect, and what is known of it."""


def sglang_servers(core: str, folder: Path, seed: int) -> tuple[ProbedServer, ...]:
    """Servers of SGLang with a tree core: a window with HiCache, and full attention without."""

    def start_with(setup: ServerSetup) -> ProbedServer:
        model = _saved(setup.model, folder, seed)

        @contextmanager
        def start(fault: str) -> Iterator[tuple[EngineApi, EngineFacts]]:
            with running(evolve(setup, fault=fault), model, folder) as server:
                api = SglangApi(EngineAddress("127.0.0.1", server.ports.http), _unique())
                facts = api.facts()
                known = evolve(facts, window=WINDOW) if setup.model == SLIDING_MODEL else facts
                yield api, known

        faults = PROBED_FAULTS if setup.model == SLIDING_MODEL else {}
        return ProbedServer(f"{SOUND}-{setup.model}", faults, start)

    windowed = ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH)
    return start_with(windowed), start_with(ServerSetup(FULL_MODEL, core))


def vllm_server(folder: Path, seed: int) -> ProbedServer:
    """A server of vLLM: full attention, no host tier."""
    model = _saved(WIDE_MODEL, folder, seed)

    @contextmanager
    def start(fault: str) -> Iterator[tuple[EngineApi, EngineFacts]]:
        with running_vllm(fault, model, folder) as port:
            api = OpenaiApi(EngineAddress("127.0.0.1", port), str(model))
            yield api, evolve(api.facts(), window=0, has_host=False)

    return ProbedServer(f"{SOUND}-{VLLM}", VLLM_FAULTS, start)


def run_probes(
    core: str, folder: Path, seed: int, only: str, say: Callable[[str], None]
) -> list[str]:
    """Probe sound servers, and one for each fault; returns what went wrong in words.

    `core` is a tree core of SGLang, or `VLLM`. Raises: UsageError, if a server does not start.
    """
    if core == VLLM:
        servers: tuple[ProbedServer, ...] = (vllm_server(folder, seed),)
    else:
        servers = sglang_servers(core, folder, seed)
    usual = ProbeLimits(seed, SECONDS, margin=MARGIN, vocabulary=VOCABULARY)
    wrong: list[str] = []
    for server in servers:
        if only in server.name:
            wrong += _probe_sound(server, usual, say)
        for name, (expected, round_name) in server.faults.items():
            if only not in name:
                continue
            with server.start(name) as (api, facts):
                result = _probe(api, facts, evolve(usual, only=frozenset({round_name})))
            say(f"{name}: {_words(result)}")
            if not {each.finding.fault for each in result.shown} & expected:
                wrong.append(f"{name} is not found")
    return wrong


def _probe_sound(
    server: ProbedServer, usual: ProbeLimits, say: Callable[[str], None]
) -> Iterator[str]:
    """Probe a sound server with several seeds; gives those with which something went wrong."""
    with server.start("") as (api, facts):
        for seed in range(usual.seed, usual.seed + SOUND_SEEDS):
            result = _probe(api, facts, evolve(usual, seed=seed, seconds=SOUND_SECONDS))
            name = f"{server.name}, seed {seed}"
            say(f"{name}: {_words(result)}")
            if result.shown:
                yield name
            if any(each.cut_short for each in result.rounds):
                yield f"{name} was cut short"


def _probe(api: EngineApi, facts: EngineFacts, limits: ProbeLimits) -> ProbeResult:
    ends = time.monotonic() + limits.seconds
    player = ProbePlayer(api, facts, _unique(), ends, limits.requests)
    return ProbeSession(player, limits).run()


def _saved(name: str, folder: Path, seed: int) -> Path:
    """Make a model, and save it."""
    model = folder / name
    make_model(name, seed).save_pretrained(model)
    return model


def _unique() -> str:
    """A word that no other run has."""
    return f"kvcanon-{time.time_ns():x}"


def _words(result: ProbeResult) -> str:
    """What was found, and how few requests show it."""
    found = [
        f"{each.finding.fault.words}, shown by {len(each.requests)} requests: {each.finding.words}"
        for each in result.shown
    ]
    played = f"{result.requests} requests, {result.hits} with cached tokens"
    return f"{'; '.join(found) or 'nothing was found'} ({played}, {result.seconds:.0f} s)"
