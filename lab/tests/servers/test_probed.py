"""Probes of servers: findings of a sound one and faults that are not found fail the run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.engine_faults import FAULTS, WINDOW, faulty_engine
from fakes.engine_server import ServedAs, engine_at
from fakes.model import FakeEngine, config_of
from kvcanon.conformance.probe import beside
from kvcanon.lab.servers import __main__ as command
from kvcanon.lab.servers import probed, vllm_plugin
from kvcanon.lab.servers.core_faults import FAULTS as CORE_FAULTS
from kvcanon.lab.servers.probed import PROBED_FAULTS, VLLM_FAULTS
from kvcanon.lab.servers.server_process import plugin_folder
from kvcanon.lab.servers.server_setup import FAULT, PLUGIN, ServerSetup
from kvcanon.lab.servers.vllm_faults import FAULTS as THEIR_FAULTS
from kvcanon.lab.servers.vllm_server import vllm_variables
from kvcanon.live import Publisher
from probing import ANY

PLANTED = {"wrong-slot-after-split": "wrong slot after a split", "parent-ignored": "parent ignored"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The faults of the servers that were started; most of those servers have no fault."""
    faults: list[str] = []

    @contextmanager
    def port_of(fault: str, dialect: str) -> Iterator[list[int]]:
        faults.append(fault)
        name, sound = PLANTED.get(fault), WINDOW if dialect == "sglang" else {}
        with Publisher(ANY, dialect=dialect, binds_endpoint=True) as sender:
            engine = (
                faulty_engine(FAULTS[name], sender)
                if name
                else FakeEngine(config_of(**sound), None, sender)
            )
            with engine_at(engine, ServedAs(dialect)) as url:
                yield [int(each.rpartition(":")[2]) for each in (url, sender.endpoint)]

    @contextmanager
    def running(setup: ServerSetup, *_given: Path) -> Iterator[SimpleNamespace]:
        with port_of(setup.fault, "sglang") as (port, _):
            yield SimpleNamespace(ports=SimpleNamespace(http=port))

    monkeypatch.setattr(probed, "running", running)
    monkeypatch.setattr(probed, "running_vllm", lambda fault, *_: port_of(fault, "vllm"))
    monkeypatch.setattr(probed, "make_model", lambda *_: SimpleNamespace(save_pretrained=id))
    monkeypatch.setattr(beside, "QUIET_SECONDS", 0.004)
    return faults


def status(folder: Path, *given: str, core: str = "kvcanon") -> int:
    """Run the command in the environment of servers."""
    return command.run(command.arguments(["--probe", core, "--seeds", "2", *given]), folder)


def test_sound_server_is_probed_with_each_seed(
    started: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One server, whatever the number of seeds; the file of figures has a run of each."""
    kept = tmp_path / "kept.json"
    assert status(tmp_path, "--only", "sound-sliding", "--seed", "4", "--json", str(kept)) == 0
    written = json.loads(kept.read_text())
    assert [each["seed"] for each in written["probed"]] == [4, 5]
    assert "-m kvcanon.lab.servers" in written["run"]["command"]
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


def test_vllm_is_probed_in_its_own_dialect(
    started: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sound server, and a fault that only pages behind other pages show."""
    assert status(tmp_path, "--only", "parent-ignored", core="vllm") == 0
    assert "; too many cached tokens, shown by 2 requests: mixed" in capsys.readouterr().out
    assert status(tmp_path, "--only", "sound", core="vllm") == 0
    printed = capsys.readouterr().out
    assert "sound-vllm, seed 1: nothing was found (" in printed
    assert re.search(r"requests compared; tokens promised: (\d+) device; served: \1 any", printed)
    assert started == ["parent-ignored", ""]


def test_probed_faults_are_those_that_servers_can_have() -> None:
    """Each is in the list of faults that a server can be started with."""
    assert set(PROBED_FAULTS) < set(CORE_FAULTS)
    assert len(PROBED_FAULTS) >= 8
    assert set(VLLM_FAULTS) == set(THEIR_FAULTS)


def test_vllm_finds_the_plugin_and_its_fault(tmp_path: Path) -> None:
    """Its server is started with the variables and the entry point that plant a fault."""
    made = vllm_variables("parent-ignored", plugin_folder(tmp_path), {"PYTHONPATH": "/other"})
    assert made[FAULT] == "parent-ignored"
    assert made["PYTHONPATH"].split(":")[1:] == ["/other"]
    (found,) = distributions(path=[made["PYTHONPATH"].split(":")[0]])
    plugin = found.entry_points.select(group="vllm.general_plugins")[PLUGIN]
    assert plugin.load() is vllm_plugin.register
