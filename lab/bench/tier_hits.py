"""Hits on a trace under host tiers of several sizes.

All engines are served in lockstep, so that each prompt is made and hashed once. One LRU over device
and host is a device as large as both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.tiers import MakeTier
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.serial_engine import SerialEngine
from kvcanon.lab.connectors.tier_rules import NoHost, ruled

STEP_TOKENS = 8_192
"""vLLM's `max_num_batched_tokens` on a large GPU."""
STEPS_OF_DEVICE = 32
"""A small device takes at least so many steps to fill."""
ONE_LRU = "one LRU of both sizes"
NO_HOST = "no host"


@frozen
class TierSizes:
    """The sizes of a replay."""

    block_tokens: int
    device_blocks: int
    host_blocks: tuple[int, ...]

    def shape(self, blocks: int) -> EngineShape:
        """An engine with so many blocks, which serves one request at a time."""
        small = self.device_blocks * self.block_tokens // STEPS_OF_DEVICE
        step = max(self.block_tokens, min(STEP_TOKENS, small))
        return EngineShape(blocks, self.block_tokens, running=1, step_tokens=step)


@frozen
class TierHits:
    """What came of one tier at one size."""

    tier: str
    host_blocks: int
    hit_rate: float
    loaded_rate: float
    """The share of prompt tokens that came from the host."""


def tier_hits(
    requests: Iterable[Request], sizes: TierSizes, tiers: Mapping[str, MakeTier]
) -> Sequence[TierHits]:
    """Serve a trace to all tiers at all sizes, to a device alone, and to one LRU over both."""
    device = sizes.shape(sizes.device_blocks)
    engines = {(NO_HOST, 0): SerialEngine(device, ruled(NoHost()))}
    for host_blocks in sizes.host_blocks:
        for name, make in tiers.items():
            engines[name, host_blocks] = SerialEngine(device, make(device, host_blocks))
        both = sizes.shape(sizes.device_blocks + host_blocks)
        engines[ONE_LRU, host_blocks] = SerialEngine(both, ruled(NoHost()))
    for number, request in enumerate(requests):
        first = engine_request(f"{number}", request, sizes.block_tokens)
        for engine in engines.values():
            engine.serve(first.again())
    return [
        TierHits(
            tier,
            host_blocks,
            engine.hit_rate,
            engine.scheduler.external_tokens / max(1, engine.prompt_tokens),
        )
        for (tier, host_blocks), engine in engines.items()
    ]


def engine_request(name: str, request: Request, block_tokens: int) -> StandInRequest:
    """A request of a trace as the engine takes it, which generates one token."""
    tokens = request.make_tokens()
    return StandInRequest(name, tokens, block_tokens, 1, cache_salt=request.namespace.extra_key)
