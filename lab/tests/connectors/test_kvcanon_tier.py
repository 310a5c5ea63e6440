"""kvcanon's connector for vLLM under the engine: bytes, events, hangs, windows and failures."""

from __future__ import annotations

from random import Random

import pytest

from kvcanon.lab.connectors.contestants import CONNECTORS
from kvcanon.lab.connectors.drawn_run import DrawnRun, draw_run, play_run
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import FULL_LAYERS, CachedLayers, EngineShape, Queueing
from kvcanon.lab.connectors.kvcanon_tier import drawn_kvcanon
from kvcanon.lab.connectors.late_copies import CopyTimes
from kvcanon.lab.connectors.stand_in_engine import StandInEngine
from kvcanon.optimized.vllm.tier_shape import Policy

BLOCK_TOKENS = 4


def run_of(shape: EngineShape, times: CopyTimes, host_blocks: int = 200) -> DrawnRun:
    """A run of no requests, for tests that send their own."""
    return DrawnRun(0, shape, times, host_blocks, requests=0, prompts=0, prompt_blocks=0)


def engine_of(run: DrawnRun, policy: Policy = Policy.WRITE_BACK) -> StandInEngine:
    """An engine around kvcanon's connector."""
    return StandInEngine(run.shape, drawn_kvcanon(run, policy))


def serve(engine: StandInEngine, name: str, tokens: tuple[int, ...]) -> int:
    """Serve a prompt to its end. Returns: how many tokens were loaded for it."""
    before = engine.scheduler.external_tokens
    engine.add(StandInRequest(name, tokens, BLOCK_TOKENS, max_tokens=2))
    engine.run_until_idle()
    return engine.scheduler.external_tokens - before


def fill(engine: StandInEngine, blocks: int) -> None:
    """Evict what the device holds, by prompts of other tokens."""
    for number in range(blocks // 10 + 1):
        serve(engine, f"fill {number}", tuple(1000 + number for _ in range(41)))


@pytest.mark.parametrize("name", ["kvcanon", "kvcanon-through"])
@pytest.mark.parametrize("seed", range(20))
def test_runs_find_nothing_wrong(name: str, seed: int) -> None:
    """No run finds a wrong byte, a wrong event, a leak or a hang."""
    chosen = CONNECTORS[name]
    outcome = play_run(chosen.fitted(draw_run(seed)), chosen.make)
    assert outcome.fault is None, outcome.words
    assert outcome.requests


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["kvcanon", "kvcanon-through"])
def test_a_pool_of_two_prompts_never_hangs(name: str) -> None:
    """Ten thousand requests pass through a pool with room for two prompts."""
    shape = EngineShape(blocks=30, running=4, step_tokens=16)
    run = DrawnRun(7, shape, CopyTimes(6), 60, requests=10_000, prompts=6, prompt_blocks=12)
    outcome = play_run(run, CONNECTORS[name].make)
    assert outcome.fault is None, outcome.words
    assert outcome.external_tokens > 10_000


def test_a_branch_under_a_window_finds_what_its_window_needs() -> None:
    """A prompt that leaves an earlier one in its middle loads the whole blocks of their share."""
    window = CachedLayers(("window.0", "window.1"), 9)
    shape = EngineShape(blocks=60, groups=(FULL_LAYERS, window))
    engine = engine_of(run_of(shape, CopyTimes(0)))
    draw = Random(1)
    first = tuple(draw.randrange(100) for _ in range(100))
    serve(engine, "first", first)
    fill(engine, 60)
    branch = (*first[:66], *(draw.randrange(100) for _ in range(20)))
    assert serve(engine, "branch", branch) == 64


def test_a_failed_load_costs_one_computation() -> None:
    """What failed to load is computed once, and not asked for again."""
    engine = engine_of(run_of(EngineShape(blocks=30), CopyTimes(0, failing=1.0)))
    tokens = tuple(range(40))
    serve(engine, "first", tokens)
    fill(engine, 30)
    request = StandInRequest("again", tokens, BLOCK_TOKENS, max_tokens=2)
    engine.add(request)
    engine.run_until_idle()
    assert engine.scheduler.failed_loads == 1
    assert request.loads == 1
    engine.check_at_rest()


def test_it_never_lets_a_request_wait_behind_a_store() -> None:
    """A prompt that comes again while it is stored is served, as in the recipe of vllm#57841.

    There the prompt was put off, and blocked the loads behind it for ever.
    """
    shape = EngineShape(blocks=270, step_tokens=128, queueing=Queueing.SKIPPED_FIRST)
    engine = engine_of(run_of(shape, CopyTimes(30), host_blocks=600), Policy.WRITE_THROUGH)
    long, short = tuple(range(1000)), tuple(range(2000, 2400))
    serve(engine, "long", (*long, 1))
    fill(engine, 270)
    for name, tokens in (
        ("S", short),
        ("H", short),
        ("L", (*long, *range(20))),
        ("W", short[::-1]),
    ):
        engine.add(StandInRequest(name, tokens, BLOCK_TOKENS, max_tokens=4))
        engine.step()
    engine.run_until_idle()
    engine.check_at_rest()
    assert engine.scheduler.external_tokens >= len(long)
