"""`kvcanon probe` of servers that only chat, draft, ask for certificates, or are changed."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest
from attrs import evolve

from command_line import read, usage_error
from fakes.engine_faults import FAULTS, faulty_engine
from fakes.engine_server import ServedAs, engine_at
from fakes.model import FakeEngine, config_of
from kvcanon.conformance.probe.chat_api import ChatApi
from kvcanon.conformance.probe.chat_words import WORDS
from kvcanon.conformance.probe.openai_api import OpenaiApi
from kvcanon.conformance.probe.talk import SAID, ProbeRequest
from kvcanon.conformance.probe.transport import EngineAddress, ServerProblem, address_of
from probing import WHOLE, kinds, options_for, probe_json, replacing, sound_at

CERTIFICATE = Path(__file__).parents[2] / "helpers" / "loopback.pem"
"""Of 127.0.0.1, with its key, until 2126."""
QUICK = (*WHOLE, "--only", "repeats")


def test_server_of_chats_alone_is_recognized(capsys: pytest.CaptureFixture[str]) -> None:
    """No dialect needs to be named; one that has completions is not taken for it."""
    for dialect, api in (("chat", "chat"), ("vllm", "openai")):
        with sound_at(dialect) as url:
            _, report = probe_json(capsys, url, "--only", "repeats")
        assert report["server"]["api"] == api


def test_chat_without_log_probabilities_is_judged_by_its_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Words stand for tokens; what differs in them alone is said not to be told apart."""
    silent = ServedAs("chat", hides=frozenset({"scores"}))
    options = (*options_for("chat", {}), "--only", "forks,chats,mixed,namespaces")
    with sound_at("chat", silent) as url:
        code, report = probe_json(capsys, url, *options)
    assert (code, report["findings"]) == (0, [])
    for fault in ("salt ignored", "hit one page short"):
        with engine_at(faulty_engine(FAULTS[fault]), silent) as url:
            code, report = probe_json(capsys, url, *options)
        expected = {each.words for each in FAULTS[fault].found_as}
        assert (code, kinds(report) & expected) == (1, expected)


def test_prompt_of_a_chat_is_a_message_of_words() -> None:
    """Replies between are messages of the assistant."""
    api = ChatApi(OpenaiApi(EngineAddress("127.0.0.1", 1), "fake"))
    said = [api.spoken.id_of(text) for text in (" so", " it", " so")]
    assert said == [SAID, SAID + 1, SAID]
    assert api.prompt((0, 1, *said, 2)) == [
        {"role": "user", "content": f"{WORDS[0]} {WORDS[1]}"},
        {"role": "assistant", "content": " so it so"},
        {"role": "user", "content": WORDS[2]},
    ]
    assert len(set(WORDS)) == len(WORDS) >= 256


def test_chat_that_counts_fewer_tokens_than_words_is_refused() -> None:
    """No bound of tokens would follow from words."""
    with sound_at("chat") as url:
        api = ChatApi(OpenaiApi(address_of(url), "fake"))
        assert api.generate(ProbeRequest("", (5, 6, 7), 2)).added == 7
        blank = evolve(api, spoken=api.spoken)
        request = ProbeRequest("", tuple(api.spoken.id_of("") for _ in range(30)), 2)
        with pytest.raises(ServerProblem, match="counts 7 tokens of a prompt of 30 words"):
            blank.generate(request)


def test_chat_that_counts_no_prompt_is_given_no_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What its template adds is not known, so cached tokens have no bounds."""
    with sound_at("chat", ServedAs("chat", hides=frozenset({"prompt count"}))) as url:
        code, report = probe_json(capsys, url, "--window", "0", "--only", "forks")
    assert (code, report["findings"]) == (3, [])


def test_loads_in_another_form_are_not_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """Releases of SGLang differ in them; the rest is judged as ever."""
    with sound_at("sglang", ServedAs("sglang", hides=frozenset({"loads"}))) as url:
        code, report = probe_json(capsys, url, "--only", "forks")
    assert (code, report["findings"]) == (0, [])


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_wrong_usage_is_found(dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The server's count of a reply is held to what came."""
    with sound_at(dialect, ServedAs(dialect, miscounts=1)) as url:
        code, report = probe_json(capsys, url, "--only", "repeats")
    assert (code, kinds(report)) == (1, {"wrong counts of tokens"})
    (found,) = report["findings"]
    assert "counts 2 tokens of a reply of 1" in found["words"]
    assert report["broken"] == ["wrong counts of tokens"]


