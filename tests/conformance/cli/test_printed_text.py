"""What servers, publishers and recordings send is printed as text, by each command."""

from __future__ import annotations

import json
from collections import Counter
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import evolve
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvcanon.conformance.cli import main
from kvcanon.conformance.cli.command_line import usage_error
from kvcanon.conformance.cli.github import annotate_error
from kvcanon.conformance.cli.terminal import ReportConsole, print_json, print_lines
from kvcanon.conformance.probe.cut_answers import CutAnswers
from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.reduction import ShownFinding
from kvcanon.conformance.probe.report_text import report_json, report_lines
from kvcanon.conformance.probe.session import ProbeLimits, ProbeSession
from kvcanon.conformance.probe.talk import ProbeReply, ProbeRequest, PromptSpace, SentRequest
from kvcanon.live.dashboard import dashboard
from kvcanon.live.findings import finding_line
from kvcanon.live.follower import FollowerConfig, Streams
from kvcanon.live.frames import Source
from kvcanon.live.stream_faults import Fault, StreamFinding
from kvcanon.live.subscriber import Subscriber
from kvcanon.live.watch import StreamWatch
from probing import FACTS, PAGE, QuietApi, player_of
from sent_events import CLEARED, frame, frames_of, recorded, store

HOSTILE = "\x1b]0;x\x07\r\n::error::x\n##[error]y\x9b2J\u202e\x7f"
texts = st.text(max_size=30)
once = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def assert_text(printed: str) -> None:
    """Hold lines to what text may have."""
    assert printed
    for line in printed.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.lstrip().startswith("::"), line
        assert "##[" not in line


def session_with(text: str) -> ProbeSession:
    """A probe of a server that says one text wherever it can."""
    player = player_of(cast("Any", QuietApi()))
    player.facts = evolve(FACTS, version=text, model=text, policy=text, loras=(text,))
    session = ProbeSession(player, ProbeLimits())
    session.page = PAGE
    space = PromptSpace(lora=text)
    sent = SentRequest(ProbeRequest(text, (5, 6), 1, space), ProbeReply((7,), 1))
    session.shown.append(
        ShownFinding(ProbeFinding(ProbeFault.ENDED, text, "repeats"), (sent,), repeated=False)
    )
    session.near_ties += [text]
    session.not_shown += [text]
    session.cuts = CutAnswers(player, 100, Counter({text: 2}))
    return session


@once
@given(text=texts)
@example(text=HOSTILE)
def test_probe_prints_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its report, and the same as JSON."""
    session, out = session_with(text), StringIO()
    print_lines(ReportConsole(file=out), report_lines(session, None))
    assert_text(out.getvalue())
    capsys.readouterr()
    print_json(report_json(session, 0, None))
    assert_text(capsys.readouterr().out)


@once
@given(text=texts)
@example(text=HOSTILE)
def test_errors_are_one_line_of_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, and as the annotation of a workflow, which begins its own command alone."""
    capsys.readouterr()
    usage_error(f"the server says {text}")
    assert_text(capsys.readouterr().err)
    annotate_error(OSError(text))
    printed = capsys.readouterr().out
    assert printed.startswith("::error ")
    assert_text(printed.removeprefix("::error ").rpartition("::")[2] or " ")
    assert len(printed.splitlines()) == 1


def hostile_batches(text: str) -> list[list[dict[str, Any]]]:
    """Batches that have the text in each field that takes one, and break laws with it."""
    stored = store([10, 20])
    named = store([30], medium=text, cache_salt=text, lora_name=text)
    return [[CLEARED, stored, stored, named, {"type": text}], [{"type": "BlockStored", text: text}]]


@once
@given(text=texts.filter(lambda each: all(ord(c) < 0xD800 or ord(c) > 0xDFFF for c in each)))
@example(text=HOSTILE)
def test_audit_prints_text(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of events, and of the publishers that a recording names."""
    path: Path = tmp_path_factory.mktemp("audit") / "a.kvstream"
    recorded(path, frames_of(*hostile_batches(text)), f"tcp://{text}:1")
    capsys.readouterr()
    assert main(["audit", str(path)]) == 1
    printed = capsys.readouterr()
    assert_text(printed.out)
    assert_text(printed.err or " ")
    assert main(["audit", str(path), "--json"]) == 1
    printed_json = capsys.readouterr().out
    assert_text(printed_json)
    assert json.loads(printed_json)["violations"] > 0
    main(["audit", str(path), "--against", str(path)])
    assert_text(capsys.readouterr().out)


@once
@given(text=texts)
@example(text=HOSTILE)
def test_watch_prints_text(text: str) -> None:
    """A line of each finding, and the dashboard."""
    for fault in (Fault.MALFORMED, Fault.STORED_TWICE):
        assert_text(finding_line(StreamFinding(fault, 0, 0, medium=text, problem=text)))
    sources = [Source(f"tcp://{text}:1", topic=text)]
    known = SimpleNamespace(sources=sources, is_connected=lambda _: True, refused_topics=0)
    subscriber = cast("Subscriber", known)
    watch = StreamWatch(subscriber, Streams(FollowerConfig()))
    watch.latest.append(StreamFinding(Fault.MALFORMED, 0, 0, medium=text, problem=text))
    encodable = text.encode(errors="replace").decode()
    for number, events in enumerate(hostile_batches(encodable)):
        watch.latest.extend(watch.streams.take(frame(number, *events)))
    out = StringIO()
    ReportConsole(file=out).print(dashboard(watch))
    assert "violations: " in out.getvalue()
    assert_text(out.getvalue())
