"""The fleet and the guard's tail, small: they measure what they say, and say what was missed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kvcanon.lab.bench.guard_tails import guard_tail, request_us
from kvcanon.lab.soak.fleet import MODULE
from paths import ROOT


def test_a_small_fleet_is_watched(tmp_path: Path) -> None:
    """Nothing of the others is lost or accused, and the three do their worst."""
    file = tmp_path / "fleet.json"
    command = [sys.executable, "-m", MODULE, "--publishers", "20", "--seconds", "5"]
    done = subprocess.run(
        [*command, "--gaps", "200", "--json", str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=170,
        cwd=ROOT,
        env=os.environ,
    )
    runs = json.loads(file.read_text("utf-8"))["fleet"]
    assert [each["signal"] for each in runs] == ["SIGINT", "SIGTERM"]
    for run in runs:
        assert (run["lost"], run["accused"], run["exit_code"]) == (0, 0, 0)
        assert run["batches"] > 17 * 5
        assert run["gaps_seen"] > 0
        assert run["replayed"] > 100
        assert run["refused"] > 0
        assert run["most_bytes"] <= run["bound_bytes"]
    # On a busy machine a batch may be late; then the run says so, and nothing else.
    missed = done.stderr.splitlines()
    assert all("was folded after" in each or "it ended" in each for each in missed), missed
    assert done.returncode == (1 if missed else 0)


def test_guard_adds_little_to_requests_that_it_does_not_judge() -> None:
    """Judged requests are left out, and the time of a request is that of the kept server."""
    found = guard_tail(2, 20, request_us(ROOT))
    assert 6000 < found.request_us < 8000
    assert found.judged > 0
    assert found.requests > 30
    assert 0 < found.added_us["p50"] <= found.added_us["p99"] <= found.added_us["most"]
    assert found.calls > 2 * 5 * found.requests
