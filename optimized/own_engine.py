"""The engine that a cache makes for its pools, if it is given none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine

if TYPE_CHECKING:
    from kvcanon.optimized.cuda_engine import CudaEngine


def engine_for(pools: Pools) -> ThreadedEngine | CudaEngine:
    """Make an engine: of threads for pools on a CPU, of streams for pools on a GPU."""
    if pools.device.type == "cpu":
        return ThreadedEngine()
    from kvcanon.optimized.cuda_engine import CudaEngine  # noqa: PLC0415 (it needs Triton)

    return CudaEngine(pools)
