"""The few calls of a server's HTTP interface that a script needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from kvcanon.conformance.probe import transport
from kvcanon.conformance.probe.transport import EngineAddress
from kvcanon.lab.servers.script import ScriptedRequest, Tokens
from kvcanon.lab.servers.transcript import EngineReply

TIMEOUT = 60.0

Reply = Mapping[str, Any]


def server_at(port: int, timeout: float = TIMEOUT) -> EngineAddress:
    """The address of a server on the loopback."""
    return EngineAddress("127.0.0.1", port, timeout=timeout)


def ask(
    port: int, method: str, path: str, body: object = None, *, timeout: float = TIMEOUT
) -> bytes:
    """Send one request, and return the body of the answer. Raises: ServerProblem."""
    return transport.ask(server_at(port, timeout), method, path, body)


def flush(port: int) -> None:
    """Empty the cache, once no request runs. Raises: ServerProblem."""
    ask(port, "POST", f"/flush_cache?timeout={TIMEOUT:g}", {})


def generate(port: int, request: ScriptedRequest) -> EngineReply:
    """Send a request, and wait for its reply. Raises: ServerProblem."""
    return _reply(request, json.loads(ask(port, "POST", "/generate", _body(request))))


def generate_together(port: int, requests: Sequence[ScriptedRequest]) -> list[EngineReply]:
    """Send requests in one message, and wait for all. Raises: ServerProblem."""
    bodies = [_body(each) for each in requests]
    body = {
        name: [each[name] for each in bodies] for name in ("input_ids", "sampling_params", "rid")
    }
    answers = cast("list[Reply]", json.loads(ask(port, "POST", "/generate", body)))
    return [_reply(request, answer) for request, answer in zip(requests, answers, strict=True)]


def generate_and_abort(port: int, request: ScriptedRequest) -> EngineReply:
    """Send a request, and abort it once enough tokens have come. Raises: ServerProblem."""
    last: Reply = {}
    aborted = False
    for part in transport.stream(server_at(port), "/generate", _body(request) | {"stream": True}):
        last = part
        if not aborted and len(last.get("output_ids", ())) >= request.abort_after:
            ask(port, "POST", "/abort_request", {"rid": request.name})
            aborted = True
    return _reply(request, last)


def _body(request: ScriptedRequest) -> dict[str, Any]:
    sampling = {"temperature": 0, "max_new_tokens": len(request.expected)}
    body = {"input_ids": list(request.tokens), "sampling_params": sampling, "rid": request.name}
    named = {"extra_key": request.namespace, "cache_salt": request.salt}
    return body | {name: value for name, value in named.items() if value}


def _reply(request: ScriptedRequest, answer: Reply) -> EngineReply:
    facts = answer.get("meta_info", {})
    details = facts.get("cached_tokens_details") or {}
    cached = facts.get("cached_tokens", 0)
    host = details.get("host", 0)
    ending = facts.get("finish_reason") or {"type": answer.get("error", "it said nothing")}
    return EngineReply(
        request.name,
        _tokens(answer),
        device_tokens=details.get("device", cached - host),
        host_tokens=host,
        retractions=facts.get("num_retractions", 0),
        ending=str(ending["type"]),
    )


def _tokens(answer: Reply) -> Tokens:
    return tuple(answer.get("output_ids", ()))
