"""`kvcanon probe` as a user calls it: servers that cannot be probed, and what is not shown."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from command_line import read, usage_error
from fakes.engine_faults import FAULTS, faulty_engine
from fakes.engine_server import ServedAs, engine_at, served_by
from fakes.model import FakeEngine, FakeRun, Scored, config_of
from kvcanon.conformance.cli import main
from kvcanon.conformance.probe import beside
from kvcanon.live import Publisher
from probing import ANY, WHOLE, fault_at, kinds, probe_json, sound_at


class OddServer(BaseHTTPRequestHandler):
    """Answers each request with one status and one text."""

    status, text, location = 200, "welcome", ""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(self.status)
        if self.location:
            self.send_header("Location", self.location)
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "text", "location", "words"),
    [
        (
            200,
            "welcome",
            "",
            "answered what is no JSON: welcome; is this the address of the engine",
        ),
        (200, "[1]", "", "answered JSON that is no object"),
        (302, "", "https://elsewhere/", "redirects to https://elsewhere/; give the address"),
        (401, "", "", "the server needs an API key; give it by --api-key"),
        (404, "no", "", "has neither SGLang's /server_info nor /v1/models"),
        (500, "broken", "", "answered 500: broken"),
    ],
)
def test_server_that_is_no_engine_gives_one_line(
    status: int, text: str, location: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a server answered instead, and what to do about it."""
    made = {"status": status, "text": text, "location": location}
    with served_by(type("Odd", (OddServer,), made)) as url:
        assert words in usage_error(capsys, "probe", url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "does not answer /server_info: Connection refused; is the server"),
        ("tcp://127.0.0.1:5557", "is no address of a server; give one as http://"),
        ("http://127.0.0.1:99999", "is no address of a server"),
        ("http://127.0.0.1:0", "is no address of a server"),
        ("http://[::1", "is no address of a server"),
        ("http://a..b:1", "is no address of a server"),
        (f"http://{'x' * 64}:1", "is no address of a server"),
        ("http://127.0.0.1:1/\N{GREEK SMALL LETTER ALPHA}", "is no address of a server"),
    ],
)
def test_address_without_a_server_gives_one_line(
    url: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused, or no address at all."""
    assert words in usage_error(capsys, "probe", url)


def test_silent_server_gives_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that accepts and says nothing is given up after --timeout."""
    import socket  # noqa: PLC0415

    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert "within 0.2 s" in usage_error(capsys, "probe", url, "--timeout", "0.2")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "fork"], "--only fork: there is no such round; choose of repeats, chats"),
        (["--record", "a.kvstream"], "--record is about KV events; give their address by --events"),
        (["--events", "here"], "'here' is no endpoint"),
        (["--script", "/nowhere/a.py"], "/nowhere"),
        (["--timeout", "inf"], "--timeout"),
        (["--events", "tcp://*:5557"], "no address to connect to"),
    ],
)
def test_wrong_options_give_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options are looked at before the server is used."""
    with sound_at("sglang") as url:
        assert words in usage_error(capsys, "probe", url, *options)


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_server_without_a_cache_cannot_be_probed(
    dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether it says so, or never has cached tokens."""
    with sound_at(dialect, ServedAs(dialect, cache_off=True)) as url:
        assert "prefix caching is off on this server" in usage_error(capsys, "probe", url)
    hidden = ServedAs("vllm", cache_off=True, hides=frozenset({"metrics"}))
    with sound_at("vllm", hidden) as url:
        assert main(["probe", url]) == 2
    assert "no prompt that was sent twice had cached tokens" in capsys.readouterr().err


def test_api_key_is_sent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the option or from the variable."""
    with sound_at("vllm", ServedAs("vllm", key="secret")) as url:
        assert "API key" in usage_error(capsys, "probe", url)
        quick = ["probe", url, *WHOLE, "--only", "repeats"]
        assert "HELD" in read(capsys, *quick, "--api-key", "secret")
        monkeypatch.setenv("KVCANON_API_KEY", "secret")
        assert "HELD" in read(capsys, *quick)


def test_stream_from_which_nothing_comes_gives_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong address is no fault of the engine."""
    with Publisher(ANY, binds_endpoint=True) as silent, sound_at("sglang") as url:
        words = usage_error(capsys, "probe", url, *WHOLE, "--events", silent.endpoint)
    assert f"nothing came from {silent.endpoint}: check the address" in words


