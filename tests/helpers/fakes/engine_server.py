"""Serves a fake engine over HTTP, as SGLang and as vLLM do."""

from __future__ import annotations

import json
import select
import socket
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field, frozen

from fakes.model import FakeEngine, FakeRun, Scored, text_of
from kvcanon.spec.types import SWA, Namespace

LORA = "tuned"
MODEL = "fake"
STEP_SECONDS = 0.004
"""Between the tokens of a stream, so that clients can leave, and others send meanwhile."""


@frozen
class ServedAs:
    """How a fake engine shows itself."""

    dialect: str = "sglang"
    says_window: bool = True
    """Whether the sizes of pools and window are known, as far as the dialect says them."""
    cache_off: bool = False
    key: str = ""
    """The API key that is asked for."""
    hides: frozenset[str] = frozenset()
    """What the server does not have: "metrics", "counts", "prompt count", "salts", "salt field",
    "scores"; with "loads" its /v1/loads has another form."""
    dies_after: int = 0
    """Requests after which the server ends; 0 for never."""
    dies_in_reply: int = 0
    """Streamed tokens of one reply after which it ends; 0 for never."""
    refuses: tuple[int, int, int] = (0, 0, 0)
    """A status, after how many requests it is answered, and how often."""
    prefix: str = ""
    """What stands before every path."""
    header: tuple[str, str] = ("", "")
    """The name and the value of one that is asked for."""
    miscounts: int = 0
    """How many tokens too many it counts of a reply."""
    increments: bool = False
    """Whether a part of a streamed reply has the new tokens alone."""


@define
class ServerState:
    """A server: its engine and what it was sent."""

    engine: FakeEngine
    shown: ServedAs
    running: dict[str, FakeRun] = field(factory=dict)
    served: int = 0
    posted: int = 0
    dead: bool = False
    prompt_tokens: int = 0


