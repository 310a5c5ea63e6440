"""The load of a server: clients that send a seeded script of prompts, and what each reply took.

Every core gets the same prompts in the same order: long texts first, which are not timed, then the
prompts that begin with them. A client takes the next one when its last reply has ended. So which
requests run together differs a little from run to run, and the hit rate with it.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe import transport
from kvcanon.conformance.probe.transport import understood
from kvcanon.lab.servers.cache_clock import read_clock
from kvcanon.lab.servers.http_client import ask, flush, server_at
from kvcanon.lab.servers.script import Tokens
from kvcanon.lab.servers.script_rounds import FIRST_TOKEN
from kvcanon.lab.servers.tiny_model import VOCABULARY

REPLY_TOKENS = 4
CONTEXT = 4096 + 128
"""The most tokens of a prompt and its reply."""
TEXTS, TEXT_TOKENS, OWN_TOKENS = 16, (2000, 4000), (8, 40)
"""Long texts with which many prompts begin, and short ends: much to find, and little to compute."""
SECONDS = 120.0
"""The longest that a reply may take."""


@frozen
class LoadScript:
    """What is sent to a server."""

    texts: tuple[Tokens, ...]
    """Prompts that are not timed."""
    prompts: tuple[Tokens, ...]
    """Prompts that are timed; each begins with one of the texts."""


@frozen
class TimedReply:
    """What a client saw of one request."""

    first_ms: float
    """Until its first token came."""
    cached_tokens: int


@frozen
class LoadFigures:
    """What a server did with the timed prompts."""

    requests_per_second: float
    first_ms: tuple[float, ...]
    """Time to the first token of each request, in milliseconds."""
    hit_rate: float
    cache_us: float
    """Microseconds a request that the scheduler spent in its cache."""
    cache_share: float
    """The same as a share of the time that a request took: of one second through the requests a
    second."""


def draw_load(requests: int, seed: int) -> LoadScript:
    """The script of a seed, in the order in which it is sent."""
    random, room = Random(seed), VOCABULARY - FIRST_TOKEN

    def text(bounds: tuple[int, int]) -> Tokens:
        # Of a seeded `Random`, only `random()` gives the same numbers under every Python.
        least, most = bounds
        length = least + int(random.random() * (most - least + 1))
        return tuple(FIRST_TOKEN + int(random.random() * room) for _ in range(length))

    texts = tuple(text(TEXT_TOKENS) for _ in range(TEXTS))
    prompts = tuple(texts[int(random.random() * TEXTS)] + text(OWN_TOKENS) for _ in range(requests))
    return LoadScript(texts, prompts)


def play_load(
    port: int, script: LoadScript, clients: int, clock: Path, *, cached: bool = True
) -> LoadFigures:
    """Empty a server's cache, send it a script by so many clients, and time the replies.

    `clock` is the file in which the server counts the time in its cache; `cached` says whether it
    has one. Raises: ServerProblem; UsageError, if a request is not served whole.
    """
    if cached:
        flush(port)
    prompts = script.prompts
    with ThreadPoolExecutor(clients) as pool:
        tuple(pool.map(partial(_serve, port), script.texts))
        gc.collect()
        earlier = read_clock(clock)
        began = perf_counter()
        served = tuple(pool.map(partial(_serve, port), prompts))
        seconds = perf_counter() - began
    # The scheduler answers this when it has done what a reply leaves to do.
    ask(port, "GET", "/server_info")
    spent = read_clock(clock) - earlier
    return LoadFigures(
        len(prompts) / seconds,
        tuple(each.first_ms for each in served),
        sum(each.cached_tokens for each in served) / sum(map(len, prompts)),
        spent.seconds / len(prompts) * 1e6,
        spent.seconds / seconds,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies: the nearest one of them."""
    if share == 0.5:
        return median(values)
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _serve(port: int, prompt: Tokens) -> TimedReply:
    body = {
        "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": REPLY_TOKENS},
        "stream": True,
    }
    first_ms = 0.0
    last: transport.JsonObject = {}
    began = perf_counter()
    for part in transport.stream(server_at(port, SECONDS), "/generate", body):
        if not first_ms and part.get("output_ids"):
            first_ms = (perf_counter() - began) * 1e3
        last = part
    facts = last.get("meta_info", {})
    ending = understood("/generate", lambda: facts["finish_reason"]["type"])
    if ending != "length" or not first_ms:
        raise UsageError(f"a request of {len(prompt)} tokens was not served: {ending}")
    return TimedReply(first_ms, understood("/generate", lambda: int(facts["cached_tokens"])))
