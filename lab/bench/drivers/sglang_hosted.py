"""SGLang's UnifiedRadixCache with a host tier (HiCache), as the bench measures it on a CPU.

Its copies move no bytes, as those of the optimized cache in this bench: the object that would
enqueue them on streams of a GPU says at once that they have ended. All else is SGLang's own: host
slots and their order, the queues of its controller, what it locks, and its acknowledgements, which
`check_hicache_events` takes in the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from attrs import evolve

from kvcanon.conformance.engines.sglang.factory import make_world
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import StepTimes

BACKEND = "kernel"
"""Its usual way to copy, whose indices stay on the GPU; others also sort them on the CPU."""


class InstantTransfers:
    """In place of SGLang's `L2TransferEngine`: transfers have ended when they are submitted."""

    def __init__(self) -> None:
        module = import_module("sglang.srt.mem_cache.l2_transfer")
        start, finish, timed = module.make_timing_event_pair()
        self._ended = module.TransferCompletion(start, finish, timed)

    def submit_device_to_host(self, transfers: list[Any]) -> Any:  # noqa: ANN401, ARG002
        """Accept backups."""
        return self._ended

    def submit_host_to_device(
        self,
        transfers: list[Any],  # noqa: ARG002
        *,
        transfer_layer_id_max: int,
        start_event: object = None,  # noqa: ARG002
        on_layer_done: Callable[[int], None] | None = None,
    ) -> Any:  # noqa: ANN401
        """Accept loads, and say of each layer that it is there."""
        if on_layer_done is not None:
            for layer in range(transfer_layer_id_max):
                on_layer_done(layer)
        return self._ended


def make_hosted(cell: BenchCell, core: str) -> tuple[Any, Any]:
    """Make a cache with a host tier, and its allocator. Raises: UsageError, BadArgument."""
    # A byte for the keys of a token, and one for its values.
    config = evolve(cell.config(), slot_bytes=2 * cell.page_size)
    world = make_world(config, "UnifiedRadixCache", {"tree_core_backend": core})
    controller: Any = world.cache.cache_controller
    controller.io_backend = BACKEND
    controller.l2_transfer_engine = InstantTransfers()
    return world.cache, world.allocator


def load_back(cache: Any, found: Any, taken: StepTimes) -> Any:  # noqa: ANN401 # SGLang's.
    """Load what a match found on the host only; returns the node up to which slots are there.

    A request is only asked for the fields that it has here.
    """
    request = SimpleNamespace(
        rid="",
        last_node=found.last_device_node,
        swa_host_hit_length=found.swa_host_hit_length,
        mamba_host_hit_length=found.mamba_host_hit_length,
        kv=SimpleNamespace(mamba_pool_idx=None, holds_mamba=False),
    )
    base = import_module("sglang.srt.mem_cache.base_prefix_cache")
    params = base.InitLoadBackParams(
        best_match_node=found.best_match_node, host_hit_length=found.host_hit_length, req=request
    )
    began = perf_counter_ns()
    _, node = cache.init_load_back(params)
    cache.ready_to_load_host_cache()
    taken.load.append(perf_counter_ns() - began)
    return node
