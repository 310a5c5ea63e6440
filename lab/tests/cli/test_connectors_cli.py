"""`kvcanon lab connectors`: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json

import pytest

from command_line import usage_error
from kvcanon.conformance.cli import main
from kvcanon.lab.cli import connectors
from kvcanon.lab.connectors.contestants import ConnectorContestant
from kvcanon.lab.connectors.planted_connectors import CONNECTOR_FAULTS

FAULTY = "ParentMissing"
"""A fault that the first run finds."""


def test_a_sound_connector_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """The counts are printed, and that nothing was found."""
    assert main(["lab", "connectors", "plain", "--runs", "2", "--requests", "20"]) == 0
    printed = capsys.readouterr().out
    assert "connectors plain" in printed
    assert "No fault was found in 2 runs." in printed


def test_a_connector_over_a_disk_outlives_its_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its runs have restarts, which are counted."""
    assert main(["lab", "connectors", "kvcanon-disk", "--runs", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sum(row["restarts"] for row in rows) > 0
    assert all(row["fault"] is None for row in rows)


def test_a_faulty_one_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fault is printed with its seed."""
    faulty = ConnectorContestant(CONNECTOR_FAULTS[FAULTY].make)
    monkeypatch.setattr(connectors, "CONNECTORS", {"faulty": faulty})
    assert main(["lab", "connectors", "faulty"]) == 1
    assert "WRONG_EVENT, seed 0" in capsys.readouterr().out


def test_json_has_each_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Each run is a row with its seed and its counts."""
    code = main(["lab", "connectors", "--runs", "2", "--requests", "20", "--seed", "5", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["seed"] for row in rows] == [5, 6]
    assert all(row["fault"] is None and row["requests"] for row in rows)


def test_faults_are_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each planted fault has a row, and one that no run finds makes the exit code 1."""
    few = {FAULTY: CONNECTOR_FAULTS[FAULTY]}
    monkeypatch.setattr(connectors, "CONNECTOR_FAULTS", few)
    assert main(["lab", "connectors", "--faults"]) == 0
    assert "1 of 1 faults were found" in capsys.readouterr().out
    monkeypatch.setattr(connectors, "find_fault", lambda *_: None)
    assert main(["lab", "connectors", "--faults"]) == 1
    assert "not found" in capsys.readouterr().out


def test_an_unknown_connector_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A connector of no name that it knows is refused."""
    assert "no connector 'nixl'" in usage_error(capsys, "lab", "connectors", "nixl")
