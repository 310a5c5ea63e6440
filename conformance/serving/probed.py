"""Probes real servers: nothing may be found of a sound one, and each planted fault must be.

The servers are those of `runs`, and the probe is that of `kvcanon probe`: it knows nothing of the
server but what it says, and the size of the window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import evolve

from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.session import ProbeLimits, ProbeResult, ProbeSession
from kvcanon.conformance.probe.sglang_api import SglangApi
from kvcanon.conformance.probe.transport import EngineAddress
from kvcanon.conformance.serving.server_process import running
from kvcanon.conformance.serving.server_setup import WRITE_THROUGH, ServerSetup
from kvcanon.conformance.serving.tiny_model import SLIDING_MODEL, VOCABULARY, WINDOW, make_model

PROBED_FAULTS: Mapping[str, tuple[frozenset[ProbeFault], str]] = {
    "wrong-slot-after-split": (frozenset({ProbeFault.TOKENS}), "forks"),
    "insert-swaps-pages": (frozenset({ProbeFault.TOKENS}), "forks"),
    "load-back-one-page-off": (frozenset({ProbeFault.TOKENS}), "pressure"),
    "backup-one-page-off": (frozenset({ProbeFault.TOKENS}), "pressure"),
    "namespace-ignored": (frozenset({ProbeFault.SHARED}), "namespaces"),
    "hit-one-page-short": (frozenset({ProbeFault.TOO_FEW}), "repeats"),
    "window-refreshed-too-far": (frozenset({ProbeFault.WINDOW_ORDER}), "window order"),
    "lock-forgotten": (frozenset({ProbeFault.ENDED, ProbeFault.TOKENS}), "pressure"),
}
"""The faults of `core_faults` that answers over HTTP show: what each is found as, and in which
round. The others show in counts beside a reference, or in events alone."""

SOUND = "sound"
MARGIN = 0.05
"""The servers compute in float32."""
SECONDS = 60.0
"""Each fault must be found in a minute."""


SOUND_SEEDS = 10
"""Seeds with which nothing may be found of a sound server."""


def probe_server(
    setup: ServerSetup, model: Path, folder: Path, limits: Sequence[ProbeLimits]
) -> list[ProbeResult]:
    """Start a server, and probe it with each of some limits.

    Raises: UsageError, if it does not start.
    """
    done = []
    with running(setup, model, folder) as server:
        for each in limits:
            run = f"kvcanon-{time.time_ns():x}"
            api = SglangApi(EngineAddress("127.0.0.1", server.ports.http), run)
            facts = evolve(api.facts(), window=WINDOW)
            ends = time.monotonic() + each.seconds
            player = ProbePlayer(api, facts, run, ends, each.requests)
            done.append(ProbeSession(player, each).run())
    return done


def run_probes(
    core: str, folder: Path, seed: int, only: str, say: Callable[[str], None]
) -> list[str]:
    """Probe a sound server, and one for each fault; returns what went wrong in words.

    Raises: UsageError, if a server does not start.
    """
    model = folder / SLIDING_MODEL
    make_model(SLIDING_MODEL, seed).save_pretrained(model)
    sound = ServerSetup(SLIDING_MODEL, core, WRITE_THROUGH)
    usual = ProbeLimits(seed, SECONDS, margin=MARGIN, vocabulary=VOCABULARY)
    wrong: list[str] = []
    if only in SOUND:
        limits = [evolve(usual, seed=seed + number) for number in range(SOUND_SEEDS)]
        for each, result in zip(limits, probe_server(sound, model, folder, limits), strict=True):
            say(f"{SOUND}, seed {each.seed}: {_words(result)}")
            if result.shown:
                wrong.append(f"{SOUND}, seed {each.seed}")
    for name, (expected, round_name) in PROBED_FAULTS.items():
        if only not in name:
            continue
        alone = evolve(usual, only=frozenset({round_name}))
        (result,) = probe_server(evolve(sound, fault=name), model, folder, [alone])
        say(f"{name}: {_words(result)}")
        if not {each.finding.fault for each in result.shown} & expected:
            wrong.append(f"{name} is not found")
    return wrong


def _words(result: ProbeResult) -> str:
    """What was found, and how few requests show it."""
    found = [
        f"{each.finding.fault.words}, shown by {len(each.requests)} requests: {each.finding.words}"
        for each in result.shown
    ]
    played = f"{result.requests} requests, {result.hits} with cached tokens"
    return f"{'; '.join(found) or 'nothing was found'} ({played}, {result.seconds:.0f} s)"
