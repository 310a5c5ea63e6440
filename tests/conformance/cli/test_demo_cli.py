"""`kvcanon demo`: the faults that are shipped are found, and shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from few_cases import FEW, plan_of
from kvcanon.conformance.check.check import check
from kvcanon.conformance.cli import main
from kvcanon.conformance.cli.demo import CACHE
from kvcanon.conformance.demo.faulty_cache import IgnoresLocks
from kvcanon.conformance.demo.faulty_stream import record_faulty_stream
from kvcanon.live.audit import audit
from kvcanon.live.follower import FollowerConfig
from kvcanon.live.stream_recording import open_recording


def test_it_shows_both_faults_and_writes_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The locked prompt that was evicted is a failure of few calls; the stream breaks EVENT-2."""
    assert main(["demo", "--output", str(tmp_path), "--no-open"]) == 0
    shown = capsys.readouterr().out
    assert "LOCK-4" in shown
    assert "BROKEN: EVENT-2" in shown
    assert "evict(Counts(" in shown
    page = (tmp_path / "report.html").read_text("utf-8")
    assert f"{tmp_path}/report.html" in shown
    assert "LOCK-4" in page


def test_the_cache_is_sound_but_for_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the method that it overrides, no law is broken."""
    plan = plan_of(CACHE, effort=evolve(FEW, walker_cases=32))
    assert any(each.failures for each in check(plan, apart=False).caches)
    monkeypatch.delattr(IgnoresLocks, "evict")
    assert not any(each.failures for each in check(plan, apart=False).caches)


def test_the_stream_is_sound_but_for_what_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all events sent, no law is broken; without them, one is."""
    path = tmp_path / "stream.kvstream"
    record_faulty_stream(path)
    assert audit(open_recording(path), FollowerConfig(), 1).streams.total > 0
    monkeypatch.setattr("kvcanon.conformance.demo.faulty_stream.UNSENT", -1)
    record_faulty_stream(path)
    assert audit(open_recording(path), FollowerConfig(), 1).streams.total == 0
