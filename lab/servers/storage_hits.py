"""Real servers that store pages and fetch them: kvcanon's core must find what Rust's does.

For each model, on one rank and on two, a server of each core writes the pages of a few prompts to
SGLang's `file` storage. Then its cache is emptied, and it serves prompts that begin as those did,
once for each policy by which a fetch ends; between two policies storage is detached, and attached
again. Every reply must be right, and where a request waits for its fetch both cores must find the
same, request by request.

Under `best_effort` a fetch ends when the request could begin, which on an idle server is at once.
So each request waits there behind another that runs, until its pages have come or nearly so, and
something must be found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from time import monotonic, sleep
from typing import Any

from attrs import evolve, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe import transport
from kvcanon.conformance.probe.transport import EngineAddress, ServerProblem
from kvcanon.lab.servers.http_client import server_at
from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script import Tokens
from kvcanon.lab.servers.server_process import running
from kvcanon.lab.servers.server_setup import KVCANON, RUST, SCRIPTED, WRITE_THROUGH, ServerSetup
from kvcanon.lab.servers.tiny_model import MODELS, VOCABULARY, GreedyOracle, make_model

PROMPT_TOKENS = 200
REPLY_TOKENS = 6
RUNNING: Tokens = (3, 5, 7, 9)
"""The prompt of the request that runs while others wait; too short to be fetched."""
RUNNING_TOKENS = 200
RANKS = (1, 2)
WAIT, DEADLINE, AT_ONCE = "wait_complete", "timeout", "best_effort"
POLICIES = (WAIT, DEADLINE, AT_ONCE)
KEY = "administrator"
STORAGE = "/hicache/storage-backend"
FOLDER = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
EXTRA = json.dumps(
    {
        "prefetch_threshold": 16,
        "prefetch_timeout_base": 60,
        "hicache_storage_pass_prefix_keys": True,
    }
)
IDLE_SECONDS = 120.0


@frozen
class StorageRequest:
    """A prompt, and what follows it by transformers."""

    name: str
    tokens: Tokens
    salt: str = ""
    expected: Tokens = ()


@frozen
class StorageReply:
    """What a server answered."""

    tokens: Tokens
    device: int
    host: int
    storage: int
    """Tokens of the prompt that it had, by where they were."""


Replies = dict[str, dict[str, StorageReply]]
"""By phase (`written`, or the policy) and the name of the request."""


def run_storage(runs: EngineRuns, only: str = "") -> list[str]:
    """Play both cores with each model; returns what was wrong, in words."""
    wrong = []
    for model, ranks in product(MODELS, RANKS):
        name = f"{model}-tp{ranks}"
        if only not in name:
            continue
        made = make_model(model, runs.seed)
        made.save_pretrained(runs.folder / model)
        oracle = GreedyOracle(made)
        written, read = drawn(runs.seed)
        written, read = ([_with_reply(each, oracle) for each in some] for some in (written, read))
        served = {
            core: _served(runs, _setup(model, core, ranks), written, read)
            for core in (RUST, KVCANON)
        }
        requests = {each.name: each for each in (*written, *read)}
        for core, replies in served.items():
            wrong += judged(f"{name} {core}", replies, requests, runs.say)
        wrong += compared(name, served[KVCANON], served[RUST])
    return wrong


def drawn(seed: int) -> tuple[list[StorageRequest], list[StorageRequest]]:
    """The prompts that are written, and those that are read."""
    rng = random.Random(seed)

    def tokens(count: int) -> Tokens:
        return tuple(rng.randrange(3, VOCABULARY) for _ in range(count))

    first, second, third = (tokens(PROMPT_TOKENS) for _ in range(3))
    written = [
        StorageRequest("first", first),
        StorageRequest("second", second),
        StorageRequest("salted", third, salt="tenant"),
    ]
    read = [
        StorageRequest("half", first[:101]),
        StorageRequest("whole after half", first),
        StorageRequest("longer", first + tokens(40)),
        StorageRequest("branch", second[:130] + tokens(50)),
        StorageRequest("rest of a branch", second),
        StorageRequest("same salt", third, salt="tenant"),
        StorageRequest("other salt", third, salt="another"),
        StorageRequest("no salt", third),
        StorageRequest("unknown", tokens(PROMPT_TOKENS)),
        StorageRequest("shorter than is fetched", second[:12]),
    ]
    return written, read


def judged(
    name: str,
    replies: Replies,
    requests: Mapping[str, StorageRequest],
    say: Callable[[str], None],
) -> list[str]:
    """Print what a server found; returns which replies were wrong."""
    wrong = []
    for phase, by_request in replies.items():
        bad = [
            each
            for each, reply in by_request.items()
            if reply.tokens[: len(requests[each].expected)] != requests[each].expected
        ]
        found = sum(reply.storage for reply in by_request.values())
        right = len(by_request) - len(bad)
        say(f"{name} {phase}: {right} of {len(by_request)} replies right, {found} tokens stored")
        wrong += [f"{name} {phase}: the reply to {each!r} is wrong" for each in bad]
        if phase in POLICIES and not found:
            wrong.append(f"{name} {phase}: nothing was found in storage")
    return wrong


def compared(model: str, ours: Replies, theirs: Replies) -> list[str]:
    """Where kvcanon's core found other tokens than Rust's, request by request.

    Under `best_effort` a fetch ends with what has come, which no two runs need have alike.
    """
    wrong = []
    for phase, by_request in ours.items():
        for name, reply in by_request.items():
            other = theirs[phase][name]
            if phase != AT_ONCE and evolve(reply, tokens=()) != evolve(other, tokens=()):
                wrong.append(f"{model} {phase} {name!r}: kvcanon {reply}, Rust {other}")
    return wrong


def _with_reply(request: StorageRequest, oracle: GreedyOracle) -> StorageRequest:
    return evolve(request, expected=oracle(request.tokens, REPLY_TOKENS))


def _setup(model: str, core: str, ranks: int) -> ServerSetup:
    """A server with storage, which runs one request at a time."""
    flags = (
        *("--hicache-storage-backend", "file", "--hicache-storage-prefetch-policy", WAIT),
        *("--hicache-storage-backend-extra-config", EXTRA, "--admin-api-key", KEY),
    )
    sizes = evolve(SCRIPTED, at_once=1)
    return ServerSetup(model, core, WRITE_THROUGH, ranks, sizes=sizes, events=False, flags=flags)


def _served(
    runs: EngineRuns,
    setup: ServerSetup,
    written: list[StorageRequest],
    read: list[StorageRequest],
) -> Replies:
    """What one server answers in all phases."""
    own = runs.folder / f"storage-{setup.name}"
    (own / "pages").mkdir(parents=True)
    found: Replies = {}
    with running(setup, runs.folder / setup.model, own, {FOLDER: str(own / "pages")}) as server:
        at = evolve(server_at(server.ports.http), api_key=KEY)
        found["written"] = {each.name: _answered(at, each) for each in written}
        for policy in POLICIES:
            _detach_and_empty(at)
            attached = {
                "hicache_storage_backend": "file",
                "hicache_storage_backend_extra_config_json": EXTRA,
                "hicache_storage_prefetch_policy": policy,
            }
            transport.ask(at, "PUT", STORAGE, attached)
            ask = _answered_later if policy == AT_ONCE else _answered
            found[policy] = {each.name: ask(at, each) for each in read}
    return found


def _answered(at: EngineAddress, request: StorageRequest) -> StorageReply:
    """Send a request, and wait for the reply."""
    body = _body(request.tokens, REPLY_TOKENS)
    if request.salt:
        body["cache_salt"] = request.salt
    answer = transport.ask_json(at, "POST", "/generate", body)
    details = answer["meta_info"].get("cached_tokens_details") or {}
    counts = (int(details.get(place) or 0) for place in ("device", "host", "storage"))
    return StorageReply(tuple(answer["output_ids"]), *counts)


def _answered_later(at: EngineAddress, request: StorageRequest) -> StorageReply:
    """Send a request while another runs, so that it waits, and wait for the reply."""
    body = _body(RUNNING, RUNNING_TOKENS, ignore_eos=True) | {"stream": True}
    parts = transport.stream(at, "/generate", body)
    next(parts)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(_answered, at, request)
        for _ in parts:
            pass
        return reply.result()


def _body(tokens: Tokens, count: int, **sampling: object) -> dict[str, Any]:
    """The body of a request for a greedy reply."""
    wanted = {"temperature": 0, "max_new_tokens": count} | sampling
    return {"input_ids": list(tokens), "sampling_params": wanted}


def _detach_and_empty(at: EngineAddress) -> None:
    """Detach storage once all pages are written, and empty the cache above it."""
    detach(at)
    transport.ask(at, "POST", "/flush_cache?timeout=60", {})


def detach(at: EngineAddress) -> None:
    """Detach storage once all pages are written. Raises: UsageError, if they are not."""
    until = monotonic() + IDLE_SECONDS
    while True:
        try:
            transport.ask(at, "DELETE", STORAGE)
        except ServerProblem as problem:
            # SGLang detaches nothing while pages are being written.
            if monotonic() > until:
                raise UsageError(f"storage is not detached: {problem}") from problem
            sleep(0.5)
        else:
            return
