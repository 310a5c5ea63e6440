"""What a probe played decides whether it gives a verdict, and how much it may ask of a server."""

from __future__ import annotations

import re
import time

import pytest

from command_line import read, usage_error
from fakes.engine_faults import FAULTS, faulty_engine
from fakes.engine_server import ServedAs, engine_at
from fakes.model import FakeEngine, FakeRun, config_of
from kvcanon.conformance.probe import session
from kvcanon.conformance.probe.coverage import Coverage, MissingPart, PlayedRound, ProbeVerdict
from kvcanon.conformance.probe.player import OutOfBudget, ProbePlayer
from kvcanon.conformance.probe.rounds import ROUNDS
from kvcanon.conformance.probe.talk import ProbeReply, ProbeRequest
from kvcanon.spec.types import Slots
from probing import FACTS, SPACE, QuietApi, probe_json, sound_at

LARGE_PAGES = 1 << 15
"""A pool of which the rounds that do not fill it take a small part."""
FILLING = [each.name for each in ROUNDS if each.fills]
PLAIN = [each.name for each in ROUNDS if not (each.fills or each.changes)]


def test_a_probe_that_played_one_round_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The last line counts rounds and requests, names what is missing, and says how to get it."""
    with sound_at("sglang", pool_pages=LARGE_PAGES) as url:
        printed = read(capsys, "probe", url, "--requests", "12", code=3)
    last = printed.splitlines()[-1]
    assert last.startswith("INCOMPLETE: nothing wrong was found in what was played: 0 of 8 rounds")
    assert "12 of at most 12 requests" in last
    assert last.endswith(f"missing: {', '.join(PLAIN)}; raise --requests")


def test_seconds_that_end_too_soon_are_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is slow, or busy, plays few rounds in the time."""

    class SlowEngine(FakeEngine):
        def admit(self, run: FakeRun) -> None:
            time.sleep(0.1)
            super().admit(run)

    with engine_at(SlowEngine(config_of(pool_pages=LARGE_PAGES))) as url:
        code, report = probe_json(capsys, url, "--seconds", "1")
    assert (code, report["verdict"], report["rounds_due"]) == (3, "INCOMPLETE", len(ROUNDS) - 2)
    assert report["to_complete"][0] == "raise --seconds"


