"""The host tiers whose hits and times are measured: run, where they are installed, or simulated.

A simulated tier keeps blocks by rules that were read in vLLM's sources, and copies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec

from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.kvcanon_tier import instant_kvcanon
from kvcanon.lab.connectors.serial_engine import InstantConnector
from kvcanon.lab.connectors.simple_cpu import simple_cpu
from kvcanon.lab.connectors.tier_rules import (
    EagerRules,
    ExclusiveRules,
    LazyRules,
    OffloadingRules,
    ruled,
)
from kvcanon.optimized.vllm.tier_shape import Policy

MakeTier = Callable[[EngineShape, int], InstantConnector]
"""Makes a tier for an engine, with so many blocks in the host."""

STEPS_AHEAD = 2
"""How many steps' blocks are stored ahead of eviction, as `lazy_offload` does."""


def _eager(_: EngineShape, host_blocks: int) -> InstantConnector:
    return ruled(EagerRules(host_blocks))


def _offloading(_: EngineShape, host_blocks: int) -> InstantConnector:
    return ruled(OffloadingRules(host_blocks))


def _lazy(shape: EngineShape, host_blocks: int) -> InstantConnector:
    return ruled(LazyRules(host_blocks, ahead_blocks=_ahead_blocks(shape)))


def _exclusive(shape: EngineShape, host_blocks: int) -> InstantConnector:
    return ruled(ExclusiveRules(host_blocks, ahead_blocks=_ahead_blocks(shape)))


def _eager_run(shape: EngineShape, host_blocks: int) -> InstantConnector:
    return simple_cpu(shape, host_blocks, lazy=False)


def _lazy_run(shape: EngineShape, host_blocks: int) -> InstantConnector:
    return simple_cpu(shape, host_blocks, lazy=True)


def _ahead_blocks(shape: EngineShape) -> int:
    return STEPS_AHEAD * -(-shape.step_tokens // shape.block_tokens)


SIMULATED: Mapping[str, MakeTier] = {
    "SimpleCPU eager, simulated": _eager,
    "SimpleCPU lazy, simulated": _lazy,
    "OffloadingConnector, simulated": _offloading,
    "exclusive, simulated": _exclusive,
}
OURS: Mapping[str, MakeTier] = {
    "kvcanon write_through": partial(instant_kvcanon, policy=Policy.WRITE_THROUGH),
    "kvcanon write_back": partial(instant_kvcanon, policy=Policy.WRITE_BACK),
}
OF_VLLM: Mapping[str, MakeTier] = {
    "SimpleCPU eager, vLLM 0.33.0": _eager_run,
    "SimpleCPU lazy, vLLM 0.33.0": _lazy_run,
}


def tiers_here() -> dict[str, MakeTier]:
    """The tiers that can be measured in this environment."""
    there = find_spec("vllm") is not None
    return {**SIMULATED, **(OF_VLLM if there else {}), **OURS}