def test_server_that_ends_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """What was found before is kept, and the report says where the server ended."""
    with sound_at("sglang", ServedAs("sglang", dies_after=30)) as url:
        printed = read(capsys, "probe", url, *WHOLE, code=1)
    assert "the server ended\n  during" in printed
    assert "BROKEN: the server ended" in printed


def test_what_a_server_does_not_say_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Each thing that cannot be judged is named, with what would help."""
    hidden = ServedAs("vllm", hides=frozenset({"metrics", "counts"}))
    with sound_at("vllm", hidden) as url:
        code, report = probe_json(capsys, url)
    assert (code, report["server"]["page_size"]) == (3, None)
    said = "\n".join(report["not_shown"])
    for words in (
        "start vLLM with --enable-prompt-tokens-details",
        "the size of the pool is not known; give --pool-tokens",
        "give --window, 0 if none has",
    ):
        assert words in said


def test_page_size_is_learned_from_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the server does not say it, hits and rests of repeated prompts do."""
    with sound_at("vllm", ServedAs("vllm", hides=frozenset({"metrics"})), page_size=8) as url:
        options = ("--only", "forks", "--window", "0", "--pool-tokens", "768")
        printed = read(capsys, "probe", url, *WHOLE, *options)
    assert "pages of 8, by its answers" in printed
    assert "HELD" in printed


def test_unknown_page_size_does_not_hide_a_short_hit(capsys: pytest.CaptureFixture[str]) -> None:
    """No page size explains hits that always miss a page."""
    fault = FAULTS["hit one page short"]
    with fault_at(fault, "vllm") as (url, _):
        code, report = probe_json(capsys, url, "--window", "0", "--only", "repeats")
    assert (code, kinds(report)) == (1, {"too few cached tokens"})


def test_salts_that_are_ignored_are_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """A client that sends one cannot know that it is ignored."""
    hidden = ServedAs("vllm", hides=frozenset({"salts"}))
    with sound_at("vllm", hidden) as url:
        code, report = probe_json(capsys, url, "--only", "namespaces", "--window", "0")
    assert code == 1
    assert "shared between namespaces" in kinds(report)


def test_server_without_salts_is_probed_with_flushes_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without --flush tokens are not judged; with it, wrong ones are found and reduced."""
    old = ServedAs("vllm", hides=frozenset({"salt field"}))
    options = ("--window", "0", "--only", "forks")
    with sound_at("vllm", old) as url:
        for _ in range(2):
            code, report = probe_json(capsys, url, *options)
            assert (code, report["findings"]) == (0, [])
        assert any("allow --flush to empty" in words for words in report["not_shown"])
        assert probe_json(capsys, url, *options, "--flush")[0] == 0
    with engine_at(faulty_engine(FAULTS["insert swaps pages"]), old) as url:
        code, report = probe_json(capsys, url, *options, "--flush")
        assert (code, kinds(report)) == (1, {"wrong tokens"})
        assert report["findings"][0]["repeated"]


def test_limits_end_a_probe(capsys: pytest.CaptureFixture[str]) -> None:
    """After so many requests what is left is not shown, and what was played is judged."""
    with sound_at("sglang") as url:
        code, report = probe_json(capsys, url, "--requests", "40")
    assert (code, report["requests"], report["verdict"]) == (3, 40, "INCOMPLETE")
    assert any("raise --requests" in words for words in report["not_shown"])


class NoisyEngine(FakeEngine):
    """Log-probabilities depend a little on what is cached, and a near-tie falls otherwise."""

    def adjusted(self, run: FakeRun, scored: Scored) -> Scored:
        """Move log-probabilities by rounding, as another order of the same sums does."""
        if not run.device_tokens or scored.logprob - scored.second_logprob > 0.1:
            return scored
        return Scored(scored.second, scored.logprob, scored.token, scored.second_logprob)


def test_near_tie_is_told_from_a_wrong_cache(capsys: pytest.CaptureFixture[str]) -> None:
    """With a margin that explains it a token may differ; without, it is wrong."""
    with engine_at(NoisyEngine(config_of())) as url:
        code, report = probe_json(capsys, url, "--margin", "0.2", "--only", "forks")
        assert (code, report["findings"]) == (0, [])
        assert "rounding explains 0.40" in report["near_ties"][0]
        code, report = probe_json(capsys, url, "--margin", "0", "--only", "forks")
        assert (code, kinds(report)) == (1, {"wrong tokens"})


class ForgetfulEngine(FakeEngine):
    """Answers otherwise each time, whatever is cached."""

    served = 0

    def adjusted(self, run: FakeRun, scored: Scored) -> Scored:
        """Another token each time."""
        self.served += 1
        return Scored(self.served % 200, scored.logprob, 201, scored.second_logprob)


def test_server_that_does_not_repeat_itself_is_not_blamed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tokens of a server that answers otherwise without a cache, too, say nothing of its cache."""
    with engine_at(ForgetfulEngine(config_of())) as url:
        code, report = probe_json(capsys, url, "--only", "forks")
    assert (code, report["findings"]) == (0, [])
    assert "tokens: the server does not repeat itself without a cache" in report["not_shown"]


