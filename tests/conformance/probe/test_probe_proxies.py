"""Engines behind something that spoils their answers: the engine is accused of nothing.

A proxy forwards each request to a sound engine, and changes what comes back. Its faults are those
of the way to the server: they end in one line with 2, or in a report that is INCOMPLETE.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler
from itertools import count, islice
from typing import Any
from urllib.parse import urlsplit

import pytest

from command_line import read
from fakes.engine_server import served_by
from kvcanon.conformance.cli import main
from kvcanon.conformance.probe import cut_answers, openai_api, transport
from kvcanon.conformance.probe.talk import ProbeReply, TokenScore
from kvcanon.conformance.probe.transport import ServerProblem
from probing import WHOLE, kinds, options_for, probe_json, sound_at

Spoil = Callable[[Iterator[bytes]], Iterator[bytes]]
"""What becomes of the parts of an answer; one that is not streamed is one part."""
Drops = Callable[[], int]
"""What a request is answered with in place of the server: a status, 1 for nothing at all, or 0
where the server answers."""
END = b"\n\n"

HTML = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>"
)
NUMBERS = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"),
    *("device", "host", "storage"),
)


def as_texts(value: Any) -> Any:  # noqa: ANN401  # JSON.
    """JSON whose counts of tokens are texts."""
    if isinstance(value, list):
        return [as_texts(each) for each in value]
    if isinstance(value, dict):
        return {
            name: str(each) if name in NUMBERS and isinstance(each, int) else as_texts(each)
            for name, each in value.items()
        }
    return value


def with_texts(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Usage figures as texts, in an answer or in each part of it."""
    for part in parts:
        start = b"data: " if part.startswith(b"data: ") else b""
        value = part.removeprefix(b"data: ").strip()
        is_json = value.startswith(b"{")
        yield start + json.dumps(as_texts(json.loads(value))).encode() + END if is_json else part


def cut(most: int, *, parts_before: int = 0) -> Spoil:
    """Streams end after some parts, and so many bytes of the next."""

    def spoil(parts: Iterator[bytes]) -> Iterator[bytes]:
        yield from islice(parts, parts_before)
        yield from (part[:most] for part in islice(parts, 1))

    return spoil


