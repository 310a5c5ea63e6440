"""The client sends what a script says, and reads what a server answers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kvcanon.conformance.probe.transport import ServerProblem
from kvcanon.lab.servers.http_client import flush, generate, generate_and_abort, generate_together
from kvcanon.lab.servers.script import ScriptedRequest
from kvcanon.lab.servers.transcript import EngineReply

REQUEST = ScriptedRequest("chat 1", (5, 6, 7), (8, 9), namespace="tenant", salt="pepper")
LONG = ScriptedRequest("aborted 1", (5, 6), (1, 2, 3, 4, 5, 6), abort_after=2)


def answer(name: str, tokens: list[int], ending: str = "length") -> dict[str, Any]:
    """What SGLang answers."""
    facts = {
        "id": name,
        "finish_reason": {"type": ending},
        "num_retractions": 1,
        "cached_tokens": 12,
        "cached_tokens_details": {"device": 8, "host": 4},
    }
    return {"output_ids": tokens, "meta_info": facts}


class Engine(BaseHTTPRequestHandler):
    """Answers like SGLang, and keeps what it was sent."""

    sent: list[tuple[str, Any]]
    aborted: threading.Event

    def do_POST(self) -> None:
        """Answer one request."""
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        self.sent.append((self.path, body))
        if self.path == "/abort_request":
            self.aborted.set()
        status = 404 if self.path == "/unknown" else 200
        self.send_response(status)
        self.end_headers()
        if self.path == "/generate":
            self._generate(body)

    def _generate(self, body: dict[str, Any]) -> None:
        if body.get("stream"):
            for count in range(1, 5):
                self._stream(answer("aborted 1", [1, 2, 3, 4][:count]))
                if count == 3:
                    assert self.aborted.wait(5)
            self._stream(answer("aborted 1", [1, 2, 3, 4], "abort"))
            self.wfile.write(b"data: [DONE]\n\n")
            return
        names = body["rid"]
        many = [answer(name, [8, 9]) for name in names] if isinstance(names, list) else None
        self.wfile.write(json.dumps(many or answer(names, [8, 9])).encode())

    def _stream(self, told: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(told).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def engine() -> Iterator[tuple[int, list[tuple[str, Any]]]]:
    """A server's port, and what it was sent."""
    handler = type("Fresh", (Engine,), {"sent": [], "aborted": threading.Event()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1], handler.sent  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join()


def test_request_is_sent_whole_and_its_reply_read(
    engine: tuple[int, list[tuple[str, Any]]],
) -> None:
    """Prompt, length and namespace go out; tokens, hits by medium and retractions come back."""
    port, sent = engine
    reply = generate(port, REQUEST)
    assert reply == EngineReply("chat 1", (8, 9), device_tokens=8, host_tokens=4, retractions=1)
    ((path, body),) = sent
    assert (path, body) == (
        "/generate",
        {
            "input_ids": [5, 6, 7],
            "sampling_params": {"temperature": 0, "max_new_tokens": 2},
            "rid": "chat 1",
            "extra_key": "tenant",
            "cache_salt": "pepper",
        },
    )


def test_batch_is_one_message(engine: tuple[int, list[tuple[str, Any]]]) -> None:
    """All requests of a batch go out in one message; replies keep their order."""
    port, sent = engine
    replies = generate_together(port, [LONG, REQUEST])
    assert [each.name for each in replies] == ["aborted 1", "chat 1"]
    assert [body["input_ids"] for _, body in sent] == [[[5, 6], [5, 6, 7]]]


def test_request_is_aborted_after_enough_tokens(
    engine: tuple[int, list[tuple[str, Any]]],
) -> None:
    """The abort names the request, goes out once, and the reply is what came up to the end."""
    port, sent = engine
    reply = generate_and_abort(port, LONG)
    assert (reply.tokens, reply.ending) == ((1, 2, 3, 4), "abort")
    assert sent[1:] == [("/abort_request", {"rid": "aborted 1"})]


def test_refusal_is_an_error(engine: tuple[int, list[tuple[str, Any]]]) -> None:
    """A status other than 200 is not taken for an answer."""
    port, sent = engine
    flush(port)
    assert sent[0][0] == "/flush_cache?timeout=60"
    with pytest.raises(OSError, match="refused"):
        flush(1)
    from kvcanon.lab.servers.http_client import ask  # noqa: PLC0415

    with pytest.raises(ServerProblem, match="/unknown answered 404"):
        ask(port, "POST", "/unknown", {})