class FakeHandler(BaseHTTPRequestHandler):
    """Answers requests of both dialects."""

    protocol_version = "HTTP/1.1"
    state: ServerState

    def do_GET(self) -> None:
        """Answer what a server says of itself."""
        if not self._allowed():
            return
        openai = self._vllm_facts
        answers = {"sglang": self._sglang_facts, "vllm": openai, "chat": openai}
        found = answers[self.state.shown.dialect]().get(self._path)
        if found is None:
            self._send(404, {"detail": "Not Found"})
        elif isinstance(found, str):
            self._send_bytes(200, found.encode(), "text/plain")
        else:
            self._send(200, found)

    def do_POST(self) -> None:
        """Answer a request to generate, to abort or to flush."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        if not self._allowed() or self._refused():
            return
        path = self._path
        dialect = self.state.shown.dialect
        if path == "/generate" and dialect == "sglang":
            self._generate(body)
        elif path == "/v1/completions" and dialect == "vllm":
            self._complete(body)
        elif path == "/v1/chat/completions" and dialect == "chat":
            self._chat(body)
        elif path == "/replace_weights":
            self.state.engine.replace_weights(body["lora"])
            self._send(200, {"success": True})
        elif path == "/abort_request" and dialect == "sglang":
            if body["rid"] in self.state.running:
                self.state.running[body["rid"]].aborted = True
            self._send_bytes(200, b"", "text/plain")
        elif path in {"/flush_cache", "/reset_prefix_cache"}:
            self.state.engine.flush()
            self._send(200, {"success": True})
        else:
            self._send(404, {"detail": "Not Found"})

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    @property
    def _path(self) -> str:
        """The path behind the prefix; nothing that is known if it is another one."""
        path, prefix = self.path.partition("?")[0], self.state.shown.prefix
        return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else "/elsewhere"

    def _refused(self) -> bool:
        """Whether the server is too busy for this request."""
        status, after, times = self.state.shown.refuses
        self.state.posted += 1
        if not after < self.state.posted <= after + times:
            return False
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"busy")
        return True

    # ----------------------------------------------------------------------------------------------
    # SGLang
    # ----------------------------------------------------------------------------------------------

    def _sglang_facts(self) -> dict[str, Any]:
        config, shown = self.state.engine.config, self.state.shown
        size = config.page_size
        window_tokens = config.device_slots.swa * size if SWA in config.components else None
        return {
            "/server_info": {
                "version": "fake",
                "page_size": size,
                "max_total_num_tokens": config.device_slots.full * size,
                "disable_radix_cache": shown.cache_off,
                "radix_eviction_policy": "lru",
                "enable_hierarchical_cache": config.host_tier,
                "dp_size": 1,
                "speculative_algorithm": "EAGLE" if self.state.engine.speculates else None,
                "internal_states": [{"memory_usage": {"token_capacity_swa": window_tokens}}],
            },
            "/v1/loads": {"loads": ["odd"] if "loads" in shown.hides else [self._load()]},
            "/model_info": {"architectures": ["FakeForCausalLM"], "model_type": "fake"},
            "/v1/models": {"data": [{"id": MODEL}, {"id": LORA, "parent": MODEL}]},
        }

    def _load(self) -> dict[str, int]:
        engine = self.state.engine
        return {
            "num_running_reqs": 0,
            "num_waiting_reqs": 0,
            "num_used_tokens": engine.held_pages() * engine.config.page_size,
            "max_total_num_tokens": engine.config.device_slots.full * engine.config.page_size,
        }

    def _generate(self, body: dict[str, Any]) -> None:
        namespace = Namespace(body.get("extra_key"), self._salt(body), body.get("lora_path"))
        sampling = body["sampling_params"]
        run = FakeRun(list(body["input_ids"]), sampling["max_new_tokens"], namespace)
        _stop(run, sampling)
        self.state.running[body["rid"]] = run
        prompt = len(run.tokens)
        if body.get("stream"):
            self._begin_stream()
            for number, _ in enumerate(self.state.engine.serve(run), 1):
                self._part(self._sglang_reply(run, prompt, None))
                if number == self.state.shown.dies_in_reply:
                    self.close_connection = self.state.dead = True
                    return
                time.sleep(STEP_SECONDS)
            self._part(self._sglang_reply(run, prompt, "abort" if run.aborted else "length"))
            self._end_stream()
        elif self._serve(run):
            self._send(200, self._sglang_reply(run, prompt, "length"))

    def _sglang_reply(self, run: FakeRun, prompt: int, ending: str | None) -> dict[str, Any]:
        cached = run.device_tokens + run.host_tokens
        facts: dict[str, Any] = {
            "finish_reason": ending and {"type": ending},
            "prompt_tokens": prompt,
            "num_retractions": run.preemptions,
            "cached_tokens": cached,
        }
        if cached:
            facts["cached_tokens_details"] = {"device": run.device_tokens, "host": run.host_tokens}
        if "scores" not in self.state.shown.hides:
            facts["output_token_logprobs"] = [
                [each.logprob, each.token, None] for each in run.scored
            ]
            facts["output_top_logprobs"] = [
                [[each.logprob, each.token, None], [each.second_logprob, each.second, None]]
                for each in run.scored
            ]
        facts["completion_tokens"] = len(run.scored) + self.state.shown.miscounts
        first = max(0, len(run.scored) - 1) if self.state.shown.increments and not ending else 0
        for name in ("output_token_logprobs", "output_top_logprobs"):
            if name in facts:
                facts[name] = facts[name][first:]
        tokens = [each.token for each in run.scored[first:]]
        return {"text": _text(run), "output_ids": tokens, "meta_info": facts}

    # ----------------------------------------------------------------------------------------------
    # vLLM
    # ----------------------------------------------------------------------------------------------

    def _vllm_facts(self) -> dict[str, Any]:
        config, shown = self.state.engine.config, self.state.shown
        facts: dict[str, Any] = {
            "/version": {"version": "fake"},
            "/v1/models": {
                "data": [
                    {"id": MODEL, "max_model_len": self._context},
                    {"id": LORA, "parent": MODEL},
                ]
            },
        }
        if "salt field" in shown.hides:
            schema: dict[str, Any] = {"CompletionRequest": {"properties": {"prompt": {}}}}
            facts["/openapi.json"] = {"components": {"schemas": schema}}
        if "metrics" not in shown.hides:
            held = self.state.engine.held_pages() / config.device_slots.full
            facts["/metrics"] = (
                "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
                f'vllm:cache_config_info{{block_size="{config.page_size}",'
                f'enable_prefix_caching="{not shown.cache_off}",'
                f'num_gpu_blocks="{config.device_slots.full}"}} 1.0\n'
                'vllm:num_requests_running{engine="0"} 0.0\n'
                f'vllm:kv_cache_usage_perc{{engine="0"}} {held}\n'
                f'vllm:prompt_tokens_total{{engine="0"}} {self.state.prompt_tokens}\n'
                f'vllm:num_preemptions_total{{engine="0"}} {self.state.engine.preemptions}\n'
            )
            if self.state.engine.speculates:
                facts["/metrics"] += 'vllm:spec_decode_num_drafts_total{engine="0"} 7.0\n'
        return facts

    @property
    def _context(self) -> int:
        """What fits into the pool by itself, as vLLM demands."""
        config = self.state.engine.config
        return min(4096, config.device_slots.full * config.page_size)

    def _complete(self, body: dict[str, Any]) -> None:
        if "prompt" not in body:
            self._send(400, {"error": "no prompt"})
            return
        self._answer(body, list(body["prompt"]), self._choice)

    def _chat(self, body: dict[str, Any]) -> None:
        self._answer(body, templated(body["messages"]), self._said)

    def _answer(
        self,
        body: dict[str, Any],
        tokens: list[int],
        choice: Callable[[list[Scored], str], dict[str, Any]],
    ) -> None:
        """Serve a prompt of either of OpenAI's interfaces."""
        lora = None if body["model"] == MODEL else body["model"]
        run = FakeRun(tokens, body["max_tokens"], Namespace(None, self._salt(body), lora))
        _stop(run, body)
        prompt = len(run.tokens)
        self.state.prompt_tokens += prompt
        if body.get("stream"):
            self._begin_stream()
            for each in self.state.engine.serve(run):
                if not run.aborted:
                    self._part({"choices": [choice([each], "delta")]})
                    run.aborted = self._client_leaves()
            self._part({"choices": [], "usage": self._usage(run, prompt)})
            self._end_stream()
        elif self._serve(run):
            choices = [choice(run.scored, "message")]
            answer = {"choices": choices, "usage": self._usage(run, prompt)}
            self._send(200, answer)

    def _usage(self, run: FakeRun, prompt: int) -> dict[str, Any]:
        generated = len(run.scored) + self.state.shown.miscounts
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": generated}
        if "prompt count" in self.state.shown.hides:
            del usage["prompt_tokens"]
        if "counts" not in self.state.shown.hides:
            cached = run.device_tokens + run.host_tokens
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def _said(self, scored: list[Scored], name: str) -> dict[str, Any]:
        """A message of a chat, or a part of it."""
        said: dict[str, Any] = {name: {"content": "".join(text_of(each.token) for each in scored)}}
        if "scores" in self.state.shown.hides:
            return said
        content = [
            {
                "token": text_of(each.token),
                "logprob": each.logprob,
                "top_logprobs": [
                    {"token": text_of(each.token), "logprob": each.logprob},
                    {"token": text_of(each.second), "logprob": each.second_logprob},
                ],
            }
            for each in scored
        ]
        return said | {"logprobs": {"content": content}}

    def _choice(self, scored: list[Scored], _name: str) -> dict[str, Any]:
        text = "".join(text_of(each.token) for each in scored)
        choice: dict[str, Any] = {"text": text, "token_ids": [each.token for each in scored]}
        if "scores" not in self.state.shown.hides:
            choice["logprobs"] = {
                "tokens": [f"token_id:{each.token}" for each in scored],
                "token_logprobs": [each.logprob for each in scored],
                "top_logprobs": [
                    {
                        f"token_id:{each.token}": each.logprob,
                        f"token_id:{each.second}": each.second_logprob,
                    }
                    for each in scored
                ],
            }
        return choice

    # ----------------------------------------------------------------------------------------------
    # HTTP
    # ----------------------------------------------------------------------------------------------

    def _serve(self, run: FakeRun) -> bool:
        """Serve to the end; False if the server ends."""
        state = self.state
        state.served += 1
        state.dead |= 0 < state.shown.dies_after < state.served
        if state.dead:
            self.close_connection = True
            self.connection.close()
            return False
        if state.shown.cache_off:
            state.engine.flush()
        for _ in state.engine.serve(run):
            # Engines go on with all that run, a token of each in turn.
            if state.engine.grows and state.engine.running > 1:
                time.sleep(STEP_SECONDS)
        return True

    def _salt(self, body: dict[str, Any]) -> str | None:
        ignored = {"salts", "salt field"} & self.state.shown.hides
        return None if ignored else body.get("cache_salt")

    def _allowed(self) -> bool:
        key, (name, value) = self.state.shown.key, self.state.shown.header
        if key in {"", (self.headers["Authorization"] or "").removeprefix("Bearer ")} and (
            not name or self.headers[name] == value
        ):
            return True
        self._send(401, {"error": "Unauthorized"})
        return False

    def _send(self, status: int, value: object) -> None:
        self._send_bytes(status, json.dumps(value).encode(), "application/json")

    def _send_bytes(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()

    def _part(self, value: object) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def _client_leaves(self) -> bool:
        """Wait a step for the client to leave; it is seen at once, as engines see it."""
        ready, _, _ = select.select([self.connection], [], [], STEP_SECONDS)
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)

    def _end_stream(self) -> None:
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def templated(messages: Sequence[dict[str, str]]) -> list[int]:
    """The tokens of messages: a beginning, a role, words and an end for each, and a role to go on.

    A token of a reply is itself, and a word of a user has a token of its own.
    """
    made = [1000, 1001]
    for each in messages:
        made += [2000 + len(each["role"]), 1002]
        made += [zlib.crc32(word.encode()) % 50_000 + 3000 for word in each["content"].split()]
        made.append(1003)
    return [*made, 2009, 1002]


def _stop(run: FakeRun, asked: dict[str, Any]) -> None:
    """Let a request end as it is asked to."""
    (run.stop_token,) = asked.get("stop_token_ids") or (None,)
    (run.stop_text,) = asked.get("stop") or ("",)


def _text(run: FakeRun) -> str:
    return "".join(text_of(each.token) for each in run.scored)


class StrictServer(ThreadingHTTPServer):
    """A server whose clients may leave; `failed` has every other error of a handler."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.failed: list[BaseException] = []

    def handle_error(self, *_: object) -> None:
        """Keep the error of a handler, unless its client left."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.failed.append(error)


@contextmanager
def engine_at(
    engine: FakeEngine, shown: ServedAs | None = None, secured: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve an engine on the loopback; gives the address."""
    state = ServerState(engine, shown or ServedAs())
    with served_by(type("Bound", (FakeHandler,), {"state": state}), secured) as url:
        yield url


@contextmanager
def served_by(
    handler: type[BaseHTTPRequestHandler], secured: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve with a handler on the loopback; gives the address. Raises what a handler raised."""
    server = StrictServer(handler)
    if secured is not None:
        server.socket = secured.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        scheme = "http" if secured is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    if server.failed:
        raise server.failed[0]
