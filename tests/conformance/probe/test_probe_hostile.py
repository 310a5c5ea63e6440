"""Servers that mean harm: whatever one sends, a probe ends in time, in one line or with a report.

All of them are on the loopback, and send a bounded number of bytes a try.
"""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.engine_server import served_by
from kvcanon.conformance.cli import main
from kvcanon.conformance.probe import cut_answers, openai_api, sglang_api, transport
from kvcanon.conformance.probe.sglang_api import SglangApi
from kvcanon.conformance.probe.talk import ProbeRequest
from kvcanon.conformance.probe.transport import ServerProblem, address_of

SECONDS = "1"
"""The time-out of each probe here."""
MOST_SECONDS = 12.0
"""A probe of a server that hangs takes few time-outs."""
DRIP_SECONDS = 0.05
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DEEP = b"[" * 200_000
Send = Callable[[bytes], object]


def drip(send: Send, first: bytes, then: bytes) -> None:
    """Send a byte now and then, until the client leaves."""
    send(first)
    while True:
        time.sleep(DRIP_SECONDS)
        send(then)


def pour(send: Send, first: bytes, then: bytes) -> None:
    """Send as fast as the client reads, until it leaves."""
    send(first)
    while True:
        send(then * (1 + (1 << 16) // len(then)))


RAW: dict[str, Callable[[Send], object]] = {
    "closes at once": lambda _send: None,
    "drips its status line": lambda send: drip(send, b"HTTP/1.1 2", b"0"),
    "drips its headers": lambda send: drip(send, HEAD, b"A: b\r\n"),
    "drips its body": lambda send: drip(send, HEAD + b"Content-Length: 999999\r\n\r\n", b" "),
    "drips the size of a chunk": lambda send: drip(
        send, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"
    ),
    "drips a redirect": lambda send: drip(send, b"HTTP/1.1 302 x\r\nLocation: ", b"x"),
    "says for ever that it goes on": lambda send: drip(send, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "pours a status line": lambda send: pour(send, b"HTTP/1.1 200 ", b"OK"),
    "pours headers": lambda send: pour(send, HEAD, b"A: b\r\n"),
    "pours a body": lambda send: pour(send, HEAD + b"\r\n", b" "),
    "pours chunks": lambda send: pour(
        send, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"
    ),
    "lies about its length": lambda send: send(
        HEAD + b"Content-Length: 1" + b"0" * 99 + b"\r\n\r\n{}"
    ),
    "has a length that is none": lambda send: send(
        HEAD + "Content-Length: ²\r\n\r\n{}".encode("latin-1")
    ),
    "is no HTTP": lambda send: send(b"\0\xff\x1b[2J\r\n\r\n"),
    "nests its body": lambda send: send(HEAD + b"\r\n" + DEEP),
    "has a number of digits without end": lambda send: send(
        HEAD + b'\r\n{"page_size": ' + b"9" * 5000 + b"}"
    ),
    "is no text": lambda send: send(HEAD + b"\r\n\xff\xfe\x00"),
    "is busy for ²": lambda send: send(
        "HTTP/1.1 503 x\r\nRetry-After: ²\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    ),
}


@contextmanager
def raw_server(answer: Callable[[Send], object]) -> Iterator[str]:
    """A server that sends what it wants to whoever connects; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(client: socket.socket) -> None:
            with client, suppress(OSError):
                client.settimeout(5)
                client.recv(1 << 16)
                answer(client.sendall)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server is asked again soon, and the first prompt has no more time than others."""
    monkeypatch.setattr(transport, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr("kvcanon.conformance.probe.player.WAKE_SECONDS", 1.0)
    monkeypatch.setattr(cut_answers, "PAUSE_SECONDS", 0.001)


def ends(capsys: pytest.CaptureFixture[str], url: str, *options: str) -> int:
    """Probe, and hold what is printed to what any server may cause; the exit code."""
    began = time.monotonic()
    limits = ("--timeout", SECONDS, "--seconds", "2", "--rate", "1000")
    code = main(["probe", url, *limits, *options])
    printed = capsys.readouterr()
    assert time.monotonic() - began < MOST_SECONDS
    assert code in {1, 2, 3}, printed.out
    assert "Traceback" not in printed.err
    if code == 2:
        assert len(printed.err.splitlines()) == 1, printed.err
        assert not printed.out
    for character in printed.out + printed.err:
        assert character == "\n" or character.isprintable(), repr(character)
    return code


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("api", ["auto", "openai"])
def test_server_that_is_hostile_from_its_first_answer_is_one_line(
    name: str, api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything was played nothing can be found."""
    with raw_server(RAW[name]) as url:
        assert ends(capsys, url, "--api", api) == 2


class HostileEngine(BaseHTTPRequestHandler):
    """An engine of both dialects that says usual facts, and answers prompts as a test says."""

    facts: dict[str, Any] = {}  # noqa: RUF012  # Each test makes a class of its own.
    dialect = "sglang"
    answer: Callable[[Send], object]

    def do_GET(self) -> None:
        """Say what the server is."""
        known: dict[str, Any] = {"/v1/models": {"data": [{"id": "fake", "max_model_len": 4096}]}}
        if self.dialect == "sglang":
            known["/server_info"] = {"max_total_num_tokens": 1 << 16, "page_size": 4}
        found = (known | self.facts).get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def do_POST(self) -> None:
        """Answer a prompt."""
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        with suppress(OSError):
            type(self).answer(self.wfile.write)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def hostile(dialect: str, answer: Callable[[Send], object], **facts: object) -> type[HostileEngine]:
    """A server that answers prompts so."""
    paths = {f"/{name}": value for name, value in facts.items()}
    made = {"dialect": dialect, "answer": staticmethod(answer), "facts": paths}
    return type("Hostile", (HostileEngine,), made)


def says(value: object) -> Callable[[Send], object]:
    """An answer of JSON."""
    return lambda send: send(HEAD + b"\r\n" + json.dumps(value).encode())


def sglang_reply(**facts: object) -> dict[str, object]:
    """A reply of SGLang, with some facts in place of the usual ones."""
    usual: dict[str, object] = {"finish_reason": {"type": "length"}, "cached_tokens": 0}
    return {"output_ids": [7], "meta_info": usual | facts}


def openai_reply(**choice: object) -> dict[str, object]:
    """A reply of vLLM."""
    return {"choices": [{"token_ids": [7]} | choice], "usage": None}


HUGE = 10**300
WRONG_REPLIES: dict[str, tuple[str, object]] = {
    "cached tokens are text": ("sglang", sglang_reply(cached_tokens="12")),
    "cached tokens are negative": ("sglang", sglang_reply(cached_tokens=-4)),
    "cached tokens are huge": ("sglang", sglang_reply(cached_tokens=HUGE)),
    "cached tokens are infinite": ("sglang", sglang_reply(cached_tokens=float("inf"))),
    "tiers are texts": (
        "sglang",
        sglang_reply(cached_tokens=4, cached_tokens_details={"device": "x"}),
    ),
    "tokens are texts": ("sglang", sglang_reply() | {"output_ids": ["a"]}),
    "tokens are an object": ("sglang", sglang_reply() | {"output_ids": {"a": 1}}),
    "tokens are true": ("sglang", sglang_reply() | {"output_ids": [True]}),
    "scores are no lists": ("sglang", sglang_reply(output_token_logprobs=[1, 2])),
    "scores are not numbers": (
        "sglang",
        sglang_reply(output_token_logprobs=[[float("nan"), 7, None]]),
    ),
    "the ending is a list": ("sglang", sglang_reply(finish_reason=["length"])),
    "a refusal has escapes": (
        "sglang",
        {"meta_info": {"finish_reason": {"type": "abort", "message": "\x1b[2J\n::error::x"}}},
    ),
    "there are no choices": ("openai", {"choices": []}),
    "choices are numbers": ("openai", {"choices": [1]}),
    "choices are text": ("openai", {"choices": "abc"}),
    "token ids are huge": ("openai", openai_reply(token_ids=[HUGE])),
    "token ids are named badly": ("openai", openai_reply(token_ids=["token_id:²"])),
    "log-probabilities are text": (
        "openai",
        openai_reply(
            logprobs={"tokens": ["token_id:7"], "token_logprobs": ["x"], "top_logprobs": [0]}
        ),
    ),
    "usage is a list": ("openai", openai_reply() | {"usage": [1]}),
    "cached tokens of the usage are text": (
        "openai",
        openai_reply() | {"usage": {"prompt_tokens_details": {"cached_tokens": "12"}}},
    ),
}


@pytest.mark.parametrize("name", WRONG_REPLIES)
def test_reply_of_another_form_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The line says which path answered so."""
    dialect, reply = WRONG_REPLIES[name]
    with served_by(hostile(dialect, says(reply))) as url:
        assert ends(capsys, url, "--api", dialect) == 2


LATE: dict[str, Callable[[Send], object]] = {
    "drips its reply": lambda send: drip(send, HEAD + b"\r\n", b" "),
    "pours its reply": lambda send: pour(send, HEAD + b"\r\n", b"["),
    "nests its reply": lambda send: send(HEAD + b"\r\n" + DEEP),
    "says nothing": lambda send: send(HEAD + b"\r\n"),
}


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize("dialect", ["sglang", "openai"])
def test_reply_that_does_not_end_ends_the_probe(
    name: str, dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finding where the server hangs, and one line where its answer is none."""
    with served_by(hostile(dialect, LATE[name])) as url:
        ends(capsys, url, "--api", dialect)


@pytest.mark.parametrize(
    "facts",
    [
        {"server_info": {"page_size": 10**9, "max_total_num_tokens": 10**12}},
        {"server_info": {"page_size": 4, "max_total_num_tokens": 1, "max_req_input_len": 2}},
        {"server_info": {"internal_states": [1], "page_size": "x", "max_total_num_tokens": -1}},
        {"server_info": {"internal_states": {"a": 1}, "max_total_num_tokens": True}},
        {"server_info": {"max_total_num_tokens": 9, "version": "\x1b[2J", "dp_size": HUGE}},
        {"v1/models": {"data": [{"id": "\x1b]0;x\x07\n::error::x"}]}},
        {"v1/models": {"data": {"id": 1}}},
        {"v1/models": {"data": [{"id": ["x"]}]}},
        {"v1/models": {"data": [{"id": "x" * 10**6}]}},
        {"openapi.json": {"components": []}},
    ],
    ids=str,
)
@pytest.mark.parametrize("dialect", ["sglang", "openai"])
def test_facts_of_another_form_end_in_time(
    dialect: str, facts: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes for which no prompt can be drawn are refused before one is drawn."""
    reply = sglang_reply() if dialect == "sglang" else openai_reply()
    with served_by(hostile(dialect, says(reply), **facts)) as url:
        ends(capsys, url, "--api", dialect, "--requests", "30")


STREAMS: dict[str, Callable[[Send], object]] = {
    "a line without an end": lambda send: pour(send, HEAD + b"\r\ndata: ", b"x"),
    "a line that drips": lambda send: drip(send, HEAD + b"\r\ndata: ", b"x"),
    "comments without an end": lambda send: drip(send, HEAD + b"\r\n", b": x\n\n"),
    "comments that are poured": lambda send: pour(send, HEAD + b"\r\n", b": x\n\n"),
    "a part that is too deep": lambda send: send(HEAD + b"\r\ndata: " + DEEP + b"\n\n"),
    "an error that is too long": lambda send: send(
        HEAD + b'\r\ndata: {"error": {"code": ' + b"9" * 300 + b"}}\n\n"
    ),
    "no end": lambda send: send(HEAD + b"\r\ndata: {}\n\n"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_stream_that_is_hostile_is_a_problem_in_time(name: str) -> None:
    """A part may take as long as an answer, and comments give it no more."""
    began = time.monotonic()
    with raw_server(STREAMS[name]) as url:
        address = address_of(url, timeout=0.5)
        with pytest.raises(ServerProblem):
            list(transport.stream(address, "/generate", {}))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("then", [b" ", b": x\n", b"data: {}\n\n", b"data: " + b"x" * 4096])
def test_answer_that_is_poured_ends_by_its_bytes(
    then: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before its time is over: a fast server would fill the memory in a minute."""
    for name in ("MOST_ANSWER_BYTES", "MOST_LINE_BYTES"):
        monkeypatch.setattr(transport, name, getattr(transport, name) >> 3)
    began = time.monotonic()
    with raw_server(lambda send: pour(send, HEAD + b"\r\n", then)) as url:
        address = address_of(url, timeout=60)
        for read in (
            lambda: transport.ask(address, "GET", "/x"),
            lambda: sum(1 for _ in transport.stream(address, "/x", {})),
        ):
            with pytest.raises(ServerProblem, match="more than any engine answers"):
                read()
    assert time.monotonic() - began < 20


class GoesOn(HostileEngine):
    """Takes an abort, and goes on with the reply all the same."""

    def do_POST(self) -> None:
        """Answer an abort at once, and a prompt without end."""
        if self.path == "/abort_request":
            self.send_response(200)
            self.end_headers()
        else:
            super().do_POST()


def test_reply_that_goes_on_after_an_abort_is_one_that_hangs() -> None:
    """Each of its parts comes in time, and there is no last one."""
    part = json.dumps(sglang_reply()).encode()

    def answer(send: Send) -> None:
        drip(send, HEAD + b"\r\n", b"data: " + part + b"\n\n")

    began = time.monotonic()
    with served_by(type("Going", (GoesOn,), {"answer": staticmethod(answer)})) as url:
        api = SglangApi(address_of(url, timeout=0.5), "run")
        with pytest.raises(ServerProblem, match="did not answer /abort_request"):
            api.generate(ProbeRequest("a", (5, 6), 4), lambda _count: True)
    assert time.monotonic() - began < 5


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3)
    ),
    max_leaves=12,
)
FIELDS = ("output_ids", "meta_info", "choices", "usage", "error")
META = ("finish_reason", "cached_tokens", "cached_tokens_details", "output_token_logprobs")
replies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=5) | st.builds(
    lambda facts, tokens: {
        "output_ids": tokens,
        "meta_info": {"finish_reason": {"type": "length"}} | facts,
    },
    st.dictionaries(st.sampled_from(META), values, max_size=4),
    values,
)


@settings(max_examples=300, deadline=None)
@given(reply=replies)
def test_any_reply_is_read_or_refused(reply: dict[str, object]) -> None:
    """No value of JSON at any place of a reply is anything but a reply or a server's problem."""
    for read in (openai_api._reply, openai_api._said, sglang_api._reply):
        with suppress(ServerProblem):
            transport.understood("/x", partial(read, reply))


ANSWERS = max(100, settings().max_examples)
"""Whole probes of servers that answer anything; `make malformed` plays 10,000."""
MOST_GROWTH_BYTES = 256 << 20
texts = st.text(max_size=40) | st.sampled_from(
    ["\x1b[2J", "\n::error::x", "\x9b31m", "\u202e", "\r", "\ud800"]
)
any_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(texts, each, max_size=3),
    max_leaves=8,
)
REPLY_FIELDS = (
    *("text", "output_ids", "meta_info", "choices", "usage", "error", "token_ids", "logprobs"),
    *("finish_reason", "cached_tokens", "cached_tokens_details", "output_token_logprobs"),
    *("prompt_tokens", "completion_tokens", "prompt_tokens_details", "message", "delta"),
)
INFO_FIELDS = (
    *("version", "page_size", "max_total_num_tokens", "internal_states", "dp_size"),
    *("disable_radix_cache", "radix_eviction_policy", "served_model_name", "max_req_input_len"),
)
PATHS = ("server_info", "v1/models", "openapi.json", "v1/loads", "model_info", "version")


@st.composite
def any_answers(draw: st.DrawFn) -> bytes:
    """A whole answer: a status, and what may be a reply with something wrong in it."""
    usual = draw(st.sampled_from([sglang_reply(), openai_reply()]))
    wrong = draw(st.dictionaries(st.sampled_from(REPLY_FIELDS), any_values, max_size=3))
    inner = usual.get("meta_info")
    reply: object = usual | wrong
    if draw(st.booleans()) and isinstance(inner, dict):
        reply = usual | {"meta_info": inner | wrong}
    body = json.dumps(draw(st.sampled_from([reply, wrong]) | any_values)).encode()
    body = draw(st.sampled_from([body, b"data: " + body + b"\n\n"]) | st.binary(max_size=200))
    status = draw(st.sampled_from([200, 200, 200, 200, 400, 404, 429, 500, 502, 302]))
    head = f"HTTP/1.1 {status} x\r\nLocation: {draw(texts)}\r\n".encode(errors="replace")
    return draw(st.sampled_from([head + b"\r\n", b""])) + body[: draw(st.integers(0, 4000))]


@settings(
    max_examples=ANSWERS, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    answer=any_answers(),
    info=st.dictionaries(st.sampled_from(INFO_FIELDS), any_values, max_size=2),
    facts=st.dictionaries(st.sampled_from(PATHS), any_values, max_size=1),
    dialect=st.sampled_from(["sglang", "openai"]),
)
def test_any_hostile_answer_ends_a_probe_in_time(
    answer: bytes,
    info: dict[str, object],
    facts: dict[str, object],
    dialect: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No traceback, no control byte on the screen, and no memory that goes on growing."""
    usual = {"max_total_num_tokens": 1 << 16, "page_size": 4}
    said = {"server_info": usual | info} | facts
    before = peak_bytes()
    with served_by(hostile(dialect, lambda send: send(answer), **said)) as url:
        ends(capsys, url, "--api", dialect, "--requests", "6")
    assert peak_bytes() - before < MOST_GROWTH_BYTES


def peak_bytes() -> int:
    """The most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
