"""The few calls of a server's HTTP interface that a script needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any, cast

from kvcanon.conformance.serving.script import ScriptedRequest, Tokens
from kvcanon.conformance.serving.transcript import EngineReply

TIMEOUT = 60.0
_STREAM_LINE = b"data: "
_STREAM_END = b"[DONE]"

Reply = Mapping[str, Any]


def ask(
    port: int, method: str, path: str, body: object = None, *, timeout: float = TIMEOUT
) -> bytes:
    """Send one request, and return the body of the answer. Raises: OSError, HTTPException."""
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise HTTPException(f"{path} answered {response.status}: {answer[:200]!r}")
        return answer
    finally:
        connection.close()


def flush(port: int) -> None:
    """Empty the cache, once no request runs. Raises: OSError, HTTPException."""
    ask(port, "POST", f"/flush_cache?timeout={TIMEOUT:g}", {})


def generate(port: int, request: ScriptedRequest) -> EngineReply:
    """Send a request, and wait for its reply. Raises: OSError, HTTPException."""
    return _reply(request, json.loads(ask(port, "POST", "/generate", _body(request))))


def generate_together(port: int, requests: Sequence[ScriptedRequest]) -> list[EngineReply]:
    """Send requests in one message, and wait for all. Raises: OSError, HTTPException."""
    bodies = [_body(each) for each in requests]
    body = {
        name: [each[name] for each in bodies] for name in ("input_ids", "sampling_params", "rid")
    }
    answers = cast("list[Reply]", json.loads(ask(port, "POST", "/generate", body)))
    return [_reply(request, answer) for request, answer in zip(requests, answers, strict=True)]


def generate_and_abort(port: int, request: ScriptedRequest) -> EngineReply:
    """Send a request, and abort it once enough tokens have come. Raises: OSError, HTTPException."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    last: Reply = {}
    aborted = False
    try:
        text = json.dumps(_body(request) | {"stream": True})
        connection.request("POST", "/generate", text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        while line := response.readline():
            data = line.removeprefix(_STREAM_LINE).strip()
            if not line.startswith(_STREAM_LINE) or data == _STREAM_END:
                continue
            last = json.loads(data)
            if not aborted and len(last.get("output_ids", ())) >= request.abort_after:
                ask(port, "POST", "/abort_request", {"rid": request.name})
                aborted = True
    finally:
        connection.close()
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
