"""A run that is drawn from a seed: an engine, prompts that share prefixes, aborts and resets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from attrs import Factory, define, frozen

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
    restarting: float = 0.04
    """The share of requests after which the process is killed and the next one begins, where the
    connector's pages outlive it."""


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
    restarts: int = 0
    engine_hangs: int = 0
    """How often the engine's scheduler hung, though the connector owed it nothing."""


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
    playing = _Playing(
        run,
        lambda connector: StandInEngine(
            run.shape,
            connector,
            scheduler=scheduler,
            seed=run.seed,
            loads_first=run.loads_first,
            announces=announces,
            idle_seconds=idle_seconds,
        ),
    )
    playing.begin(make(run))
    fault, words = None, ""
    try:
        _play(playing, rolls_over=rolls_over and announces)
    except BrokenConnector as broken:
        fault, words = broken.fault, str(broken)
    except Exception as error:  # noqa: BLE001  # Whatever a connector raises.
        fault, words = BreachKind.RAISED, f"{type(error).__name__}: {error}"
    finally:
        playing.engine.connector.at_end()
    engines = playing.engines
    scheduled = [each.scheduler for each in engines]
    return RunOutcome(
        run,
        fault,
        words,
        sum(each.finished for each in engines),
        sum(each.steps for each in engines),
        sum(each.local_tokens for each in scheduled),
        sum(each.external_tokens for each in scheduled),
        sum(each.preemptions for each in scheduled),
        sum(each.failed_loads for each in scheduled),
        sum(each.announced.events for each in engines),
        len(engines) - 1,
        sum(each.own_hangs for each in engines),
    )


@define(eq=False)
class _Playing:
    """A run under way: the engines of its processes, one after another."""

    run: DrawnRun
    make: Callable[[ConnectorHalves], StandInEngine]
    engines: list[StandInEngine] = Factory(list)

    @property
    def engine(self) -> StandInEngine:
        """That of the present process."""
        return self.engines[-1]

    @property
    def process(self) -> int:
        """The number of the present process."""
        return len(self.engines) - 1

    def begin(self, connector: ConnectorHalves) -> None:
        """Begin a process. Its model has the weights that the first one had at its start."""
        self.engines.append(self.make(connector))


def _play(playing: _Playing, *, rolls_over: bool) -> None:
    run = playing.run
    draw = Random(f"play {run.seed}")
    prompts = _prompts(run, draw)
    live: list[StandInRequest] = []
    for number in range(run.requests):
        next_process = playing.engine.connector.next_process
        if next_process is not None and draw.random() < run.restarting:
            playing.begin(next_process())
            live = []
        engine = playing.engine
        name, prompt = f"request {number}", draw.choice(prompts)
        request = engine.add(_request(run, draw, name, prompt, playing.process))
        live = [each for each in live if not each.is_finished()] + [request]
        for _ in range(draw.randint(0, 6)):
            if engine.scheduler.has_work():
                engine.step()
            if draw.random() < run.aborting / 4:
                engine.abort(draw.choice(live))
        if draw.random() < run.resetting:
            engine.reset()
        if draw.random() < run.resting:
            _rest(playing, prompts, number)
    _rest(playing, prompts, run.requests)
    if rolls_over:
        _fill_host(playing)


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


def _request(
    run: DrawnRun, draw: Random, name: str, prompt: Sequence[int], process: int
) -> StandInRequest:
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
        process=process,
    )


def _rest(playing: _Playing, prompts: Sequence[Sequence[int]], number: int) -> None:
    """Run until the engine is idle, and look whether all is as it should be."""
    engine, size = playing.engine, playing.run.shape.block_tokens
    engine.run_until_idle()
    engine.check_at_rest()
    for at, prompt in enumerate(prompts):
        for salt in (None, "a"):
            name, tokens = f"look {number}, {at}, {salt}", (*prompt, 0)
            asked = StandInRequest(name, tokens, size, 1, cache_salt=salt, process=playing.process)
            engine.check_served(asked)


def _fill_host(playing: _Playing) -> None:
    """Fill device and host with new prompts, after which nothing old may be left."""
    run, engine = playing.run, playing.engine
    old = set(engine.announced.held)
    size = run.shape.block_tokens
    room = run.shape.blocks + 2 * run.host_blocks
    for number in range(-(-room // run.prompt_blocks) + 1):
        tokens = tuple(3 + number for _ in range(run.prompt_blocks * size + 1))
        # More than one step, since a connector may store what earlier steps have computed.
        name = f"fill {number}"
        engine.add(StandInRequest(name, tokens, size, max_tokens=3, process=playing.process))
        engine.run_until_idle()
    kept = old & engine.announced.held
    if kept:
        raise BrokenConnector(
            BreachKind.HOST_KEPT, f"{len(kept)} blocks, after {room} blocks of new prompts"
        )
