"""How long an engine's scheduler is in a connector, a request, with a full host.

Prompts share a drawn beginning with an earlier one, so that a part of each is loaded. All tiers
serve each request in turns, and the time is the processor's, so that other work on the machine
counts little.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import wraps
from random import Random
from statistics import median
from time import thread_time_ns
from typing import Any

from attrs import Factory, define, evolve, frozen

from kvcanon.lab.bench.tiers import MakeTier
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.serial_engine import InstantConnector, SerialEngine

TIMED = {
    "match": ("on_new_request", "get_num_new_matched_tokens"),
    "allocated": ("update_state_after_alloc",),
    "plan": ("build_connector_meta",),
    "ended": ("update_connector_output", "take_events"),
    "finished": ("request_finished_all_groups",),
}
"""The calls of a connector, by what they are for."""
PROMPT_BLOCKS = 128
BLOCK_TOKENS = 16
STEP_TOKENS = 8_192
VOCABULARY = 50_000


@frozen
class TierTime:
    """The time of one tier."""

    tier: str
    request_us: float
    """The mean over the requests of the time in all calls."""
    p50_us: float
    """The median. Work that is done for several requests at a time is in the mean alone."""
    calls_us: Mapping[str, float]
    """The mean a request, by what the calls are for."""
    hit_rate: float
    loaded_rate: float


@define
class ConnectorTimes:
    """What a connector's calls took since the last request."""

    taken_ns: defaultdict[str, int] = Factory(lambda: defaultdict(int))
    requests: list[dict[str, int]] = Factory(list)

    def end_request(self) -> None:
        """Keep the times of a request."""
        self.requests.append(dict(self.taken_ns))
        self.taken_ns.clear()


def timed_connector(connector: InstantConnector, times: ConnectorTimes) -> InstantConnector:
    """The same connector, each call of whose scheduler's half is timed."""
    half: Any = _TimedHalf(connector.scheduler, times)
    return evolve(connector, scheduler=half)


class _TimedHalf:
    """Passes all calls on, and times those of `TIMED`."""

    def __init__(self, half: object, times: ConnectorTimes) -> None:
        self._half = half
        for what, names in TIMED.items():
            for name in names:
                setattr(self, name, _timed(getattr(half, name), what, times.taken_ns))

    def __getattr__(self, name: str) -> object:
        return getattr(self._half, name)


def _timed(call: Any, what: str, taken_ns: dict[str, int]) -> Any:  # noqa: ANN401  # Any call.
    @wraps(call)
    def timed(*args: object) -> object:
        began = thread_time_ns()
        try:
            return call(*args)
        finally:
            taken_ns[what] += thread_time_ns() - began

    return timed


def tier_times(
    tiers: Mapping[str, MakeTier], host_blocks: int, requests: int, seed: int
) -> Sequence[TierTime]:
    """Fill a host of so many blocks in each tier, and time requests.

    The device has a quarter of them. A tier that stores ahead of eviction has what the device has
    evicted, so that the filling goes on until device and host are full.
    """
    device_blocks = host_blocks // 4
    shape = EngineShape(device_blocks, BLOCK_TOKENS, running=1, step_tokens=STEP_TOKENS)
    times = {name: ConnectorTimes() for name in tiers}
    engines = {
        name: SerialEngine(shape, timed_connector(make(shape, host_blocks), times[name]))
        for name, make in tiers.items()
    }
    filling = (device_blocks + host_blocks) // (PROMPT_BLOCKS // 2)
    for number, request in enumerate(_requests(filling + requests, seed)):
        for name, engine in engines.items():
            if number == filling:
                engine.restart_counts()
            engine.serve(request.again())
            times[name].end_request()
    return [_time_of(name, engines[name], times[name].requests[filling:]) for name in tiers]


def _time_of(tier: str, engine: SerialEngine, taken: Sequence[Mapping[str, int]]) -> TierTime:
    totals = [sum(each.values()) for each in taken]
    return TierTime(
        tier,
        sum(totals) / len(totals) / 1000,
        median(totals) / 1000,
        {what: sum(each.get(what, 0) for each in taken) / len(taken) / 1000 for what in TIMED},
        engine.hit_rate,
        engine.scheduler.external_tokens / engine.prompt_tokens,
    )


def _requests(count: int, seed: int) -> Iterator[StandInRequest]:
    """Prompts of which the first half is the beginning of an earlier one."""
    draw = Random(f"tiers {seed}")
    half = PROMPT_BLOCKS // 2 * BLOCK_TOKENS
    prefixes = [_drawn(draw, half)]
    for number in range(count):
        if draw.random() < 0.5:
            prefixes.append(_drawn(draw, half))
            prefix = prefixes[-1]
        else:
            prefix = draw.choice(prefixes)
        tokens = (*prefix, *_drawn(draw, half + 1))
        yield StandInRequest(f"{number}", tokens, BLOCK_TOKENS, 2)


def _drawn(draw: Random, count: int) -> array[int]:
    return array("I", (draw.randrange(VOCABULARY) for _ in range(count)))
