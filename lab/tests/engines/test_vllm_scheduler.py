"""Our engine asks a connector for what vLLM's own scheduler asks it for."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.lab.connectors.contestants import CONNECTORS, make_plain
from kvcanon.lab.connectors.drawn_run import DrawnRun, draw_run, play_run
from kvcanon.lab.connectors.engine_shape import FULL_LAYERS, CachedLayers, EngineShape, Queueing
from kvcanon.lab.connectors.late_copies import CopyTimes
from kvcanon.lab.connectors.planted_connectors import CONNECTOR_FAULTS, ConnectorFault
from kvcanon.lab.connectors.vllm_scheduler import VLLMScheduler

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""vLLM's imports warn of their own."""
FAULTS_HERE = ("FailureUnreported", "WrongBlock", "SourceNotHeld", "SaltIgnored", "PinLeaked")


def comparable(seed: int) -> DrawnRun:
    """A run that both play: vLLM refuses a reset while copies hold blocks, and we do not."""
    run = draw_run(seed)
    shape = evolve(run.shape, queueing=Queueing.HOLDERS_FIRST)
    return evolve(run, shape=shape, resetting=0.0)


@pytest.mark.parametrize("seed", range(30))
def test_equal_runs_take_equal_steps(seed: int) -> None:
    """Steps, hits, loads, preemptions, failures and events are the same under both schedulers."""
    run = comparable(seed)
    theirs = play_run(run, make_plain, scheduler=VLLMScheduler)
    assert theirs.fault is None, theirs.words
    assert theirs == play_run(run, make_plain)


@pytest.mark.parametrize("name", ["kvcanon", "kvcanon-through"])
@pytest.mark.parametrize("seed", range(10))
def test_kvcanon_passes_both(name: str, seed: int) -> None:
    """Kvcanon's connector takes the same steps under both schedulers, and nothing is found."""
    run, make = comparable(seed), CONNECTORS[name].make
    theirs = play_run(run, make, scheduler=VLLMScheduler)
    assert theirs.fault is None, theirs.words
    assert theirs == play_run(run, make)


def test_both_hang_alike_where_failed_loads_come_back() -> None:
    """Both schedulers hang in the same step, and go on alike once a client went away.

    A request whose load has failed waits for blocks that the one behind it holds, whose load has
    ended and is not looked at.
    """
    window = CachedLayers(("window.0", "window.1"), 4)
    shape = EngineShape(blocks=30, groups=(FULL_LAYERS, window), step_tokens=64, running=1)
    times = CopyTimes(2, failing=0.5)
    run = DrawnRun(172, shape, times, 30, 150, prompts=2, prompt_blocks=12, loads_first=True)
    run = evolve(run, resetting=0.0)
    theirs, ours = (
        play_run(run, make_plain, scheduler=VLLMScheduler),
        play_run(run, make_plain),
    )
    assert theirs.fault is None, theirs.words
    assert theirs.engine_hangs == 1
    assert theirs == ours


@pytest.mark.parametrize("seed", range(100, 110))
def test_resets_are_played(seed: int) -> None:
    """A sound connector is not accused under vLLM's scheduler, resets included."""
    outcome = play_run(draw_run(seed), make_plain, scheduler=VLLMScheduler)
    assert outcome.fault is None, outcome.words


@pytest.mark.parametrize(
    "fault", [CONNECTOR_FAULTS[name] for name in FAULTS_HERE], ids=lambda fault: fault.name
)
def test_faults_are_found_under_its_scheduler(fault: ConnectorFault) -> None:
    """Faults are found there as well."""
    outcomes = (
        play_run(comparable(seed), fault.make, scheduler=VLLMScheduler) for seed in range(40)
    )
    assert any(outcome.fault is not None for outcome in outcomes)
