"""Probes of servers: findings of a sound one and faults that are not found fail the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from fake_engine_faults import FAULTS, WINDOW, faulty_engine
from fake_engine_server import ServedAs, engine_at
from fake_model import FakeEngine, config_of
from kvcanon.conformance.serving import __main__ as command
from kvcanon.conformance.serving import probed
from kvcanon.conformance.serving.core_faults import FAULTS as CORE_FAULTS
from kvcanon.conformance.serving.probed import PROBED_FAULTS
from kvcanon.conformance.serving.server_setup import ServerSetup

PLANTED = {"wrong-slot-after-split": "wrong slot after a split"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The faults of the servers that were started; most of those servers have no fault."""
    faults: list[str] = []

    @contextmanager
    def running(setup: ServerSetup, *_: Path) -> Iterator[SimpleNamespace]:
        faults.append(setup.fault)
        name = PLANTED.get(setup.fault)
        engine = faulty_engine(FAULTS[name]) if name else FakeEngine(config_of(**WINDOW))
        with engine_at(engine, ServedAs()) as url:
            yield SimpleNamespace(ports=SimpleNamespace(http=int(url.rpartition(":")[2])))

    monkeypatch.setattr(probed, "running", running)
    monkeypatch.setattr(probed, "make_model", lambda *_: SimpleNamespace(save_pretrained=id))
    monkeypatch.setattr(probed, "SOUND_SEEDS", 2)
    return faults


def status(folder: Path, *given: str) -> int:
    """Run the command in the environment of servers."""
    return command.run(command.arguments(["--probe", "kvcanon", *given]), folder)


def test_sound_server_is_probed_with_each_seed(
    started: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One server, whatever the number of seeds."""
    assert status(tmp_path, "--only", "sound-sliding", "--seed", "4") == 0
    printed = capsys.readouterr().out
    assert started == [""]
    assert "sound-sliding, seed 4: nothing was found (" in printed
    assert "sound-sliding, seed 5: nothing was found (" in printed


def test_fault_must_be_found(
    started: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that a server has is found with its requests; one that it has not fails the run."""
    assert status(tmp_path, "--only", "wrong-slot") == 0
    assert "wrong-slot-after-split: wrong tokens, shown by 2 requests" in capsys.readouterr().out
    assert status(tmp_path, "--only", "insert-swaps") == 1
    assert "wrong: insert-swaps-pages is not found" in capsys.readouterr().out
    assert started == ["wrong-slot-after-split", "insert-swaps-pages"]


def test_probed_faults_are_faults_of_cores() -> None:
    """Each is in the list of faults that a server can be started with."""
    assert set(PROBED_FAULTS) < set(CORE_FAULTS)
    assert len(PROBED_FAULTS) >= 8
