"""`kvcanon lab bench replay` and `live`: what is measured; a wrong fold gives no figure."""

from __future__ import annotations

import re

import pytest

from command_line import read, read_json
from kvcanon.conformance.cli import main
from kvcanon.lab.bench import live_speed
from kvcanon.lab.bench.event_churn import EventChurn


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command the help is printed."""
    main([])
    assert "replay" in capsys.readouterr().out


def test_bench_replay_measures_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    """Every case is measured, with and without events and window."""
    arguments = ("--conversations", "5", "--page-size", "16")
    report = read_json(capsys, "lab", "bench", "replay", *arguments)
    cases = report["cases"]
    assert [case["components"] for case in cases] == ["full"] * 2 + ["full + swa"] * 2
    assert [bool(case["result"]["events"]) for case in cases] == [False, True] * 2
    assert all(case["sizes"]["page_size"] == 16 for case in cases)
    assert all(case["result"]["requests_per_second"] > 0 for case in cases)
    assert all(case["peak_bytes"] > 1 << 20 for case in cases)
    assert all(case["result"]["judgement"] is None for case in cases)
    assert [bool(case["result"]["evicted"]["swa"]) for case in cases] == [False] * 2 + [True] * 2


def test_bench_replay_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has every column."""
    arguments = ("--conversations", "5", "--events")
    printed = read(capsys, "lab", "bench", "replay", *arguments)
    heading = next(line for line in printed.splitlines() if line.startswith("components"))
    for column in ("req/s", "hit rate", "match us", "insert us", "evict us", "peak MiB"):
        assert column in heading
    assert len(re.findall(r"^full ", printed, re.MULTILINE)) == 2
    assert " off " not in printed


QUICK = ("--seconds", "0.02", "--events", "600", "--blocks", "4000", "--rate", "100000")


def test_every_part_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """Rates of each page size, a match beside a publisher, and bytes a block."""
    measured = read_json(capsys, "lab", "bench", "live", "--page-size", "16", *QUICK)["measured"]
    assert list(measured) == ["encode", "publish", "match", "audit", "watch", "memory"]
    for part in ("encode", "publish", "watch"):
        assert [each["page_size"] for each in measured[part]] == [16]
    assert [each["page_size"] for each in measured["audit"]] == [16, 16]
    for part in ("encode", "publish", "audit", "watch"):
        assert all(each["per_second"] > 10_000 for each in measured[part]), part
    sizes = [each["file_bytes"] for each in measured["audit"]]
    assert 34 < sizes[0] < 100, "16 random tokens of 17 bits"
    (beside,) = measured["match"]
    assert len(beside["without_us"]) == len(beside["with_us"]) == 3
    assert beside["published_per_second"] > 0
    (memory,) = measured["memory"]
    assert memory["blocks"] <= 4000 <= memory["stored"]
    assert min(memory["bytes_a_block"]) > 70


def test_parts_are_chosen_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of rates, and a line for what is no rate."""
    printed = read(capsys, "lab", "bench", "live", "encode", "match", "--page-size", "32", *QUICK)
    assert "page events/s" in printed
    assert "match: " in printed
    assert "audit" not in printed
    assert "memory" not in printed


def test_matches_beside_are_compared_by_their_medians() -> None:
    """One percent slower is 0.01."""
    beside = live_speed.MatchBeside((2.0, 1.0, 9.0), (2.02, 1.0, 9.0), 1.0)
    assert beside.slowed == pytest.approx(0.01)


def test_wrong_fold_gives_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that is measured must be judged sound, or its rate means nothing."""
    churn = EventChurn(16, 8, 1000)
    churn.step()  # It begins with a clear.
    made = churn.step()
    monkeypatch.setattr(EventChurn, "step", lambda _self: made)
    with pytest.raises(live_speed.WrongFold, match="violations"):
        live_speed.audit_rate(16, 128, 100)
    with pytest.raises(live_speed.WrongFold, match="EVENT-2"):
        live_speed.watch_rate(16, 100)
