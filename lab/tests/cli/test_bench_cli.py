"""`kvcanon lab bench replay`, and calls of unknown commands."""

from __future__ import annotations

import re

import pytest

from command_line import read, read_json, usage_error
from kvcanon.conformance.cli import main


@pytest.mark.parametrize("arguments", [("frob",), ("bench", "frob"), ("replay",)])
def test_unknown_command_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """An unknown command is one line on stderr."""
    usage_error(capsys, *arguments)


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


def test_bench_replay_unknown_cache_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An unknown cache is one line on stderr."""
    assert "no cache 'nope'" in usage_error(
        capsys, "lab", "bench", "replay", "nope", "--conversations", "1"
    )