class SlowlyBegun(FakeEngine):
    """Takes long for its first prompt, as an engine that compiles before it."""

    begun = False

    def admit(self, run: FakeRun) -> None:
        if not self.begun:
            self.begun = True
            time.sleep(1.5)
        super().admit(run)


def test_first_prompt_has_more_time(capsys: pytest.CaptureFixture[str]) -> None:
    """It is not judged, and its time-out is another."""
    with engine_at(SlowlyBegun(config_of())) as url:
        options = ("--only", "repeats", "--timeout", "1")
        code, report = probe_json(capsys, url, *options)
    assert (code, report["findings"]) == (0, [])
    assert [each["name"] for each in report["rounds"]] == ["repeats"]
    assert report["requests"] > report["rounds"][0]["requests"]


def test_differences_without_scores_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Without log-probabilities a near-tie cannot be told from a wrong cache."""
    hidden = ServedAs("sglang", hides=frozenset({"scores"}))
    with engine_at(NoisyEngine(config_of()), hidden) as url:
        code, report = probe_json(capsys, url, "--only", "forks")
    assert (code, report["findings"]) == (0, [])
    assert any("no log-probabilities" in words for words in report["not_shown"])


def test_log_and_recording_give_the_same_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kvcanon audit --served` finds in the files of a probe what the probe found live."""
    monkeypatch.setattr(beside, "QUIET_SECONDS", 0.01)
    stream, log = str(tmp_path / "a.kvstream"), str(tmp_path / "a.jsonl")
    for name, code in (("", 0), ("store lost", 1)):
        engine = FAULTS[name].plant if name else lambda _engine: None
        with Publisher(ANY, replay_endpoint=ANY, binds_endpoint=True) as sender:
            made = FakeEngine(config_of(), None, sender)
            engine(made)
            with engine_at(made) as url:
                options = ["--events", sender.endpoint, "--replay", str(sender.replay_endpoint)]
                files = ["--record", stream, "--log", log, "--only", "forks"]
                assert probe_json(capsys, url, *options, *files)[0] == code
        printed = read(capsys, "audit", stream, "--served", log, "--json", code=code)
        served = json.loads(printed)["served"]
        assert served["requests"] > 20
        assert {each["kind"] for each in served["mismatches"]} == (
            {"served and not promised"} if name else set()
        )


def test_full_disk_takes_no_report_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A log that cannot be written ends the probe at once; a script is written after the report."""
    with fault_at(FAULTS["hit one page short"], "sglang") as (url, options):
        words = usage_error(capsys, "probe", url, *WHOLE, "--log", "/dev/full")
        assert words.endswith("No space left on device: '/dev/full'")
        assert main(["probe", url, *WHOLE, *options, "--script", "/dev/full"]) == 2
    printed = capsys.readouterr()
    assert "BROKEN: MATCH-1" in printed.out
    assert "/dev/full cannot be written: No space left on device" in printed.err