def twice(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Each part of a stream comes twice, but its end."""
    for part in parts:
        yield part
        if b"[DONE]" not in part:
            yield part


def at_times(spoil: Spoil, every: int) -> Spoil:
    """Only some answers are spoilt."""
    numbers = count(1)
    return lambda parts: spoil(parts) if next(numbers) % every == 0 else parts


def page(_parts: Iterator[bytes]) -> Iterator[bytes]:
    """The error page of a proxy, which says 200 of it."""
    yield HTML


WHOLE_ANSWERS: dict[str, Callable[[], Spoil]] = {
    "a page for each answer": lambda: page,
    "a page now and then": lambda: at_times(page, 7),
    "usage in texts": lambda: with_texts,
    "usage in texts now and then": lambda: at_times(with_texts, 5),
    "nothing": lambda: lambda _parts: iter(()),
}
STREAMS: dict[str, Callable[[], Spoil]] = {
    "usage in texts": lambda: with_texts,
    "cut in their first part": lambda: cut(30),
    "cut in a part": lambda: cut(30, parts_before=4),
    "cut between parts": lambda: cut(0, parts_before=4),
    "cut between parts now and then": lambda: at_times(cut(0, parts_before=1), 3),
    "cut before the first part": lambda: cut(0),
    "each part twice": lambda: twice,
    "each part twice now and then": lambda: at_times(twice, 2),
}
STREAMING_ROUNDS = "aborts,together"


@contextmanager
def behind(
    url: str, answers: Spoil = iter, streams: Spoil = iter, drops: Drops = lambda: 0
) -> Iterator[str]:
    """A proxy before a server; gives its address. What a GET asks for is passed on as it is."""
    inner = urlsplit(url)

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._forward(None)

        def do_POST(self) -> None:
            self._forward(self.rfile.read(int(self.headers["Content-Length"] or 0)))

        def _forward(self, body: bytes | None) -> None:
            self.close_connection = True
            if body is not None and (status := drops()):
                if status > 1:
                    self.send_error(status)
                return
            connection = HTTPConnection(str(inner.hostname), inner.port, timeout=20)
            with closing(connection), suppress(OSError):
                connection.request(self.command, self.path, body, dict(self.headers))
                answered = connection.getresponse()
                kind = answered.getheader("Content-Type") or ""
                self.send_response(answered.status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                is_stream = body is not None and json.loads(body).get("stream") is True
                parts = parts_of(answered) if is_stream else iter((answered.read(),))
                if body is not None and answered.status == 200:
                    parts = (streams if is_stream else answers)(parts)
                for part in parts:
                    self.wfile.write(part)
                    self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    with served_by(Proxy) as address:
        yield address


def parts_of(answered: HTTPResponse) -> Iterator[bytes]:
    """The parts of a stream, as they come."""
    while line := answered.readline():
        if line.strip():
            yield line.strip() + END


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(cut_answers, "PAUSE_SECONDS", 0.01)


def judge(capsys: pytest.CaptureFixture[str], url: str, dialect: str, *options: str) -> None:
    """Probe, and see that no law is said to be broken, nor that all is well."""
    code = main(["probe", url, "--json", *WHOLE, *options_for(dialect, {}), *options])
    printed = capsys.readouterr()
    if code == 2:
        assert len(printed.err.splitlines()) == 1
        assert not printed.out
        return
    assert code == 3, printed.out
    report = json.loads(printed.out)
    assert (report["verdict"], report["findings"]) == ("INCOMPLETE", [])


@pytest.mark.parametrize("name", WHOLE_ANSWERS)
@pytest.mark.parametrize("dialect", ["sglang", "vllm", "chat"])
def test_answers_that_a_proxy_spoils_accuse_nobody(
    name: str, dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what came, and that it is no answer of an engine."""
    with sound_at(dialect) as url, behind(url, answers=WHOLE_ANSWERS[name]()) as proxied:
        judge(capsys, proxied, dialect, "--seconds", "30", "--timeout", "5")


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("dialect", ["sglang", "vllm", "chat"])
def test_streams_that_a_proxy_spoils_accuse_nobody(
    name: str, dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Parts that come twice are no tokens of the engine, and parts that are lost no end of it."""
    if dialect == "sglang" and "twice" in name:
        # Each of its parts has all that came before, so that one more changes nothing.
        with sound_at(dialect) as url, behind(url, streams=STREAMS[name]()) as proxied:
            assert probe_json(capsys, proxied, "--only", STREAMING_ROUNDS)[1]["findings"] == []
        return
    with sound_at(dialect) as url, behind(url, streams=STREAMS[name]()) as proxied:
        judge(capsys, proxied, dialect, "--only", STREAMING_ROUNDS, "--timeout", "5")


def test_report_says_where_answers_were_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """The line counts them by round, and the verdict names the rounds and what to do."""
    with sound_at("vllm") as url, behind(url, streams=cut(0, parts_before=1)) as proxied:
        options = ("--only", STREAMING_ROUNDS, *options_for("vllm", {}))
        code, report = probe_json(capsys, proxied, *options)
        assert (code, report["cut"]) == (3, {"aborts": 1, "together": 1})
        assert [each["name"] for each in report["rounds"] if each["cut_short"]] == [*report["cut"]]
        printed = read(capsys, "probe", proxied, *WHOLE, *options, code=3)
    assert "\ncut: 2 answers of the server ended before their end (1 in aborts, 1 in tog" in printed
    assert "missing: aborts, together; give the address of the engine itself" in printed


@pytest.mark.parametrize("status", [1, 502, 504])
@pytest.mark.parametrize("first", [2, 5, 30])
def test_connection_that_a_proxy_drops_is_no_end_of_the_server(
    status: int, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in the first prompt of all; the rounds after it are played."""
    posts = count(1)

    def drops() -> int:
        return status if next(posts) == first else 0

    with sound_at("vllm") as url, behind(url, drops=drops) as proxied:
        options = ("--only", "forks", *options_for("vllm", {}))
        code, report = probe_json(capsys, proxied, *options)
    assert (report["findings"], sum(report["cut"].values())) == ([], 1)
    assert (code, report["verdict"]) == ((0, "HELD") if first == 2 else (3, "INCOMPLETE"))
    assert report["rounds"][-1]["requests"] > 3


def test_server_that_ends_behind_a_proxy_is_still_a_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The proxy lives on, and answers 502 for it."""
    posts = count(1)

    def drops() -> int:
        return 502 if next(posts) > 20 else 0

    with sound_at("vllm") as url, behind(url, drops=drops) as proxied:
        code, report = probe_json(capsys, proxied, *options_for("vllm", {}))
    assert (code, kinds(report)) == (1, {"the server ended"})
    assert "answered 502" in report["findings"][0]["words"]


@pytest.mark.parametrize("logprob", [0.0, -0.5])
def test_certain_tokens_in_a_row_are_no_parts_that_came_twice(logprob: float) -> None:
    """An aborted reply has no counts, and a certain token has the same score each time."""
    part = {"id": 7}
    said = ProbeReply((7,), None, scores=(TokenScore(7, logprob),))

    def gather() -> ProbeReply:
        parts = (each for each in (part, part))
        return openai_api.gathered("/v1", parts, lambda _: said, lambda count: count == 2)

    if logprob:
        with pytest.raises(ServerProblem, match="streamed parts twice"):
            gather()
    else:
        assert gather().tokens == (7, 7)
