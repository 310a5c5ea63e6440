"""A run that is drawn from a seed: an engine, prompts that share prefixes, aborts and resets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from attrs import frozen

from kvcanon.lab.connectors.connector_calls import ConnectorHalves
from kvcanon.lab.connectors.engine_request import LoraAdapter, StandInRequest
from kvcanon.lab.connectors.engine_shape import FULL_LAYERS, CachedLayers, EngineShape, Queueing
from kvcanon.lab.connectors.finding import BreachKind, BrokenConnector
from kvcanon.lab.connectors.late_copies import CopyTimes
from kvcanon.lab.connectors.stand_in_engine import StandInEngine
from kvcanon.lab.connectors.step_scheduler import MakeScheduler

WINDOW_LAYERS = ("window.0", "window.1")


@frozen
class DrawnRun:
    """What a run is made of."""

    seed: int
    shape: EngineShape
    times: CopyTimes
    host_blocks: int
    requests: int
    prompts: int
    """How many prompts there are, of which each request has a beginning."""
    prompt_blocks: int
    """The most blocks of a prompt."""
    aborting: float = 0.1
    """The share of steps after which a request is aborted."""
    resetting: float = 0.02
    """The share of requests after which the cache is reset."""
    resting: float = 0.05
    """The share of requests after which the engine runs until it is idle."""
    loads_first: bool = False


MakeDrawn = Callable[[DrawnRun], ConnectorHalves]
"""Makes a connector for a run."""


@frozen
class RunOutcome:
    """What came of a run."""

    run: DrawnRun
    fault: BreachKind | None
    words: str
    requests: int
    steps: int
    local_tokens: int
    external_tokens: int
    preemptions: int
    failed_loads: int
    events: int


def draw_run(seed: int, requests: int = 150) -> DrawnRun:
    """Draw a run from a seed."""
    draw = Random(f"run {seed}")
    windowed = draw.random() < 0.5
    groups = [FULL_LAYERS]
    if windowed:
        groups.append(CachedLayers(WINDOW_LAYERS, draw.choice((4, 7, 9, 13))))
    prompt_blocks = draw.randint(4, 12)
    # Room for one prompt with its answer, for two, or for several.
    blocks = (prompt_blocks + 3) * len(groups) * draw.choice((1, 1, 2, 4))
    shape = EngineShape(
        blocks=blocks,
        groups=tuple(groups),
        ranks=draw.choice((1, 1, 2)),
        running=draw.choice((1, 2, 4)),
        step_tokens=draw.choice((6, 16, 64)),
        queueing=draw.choice(list(Queueing)),
    )
    times = CopyTimes(
        latest_steps=draw.choice((0, 2, 6, 12)),
        failing=draw.choice((0.0, 0.0, 0.2, 1.0)),
        lost=draw.choice((0.0, 0.0, 0.05)),
    )
    return DrawnRun(
        seed,
        shape,
        times,
        host_blocks=max(2, blocks * draw.choice((1, 2, 4)) // 2),
        requests=requests,
        prompts=draw.randint(2, 6),
        prompt_blocks=prompt_blocks,
        loads_first=draw.random() < 0.5,
    )


def play_run(
    run: DrawnRun,
    make: MakeDrawn,
    *,
    scheduler: MakeScheduler | None = None,
    announces: bool = True,
    idle_seconds: float = 0.0,
    rolls_over: bool = True,
) -> RunOutcome:
    """Play a run until it ends or a fault is found.

    `rolls_over` says whether the host forgets all that is old when it is filled with new prompts;
    what it keeps then is held by something that was not let go.
    """
    connector = make(run)
    engine = StandInEngine(
        run.shape,
        connector,
        scheduler=scheduler,
        seed=run.seed,
        loads_first=run.loads_first,
        announces=announces,
        idle_seconds=idle_seconds,
    )
    fault, words = None, ""
    try:
        _play(run, engine, rolls_over=rolls_over and announces)
    except BrokenConnector as broken:
        fault, words = broken.fault, str(broken)
    except Exception as error:  # noqa: BLE001  # Whatever a connector raises.
        fault, words = BreachKind.RAISED, f"{type(error).__name__}: {error}"
    finally:
        connector.at_end()
    scheduled = engine.scheduler
    return RunOutcome(
        run,
        fault,
        words,
        engine.finished,
        engine.steps,
        scheduled.local_tokens,
        scheduled.external_tokens,
        scheduled.preemptions,
        scheduled.failed_loads,
        engine.announced.events,
    )


def _play(run: DrawnRun, engine: StandInEngine, *, rolls_over: bool) -> None:
    draw = Random(f"play {run.seed}")
    prompts = _prompts(run, draw)
    live: list[StandInRequest] = []
    for number in range(run.requests):
        request = _request(run, draw, f"request {number}", draw.choice(prompts))
        request = engine.add(request)
        live = [each for each in live if not each.is_finished()] + [request]
        for _ in range(draw.randint(0, 6)):
            if engine.scheduler.has_work():
                engine.step()
            if draw.random() < run.aborting / 4:
                engine.abort(draw.choice(live))
        if draw.random() < run.resetting:
            engine.reset()
        if draw.random() < run.resting:
            _rest(run, engine, prompts, number)
    _rest(run, engine, prompts, run.requests)
    if rolls_over:
        _fill_host(run, engine)


def _prompts(run: DrawnRun, draw: Random) -> list[tuple[int, ...]]:
    """Prompts, some of which begin as another does."""
    size = run.shape.block_tokens
    prompts: list[tuple[int, ...]] = []
    for _ in range(run.prompts):
        shared = draw.choice(prompts)[: draw.randint(0, 3 * size)] if prompts else ()
        length = draw.randint(1, run.prompt_blocks * size)
        own = tuple(draw.randrange(3) for _ in range(max(0, length - len(shared))))
        prompts.append((shared + own) or (0,))
    return prompts


def _request(run: DrawnRun, draw: Random, name: str, prompt: Sequence[int]) -> StandInRequest:
    """A request with a beginning of a prompt, or all of it and more."""
    size = run.shape.block_tokens
    whole = draw.random() < 0.6
    tokens = tuple(prompt if whole else prompt[: draw.randint(1, len(prompt))])
    tokens += tuple(draw.randrange(3) for _ in range(draw.randint(0, size)))
    return StandInRequest(
        name,
        tokens,
        size,
        max_tokens=draw.randint(1, 2 * size),
        cache_salt=draw.choice((None, None, "a", "b")),
        lora_request=draw.choice((None, None, LoraAdapter("adapter", 1))),
        skip_reading_prefix_cache=draw.random() < 0.05,
    )


def _rest(
    run: DrawnRun, engine: StandInEngine, prompts: Sequence[Sequence[int]], number: int
) -> None:
    """Run until the engine is idle, and look whether all is as it should be."""
    engine.run_until_idle()
    engine.check_at_rest()
    for at, prompt in enumerate(prompts):
        for salt in (None, "a"):
            name = f"look {number}, {at}, {salt}"
            size = run.shape.block_tokens
            engine.check_served(StandInRequest(name, (*prompt, 0), size, 1, cache_salt=salt))


def _fill_host(run: DrawnRun, engine: StandInEngine) -> None:
    """Fill device and host with new prompts, after which nothing old may be left."""
    old = set(engine.announced.held)
    size = run.shape.block_tokens
    room = run.shape.blocks + 2 * run.host_blocks
    for number in range(-(-room // run.prompt_blocks) + 1):
        tokens = tuple(3 + number for _ in range(run.prompt_blocks * size + 1))
        # More than one step, since a connector may store what earlier steps have computed.
        engine.add(StandInRequest(f"fill {number}", tokens, size, max_tokens=3))
        engine.run_until_idle()
    kept = old & engine.announced.held
    if kept:
        raise BrokenConnector(
            BreachKind.HOST_KEPT, f"{len(kept)} blocks, after {room} blocks of new prompts"
        )
