"""`kvcanon probe` of servers that die, are busy, trickle, or stand behind something."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from command_line import read, usage_error
from fakes import engine_server
from fakes.engine_faults import FAULTS, faulty_engine
from fakes.engine_server import ServedAs, engine_at
from fakes.model import FakeEngine, FakeRun, config_of
from kvcanon.conformance.probe import beside, reduction, session, transport
from kvcanon.conformance.probe.session import ProbeSession
from kvcanon.live import Publisher
from kvcanon.spec.types import Namespace
from probing import ANY, WHOLE, kinds, probe_json, sound_at

CERTIFICATE = Path(__file__).parents[2] / "helpers" / "loopback.pem"
"""Of 127.0.0.1, with its key, until 2126."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server is asked again soon, and few requests are enough."""
    monkeypatch.setattr(transport, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(beside, "QUIET_SECONDS", 0.004)
    for name in ("REDUCE_SECONDS", "KEPT_FOR_REDUCTION"):
        monkeypatch.setattr(session, name, 1.0)


def test_reply_that_breaks_off_is_the_end_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The requests of the round are in the report, and in the script, the last without a reply."""
    script = tmp_path / "a.py"
    dying = ServedAs("sglang", dies_in_reply=20)
    with sound_at("sglang", dying) as url:
        options = ("--only", "together", "--script", str(script))
        code, report = probe_json(capsys, url, *options)
    with sound_at("sglang", dying) as url:
        assert "the server ended: " in played(script, url)
    with sound_at("sglang") as url:
        assert played(script, url) == ""
    (found,) = report["findings"]
    assert (code, found["kind"]) == (1, "the server ended")
    # Whichever request is there first tells of it: the one that broke off, or the next one.
    assert found["words"].startswith("during together: ")
    assert re.search("ended its answer before its end|Remote end closed", found["words"])
    names = [each["name"] for each in found["requests"]]
    assert names[:2] == ["the shared prefix", "goes on"]
    assert "CHECK = 'answers'" in script.read_text()


def test_script_of_an_eviction_in_use_sends_requests_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows the fault while it is there, and no longer."""
    # On a busy machine the long reply takes seconds, and is needed whole.
    monkeypatch.setattr(session, "KEPT_FOR_REDUCTION", 20.0)
    monkeypatch.setattr(engine_server, "STEP_SECONDS", 0.01)
    monkeypatch.setattr(reduction, "MOST_REPLAYED", 30)
    script, silent = tmp_path / "a.py", ServedAs("vllm", hides=frozenset({"scores"}))
    options = ("--only", "together", "--window", "0", "--no-host-tier", "--script", str(script))
    with engine_at(faulty_engine(FAULTS["lock is a flag"]), silent) as url:
        code, report = probe_json(capsys, url, *options)
        assert (code, kinds(report)) == (1, {"evicted while in use"})
        assert report["findings"][0]["repeated"]
        assert played(script, url) == "the fault shows"
    # A sound server shows nothing at any speed, and the script asks it many times.
    monkeypatch.setattr(engine_server, "STEP_SECONDS", 0.001)
    with sound_at("vllm") as url:
        assert played(script, url) == ""


def test_finding_whose_requests_are_cut_for_want_of_time_is_not_refuted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that has to go on for the fault to show was cut: seconds are missing."""
    monkeypatch.setattr(session, "KEPT_FOR_REDUCTION", 0.2)
    monkeypatch.setattr(session, "REDUCE_SECONDS", 0.2)
    monkeypatch.setattr(ProbeSession, "round_seconds", property(lambda _: 0.1, lambda *_: None))
    silent = ServedAs("vllm", hides=frozenset({"scores"}))
    options = ("--only", "together", "--window", "0", "--no-host-tier")
    with engine_at(faulty_engine(FAULTS["lock is a flag"]), silent) as url:
        code, report = probe_json(capsys, url, *options)
    assert (code, report["findings"]) == (3, [])
    missed = [words for words in report["not_shown"] if "goes on" in words]
    assert missed
    assert not any("another client" in words for words in missed)


def played(script: Path, url: str) -> str:
    """What a script says at its end when it is run; its exit status is 1 if it says something."""
    command = [sys.executable, "-I", str(script), url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stderr)
    return done.stderr.strip()


@pytest.mark.parametrize("status", [429, 503])
def test_busy_server_is_asked_again(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A few refusals change nothing; many are one line, and no finding."""
    quick = (*WHOLE, "--only", "repeats")
    with sound_at("vllm", ServedAs("vllm", refuses=(status, 5, 3))) as url:
        assert "HELD" in read(capsys, "probe", url, *quick)
    with sound_at("vllm", ServedAs("vllm", refuses=(status, 5, 1000))) as url:
        words = usage_error(capsys, "probe", url, *quick)
    assert f"/v1/completions answered {status} 4 times: busy; the server is too busy" in words


def test_refusal_keeps_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that refuses later requests was still wrong in those before."""
    engine = faulty_engine(FAULTS["hit one page short"])
    with engine_at(engine, ServedAs("sglang", refuses=(429, 120, 10**6))) as url:
        code, report = probe_json(capsys, url)
    assert (code, kinds(report)) == (1, {"too few cached tokens"})
    assert any("what comes after" in words and "429" in words for words in report["not_shown"])


@contextmanager
def answering(begin: bytes, then: bytes = b"", times: int = 0) -> Iterator[int]:
    """A server that answers with some bytes, and then with others now and then; its port."""

    def serve() -> None:
        accepted, _ = listening.accept()
        # The client may leave.
        with accepted, suppress(OSError):
            accepted.recv(1000)
            accepted.sendall(begin)
            for _ in range(times):
                time.sleep(0.05)
                accepted.sendall(then)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def test_trickling_server_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    """An answer that comes byte by byte takes no longer than --timeout either."""
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b" ", 100) as port:
        url = f"http://127.0.0.1:{port}"
        assert "within 0.3 s" in usage_error(capsys, "probe", url, "--timeout", "0.3")


def test_stream_of_comments_alone_is_given_up() -> None:
    """What keeps a connection open, as proxies send it, is no sign of the engine."""
    with answering(b"HTTP/1.1 200 OK\r\n\r\n", b": ping\n\n", 100) as port:
        address = transport.EngineAddress("127.0.0.1", port, timeout=0.3)
        with pytest.raises(transport.ServerProblem, match=re.escape("within 0.3 s")):
            list(transport.stream(address, "/generate", {}))


def test_answer_that_is_cut_off_is_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A connection that closes in the middle of an answer is an end, whatever had come."""
    with answering(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"a"') as port:
        words = usage_error(capsys, "probe", f"http://127.0.0.1:{port}")
        assert "does not answer /server_info" in words


def test_another_model_and_another_key_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the models that there are, and says whether a key was given."""
    with sound_at("vllm", ServedAs("vllm", key="right")) as url:
        words = usage_error(capsys, "probe", url, "--api-key", "wrong")
        assert "the server does not take this API key" in words
        options = ("--api-key", "right", "--model", "llama")
        words = usage_error(capsys, "probe", url, *options)
    assert "lists no model 'llama'; it lists fake, tuned: choose by --model" in words


@pytest.mark.parametrize(
    ("prefix", "given"),
    [
        ("", "/v1"),
        ("", "/v1/"),
        ("", "/v1/completions"),
        ("/team", "/team"),
        ("/team", "/team/v1/models"),
        ("/v1", "/v1/v1"),
    ],
)
def test_server_may_stand_behind_a_prefix(
    prefix: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address may end with /v1 or name an endpoint; what is before it stays."""
    with sound_at("vllm", ServedAs("vllm", prefix=prefix)) as url:
        quick = (*WHOLE, "--only", "repeats")
        assert "HELD" in read(capsys, "probe", f"{url}{given}", *quick)


def test_https_needs_a_certificate_that_is_trusted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what is wrong with it; with its authority the server is probed."""
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(CERTIFICATE)
    with engine_at(FakeEngine(config_of()), ServedAs("sglang"), secured) as url:
        words = usage_error(capsys, "probe", url)
        assert "is not trusted: self-signed certificate; name the file of its authority" in words
        monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(CERTIFICATE))
        assert "HELD" in read(capsys, "probe", url, *WHOLE, "--only", "repeats")
    with sound_at("sglang") as url:
        words = usage_error(capsys, "probe", url.replace("http://", "https://"))
    assert "speaks no https" in words


def test_stream_of_another_server_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """It has events, and none of them is of a prompt that was sent."""
    with (
        Publisher(ANY, binds_endpoint=True) as theirs,
        _used_by_another(FakeEngine(config_of(), None, theirs), 0.05),
        sound_at("sglang") as url,
    ):
        words = usage_error(capsys, "probe", url, *WHOLE, "--events", theirs.endpoint)
    assert "tells of none of the prompts that were served from the cache" in words


def test_streamed_parts_may_have_the_new_tokens_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """As SGLang sends them with --incremental-streaming-output: clients leave as they should."""
    for fault, code in (("", 0), ("lock forgotten", 1)):
        engine = faulty_engine(FAULTS[fault]) if fault else FakeEngine(config_of())
        with engine_at(engine, ServedAs("sglang", increments=True)) as url:
            found, report = probe_json(capsys, url, "--only", "together,aborts")
        assert found == code
        assert bool(kinds(report) & {"wrong tokens", "evicted while in use"}) == bool(code)


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_other_clients_are_not_taken_for_a_fault(
    dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another client fills the pool all the time; what it evicts is no finding."""
    engine = FakeEngine(config_of())
    with engine_at(engine, ServedAs(dialect)) as url, _used_by_another(engine):
        options = ("--only", "forks,mixed,order", "--window", "0", "--no-host-tier")
        code, report = probe_json(capsys, url, *options)
    assert (code, report["findings"]) == (0, [])
    assert any("another client may be the cause" in words for words in report["not_shown"])


@contextmanager
def _used_by_another(engine: FakeEngine, pause: float = 0.002) -> Iterator[None]:
    """Prompts of a quarter of the pool, one after the other."""

    def serve() -> None:
        number = 0
        while not over.is_set():
            number += 1
            tokens = [number * 1000 + at for at in range(96)]
            for _ in engine.serve(FakeRun(tokens, 1, Namespace(None, "theirs", None))):
                pass
            time.sleep(pause)

    over = threading.Event()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