def test_draft_model_is_detected_or_declared(capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics say it; where there are none, a hit that is a page short is a fault until it is."""
    engine = FakeEngine(config_of())
    engine.speculates = True
    known = ("--window", "0", "--no-host-tier", "--only", "forks,order,together")
    with engine_at(engine, ServedAs("vllm")) as url:
        code, report = probe_json(capsys, url, *known)
        assert (code, report["findings"]) == (0, [])
        assert any("draft model" in words for words in report["not_shown"])
    blind = ServedAs("vllm", hides=frozenset({"metrics"}))
    sized = (*known, "--page", "4", "--pool-tokens", "384")
    with engine_at(engine, blind) as url:
        assert "too few cached tokens" in kinds(probe_json(capsys, url, *sized)[1])
        code, report = probe_json(capsys, url, *sized, "--speculative")
    assert (code, report["findings"]) == (0, [])


def test_headers_are_sent_with_each_request(capsys: pytest.CaptureFixture[str]) -> None:
    """A gateway lets the probe through; what is no header is one line, without its value."""
    with sound_at("vllm", ServedAs("vllm", header=("X-Team", "cache"))) as url:
        assert "HELD" in read(capsys, "probe", url, *QUICK, "--header", "X-Team: cache")
        assert "answered 401" in usage_error(capsys, "probe", url, *QUICK)
        for wrong in ("X-Team", "X Team: secret", "X-Team: sec\nret", ": secret"):
            words = usage_error(capsys, "probe", url, "--header", wrong)
            assert "is no header; give one as 'X-Team: cache'" in words
            assert "secret" not in words
        words = usage_error(capsys, "probe", url, "--header", "Host: elsewhere")
        assert "the probe sets this one itself" in words


def test_server_may_ask_for_a_certificate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client shows one; without it, or with files that are none, one line says so."""
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(CERTIFICATE)
    secured.load_verify_locations(CERTIFICATE)
    secured.verify_mode = ssl.CERT_REQUIRED
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with engine_at(FakeEngine(config_of()), ServedAs("sglang"), secured) as url:
        shown = ("--client-cert", str(CERTIFICATE))
        assert "HELD" in read(capsys, "probe", url, *QUICK, *shown)
        words = usage_error(capsys, "probe", url, *QUICK)
        assert "certificate" in words or "Connection reset" in words
        none = tmp_path / "none.pem"
        none.write_text("none")
        for file in (none, tmp_path / "missing.pem"):
            words = usage_error(capsys, "probe", url, "--client-cert", str(file))
            assert f"--client-cert {file} cannot be used" in words
        plain = url.replace("https", "http")
        assert "is for https" in usage_error(capsys, "probe", plain, *shown)
        alone = usage_error(capsys, "probe", url, "--client-key", str(CERTIFICATE))
        assert "give it by --client-cert" in alone


def test_change_that_replaces_nothing_is_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict needs replies that differ; one that drops everything for nothing is no fault."""
    with sound_at("sglang") as url:
        changed = ("--only", "changed", "--changed")
        code, report = probe_json(capsys, url, *changed, "true")
        assert (code, report["findings"]) == (3, [])
        assert [each["what"] for each in report["missing"]] == ["changed"]
        code, report = probe_json(capsys, url, *changed, replacing(url, "tuned"))
        assert (code, report["findings"]) == (0, [])


def test_command_of_a_change_that_fails_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and so is the option that the round needs."""
    with sound_at("sglang") as url:
        words = usage_error(capsys, "probe", url, *WHOLE, "--only", "changed")
        assert "say by --changed which command does" in words
        failing = f"{sys.executable} -c 'raise SystemExit(3)'"
        words = usage_error(capsys, "probe", url, *WHOLE, "--only", "changed", "--changed", failing)
        assert "ended with 3; mend the command" in words
