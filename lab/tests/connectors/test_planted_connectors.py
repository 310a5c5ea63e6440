"""The engine finds what is wrong with a connector, and nothing with a sound one."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.lab.connectors.contestants import make_plain
from kvcanon.lab.connectors.drawn_run import DrawnRun, draw_run, play_run
from kvcanon.lab.connectors.engine_shape import FULL_LAYERS, CachedLayers, EngineShape
from kvcanon.lab.connectors.finding import BreachKind
from kvcanon.lab.connectors.late_copies import CopyTimes
from kvcanon.lab.connectors.planted_connectors import CONNECTOR_FAULTS, ConnectorFault, find_fault

SEEN_AS = {
    "FailureUnreported": {BreachKind.WRONG_BYTES},
    "FailedLoadRepeated": {BreachKind.REPEATED_LOADS},
    "FailureByBlocks": {BreachKind.UNDECLARED_IDS},
    "SourceNotHeld": {BreachKind.WRONG_BYTES},
    "StaleAfterReset": {BreachKind.WRONG_BYTES},
    "SaltIgnored": {BreachKind.WRONG_BYTES},
    "PinLeaked": {BreachKind.HOST_KEPT},
    "EventBeforeBytes": {BreachKind.NOT_SERVED},
    "LaterForEver": {BreachKind.HANG},
    "SourceNeverFreed": {BreachKind.BLOCKS_KEPT, BreachKind.HANG},
}


@pytest.mark.parametrize("fault", CONNECTOR_FAULTS.values(), ids=lambda fault: fault.name)
def test_planted_fault_is_found(fault: ConnectorFault) -> None:
    """Each planted fault is found, and as what it is where only one kind fits."""
    found = find_fault(fault, 0)
    assert found is not None
    assert found.fault in SEEN_AS.get(fault.name, set(BreachKind))


@pytest.mark.parametrize("seed", range(40))
def test_sound_connector_is_not_accused(seed: int) -> None:
    """The plain connector breaks nothing, whatever its copies do."""
    outcome = play_run(draw_run(seed), make_plain)
    assert outcome.fault is None, outcome.words
    assert outcome.requests


def test_engine_that_hangs_by_itself_accuses_no_connector() -> None:
    """The client of the request that blocks the queue goes away, and the run goes on to its end.

    Its load has failed, and it waits for blocks of the one behind it, whose load has ended.
    """
    window = CachedLayers(("window.0", "window.1"), 4)
    shape = EngineShape(blocks=30, groups=(FULL_LAYERS, window), step_tokens=64, running=1)
    times = CopyTimes(2, failing=0.5)
    run = DrawnRun(172, shape, times, 30, 150, prompts=2, prompt_blocks=12, loads_first=True)
    outcome = play_run(evolve(run, resetting=0.0), make_plain)
    assert outcome.fault is None, outcome.words
    assert outcome.engine_hangs == 1
    assert outcome.requests > 100


def test_equal_seeds_play_equal_runs() -> None:
    """A run is drawn from its seed alone."""
    assert play_run(draw_run(3), make_plain) == play_run(draw_run(3), make_plain)


def test_runs_reach_what_they_are_for() -> None:
    """Runs load, fail, preempt and announce."""
    outcomes = [play_run(draw_run(seed), make_plain) for seed in range(30)]
    for reached in ("external_tokens", "local_tokens", "preemptions", "failed_loads", "events"):
        assert sum(getattr(each, reached) for each in outcomes) > 50, reached