def test_what_is_found_is_said_although_little_was_played(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """BROKEN comes before INCOMPLETE."""
    with engine_at(faulty_engine(FAULTS["hit one page short"])) as url:
        printed = read(capsys, "probe", url, "--fill", "--requests", "14", code=1)
    assert re.search(r"\nBROKEN: MATCH-1 \(0 of \d+ rounds whole", printed)


class CountingEngine(FakeEngine):
    """Counts the pages that it took, those of replays and of replies included."""

    took = 0

    def room(self, pages: int) -> Slots:
        """Slots for pages."""
        self.took += pages
        return super().room(pages)


@pytest.mark.parametrize("options", [(), ("--tokens", "10000000")])
def test_by_default_the_pool_is_not_filled(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """No page of another client leaves; the rounds that fill are listed with the option."""
    engine = CountingEngine(config_of(pool_pages=LARGE_PAGES))
    with engine_at(engine) as url:
        printed = read(capsys, "probe", url, "--rate", "1000", *options)
    assert 0 < engine.took < LARGE_PAGES / 2
    last = printed.splitlines()[-1]
    assert last.startswith("HELD: nothing wrong was found (8 of 8 rounds, ")
    assert "not shown: pressure (a pool that is filled, and prompts that come back): it fills" in (
        printed
    )
    assert "--fill plays it" in printed


@pytest.mark.parametrize("fault", ["", "hit one page short"])
def test_small_pool_ends_a_canary_before_it_is_full(
    fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Less than the pool is taken although rounds would take more, replays of findings included."""
    engine = CountingEngine(config_of(pool_pages=512))
    if fault:
        FAULTS[fault].plant(engine)
    with engine_at(engine) as url:
        printed = read(capsys, "probe", url, code=1 if fault else 3)
    assert 50 < engine.took < 512
    assert "no tokens are left; raise --tokens" in printed


@pytest.mark.parametrize("name", FILLING)
def test_round_that_fills_is_asked_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its name alone does not allow it to evict what others have cached."""
    words = usage_error(capsys, "probe", "http://127.0.0.1:1", "--only", name)
    assert words.endswith("add --fill to play it")


def test_finding_that_cannot_be_played_again_is_no_pass(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another client may have caused needs replays; without tokens for them it is open."""
    monkeypatch.setattr(session, "KEPT_SHARE", 0.0)
    engine = faulty_engine(FAULTS["hit one page short"])
    with engine_at(engine) as url:
        code, report = probe_json(capsys, url, "--only", "repeats", "--tokens", "2000")
    assert (code, report["verdict"], report["findings"]) == (3, "INCOMPLETE", [])
    assert report["to_complete"] == ["raise --tokens"]
    assert any("whether this comes again: " in words for words in report["not_shown"])


@pytest.mark.parametrize("only", ["window order", "order"])
def test_named_round_that_does_not_apply_is_said(
    only: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is left out in silence that was asked for."""
    known = {"window order": "0", "order": "8"}
    with sound_at("vllm") as url:
        options = ("--only", only, "--window", known[only], "--no-host-tier")
        _, report = probe_json(capsys, url, *options)
    said = [words for words in report["not_shown"] if words.startswith(f"{only} (")]
    assert len(said) == 1
    assert "does not apply to this server" in said[0]


def test_tokens_bound_a_probe(capsys: pytest.CaptureFixture[str]) -> None:
    """--tokens holds with --fill, too."""
    with sound_at("vllm", pool_pages=LARGE_PAGES) as url:
        code, report = probe_json(capsys, url, "--window", "0", "--tokens", "600")
    assert (code, report["verdict"]) == (3, "INCOMPLETE")
    assert "raise --tokens" in report["to_complete"]


def test_requests_at_once_leave_out_the_round_that_has_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The round is missing, and the line says what it needs."""
    with sound_at("sglang") as url:
        code, report = probe_json(capsys, url, "--at-once", "1", "--only", "together")
    assert (code, [each["what"] for each in report["missing"]]) == (3, ["together"])
    assert report["to_complete"] == ["raise --at-once to 3"]


def test_server_that_says_no_counts_gets_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Equal tokens do not show that anything was cached."""
    with sound_at(
        "vllm", ServedAs("vllm", hides=frozenset({"counts"})), pool_pages=LARGE_PAGES
    ) as url:
        printed = read(capsys, "probe", url, "--window", "0", code=3)
    assert "; 0 requests are known to have had cached tokens" in printed.splitlines()[-1]


class CountingApi(QuietApi):
    """Answers at once, and says that nothing was cached."""

    def generate(self, request: ProbeRequest, _leaves: object = None) -> ProbeReply:
        """A reply of equal tokens."""
        return ProbeReply((1,) * request.count, 0)


def test_requests_a_second_are_bounded() -> None:
    """Five at twenty a second take a fifth of a second, and no turn is saved up."""
    player = ProbePlayer(CountingApi(), FACTS, "run", time.monotonic() + 60, 100, rate=20.0)
    began = time.monotonic()
    for _ in range(5):
        player.send(ProbeRequest("a", (5, 6), 1, SPACE), "round", "run")
    assert time.monotonic() - began >= 4 / 20


def test_request_that_would_take_too_many_tokens_is_not_sent() -> None:
    """What a reply shows to be cached is given back."""
    player = ProbePlayer(CountingApi(), FACTS, "run", time.monotonic() + 60, 100, tokens_left=10)
    player.send(ProbeRequest("a", (5,) * 5, 1, SPACE), "round", "run")
    assert player.tokens_left == 4
    with pytest.raises(OutOfBudget, match="tokens"):
        player.send(ProbeRequest("b", (5,) * 4, 1, SPACE), "round", "run")


def test_verdict_needs_requests_and_hits() -> None:
    """A round that shows nothing is no evidence."""
    few = Coverage([PlayedRound("repeats", "", 8, 8)])
    cold = Coverage([PlayedRound("repeats", "", 80, 4)])
    enough = Coverage([PlayedRound("repeats", "", 10, 5)])
    cut = Coverage(enough.played, [MissingPart("forks", "no seconds are left", "raise --seconds")])
    verdicts = [each.verdict(broken=False) for each in (few, cold, cut)]
    assert verdicts == [ProbeVerdict.INCOMPLETE] * 3
    assert (enough.verdict(broken=False), cut.due) == (ProbeVerdict.HELD, 2)
    assert few.verdict(broken=True) is ProbeVerdict.BROKEN
