"""Ways to serve that the script does not play: each is a real server, tried with a few chats.

The replies must be those of transformers, and a chat that is sent again must be found in the cache,
also after a flush. docs/sglang.md has what came of each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import Factory, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.servers.http_client import ask, flush, generate
from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script import ScriptedRequest
from kvcanon.lab.servers.server_process import free_ports, last_words, plugin_folder, started
from kvcanon.lab.servers.server_setup import (
    NO_HOST,
    WRITE_THROUGH,
    Ports,
    ServerSetup,
    arguments,
    variables,
)
from kvcanon.lab.servers.tiny_model import FULL_MODEL

CHATS = 6
TWO_CORES = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
READY = "/health"
"""Answered by a server of several pipeline stages, too, which says nothing of itself."""


@frozen
class TriedWay:
    """A way to serve, beside the usual flags."""

    name: str
    flags: tuple[str, ...]
    host: str = WRITE_THROUGH
    variables: Mapping[str, str] = Factory(dict)
    not_on_a_cpu: str = ""
    """What SGLang says of it without a GPU, over any core; empty where it serves."""


WAYS = (
    TriedWay("data parallel", ("--dp-size", "2"), variables=TWO_CORES),
    TriedWay(
        "pipeline parallel",
        ("--pp-size", "2", "--disable-overlap-schedule"),
        variables=TWO_CORES,
        not_on_a_cpu="did not answer",
    ),
    TriedWay(
        "LoRA",
        ("--enable-lora", "--max-lora-rank", "8", "--lora-target-modules", "q_proj"),
        NO_HOST,
        not_on_a_cpu="no pinned memory allocator is available",
    ),
    TriedWay(
        "speculative",
        (
            *("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "4"),
            *("--speculative-ngram-max-bfs-breadth", "1"),
        ),
        NO_HOST,
        # A kernel of SGLang's own, for which a stand-in is here.
        not_on_a_cpu="copy_all_layer_kv_cache_cpu",
    ),
    TriedWay(
        "disaggregated prefill",
        ("--disaggregation-mode", "prefill", "--disaggregation-transfer-backend", "fake"),
        NO_HOST,
        not_on_a_cpu="Prefill server does not support 'fake' as the transfer backend",
    ),
)


def run_tries(runs: EngineRuns, core: str, only: str) -> list[str]:
    """Try each way to serve with a core; returns those that did not serve, in words.

    What SGLang itself refuses without a GPU is no fault of the core.
    """
    chats = runs.script(FULL_MODEL).rounds[0].requests[:CHATS]
    wrong: list[str] = []
    for way in (each for each in WAYS if only in each.name):
        try:
            found = _tried(way, core, chats, runs.folder)
        except (OSError, UsageError) as failure:
            found = str(failure)
            if not way.not_on_a_cpu or way.not_on_a_cpu not in found:
                wrong.append(f"{way.name}: {found}")
        runs.say(f"{way.name} ({' '.join(way.flags)}): {found}")
    return wrong


def _tried(way: TriedWay, core: str, chats: tuple[ScriptedRequest, ...], folder: Path) -> str:
    """Start a server, and send it chats; returns what it did. Raises: OSError, UsageError."""
    setup = ServerSetup(FULL_MODEL, core, way.host, events=False, flags=way.flags)
    ports = Ports(*free_ports(3))
    given = arguments(setup, folder / FULL_MODEL, ports)
    # Two replicas cannot share a port of rendezvous; SGLang finds one for each.
    at = given.index("--nccl-port")
    command = ["sglang.launch_server", *given[:at], *given[at + 2 :]]
    env = variables(setup, plugin_folder(folder), os.environ) | dict(way.variables)
    log = folder / f"{way.name.replace(' ', '-')}.log"
    with started(way.name, command, env, log, (ports.http, READY)):
        hits = 0
        try:
            for _ in range(2):
                for request in (*chats, *chats):
                    reply = generate(ports.http, request)
                    if reply.tokens != request.expected:
                        raise UsageError(f"{request.name}: wrong tokens, {reply.ending}")
                    hits += reply.cached_tokens > 0
                flush(ports.http)
            ask(ports.http, "GET", READY)
        except OSError as error:
            raise UsageError(f"it ended, or did not answer: {error}; {last_words(log)}") from error
    if not hits:
        raise UsageError("no chat was found in the cache")
    return f"{4 * len(chats)} replies right, {hits} with hits"
