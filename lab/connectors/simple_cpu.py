"""vLLM's own host tier: the scheduler's half of `SimpleCPUOffloadConnector`.

It runs where vLLM is installed, on a CPU as well: the scheduler's half touches no tensor. Copies
end with the step after the one that begins them, since vLLM's worker begins them behind the
forward.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from kvcanon.lab.connectors.block_tables import BlockTables
from kvcanon.lab.connectors.connector_calls import ConnectorReport
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.serial_engine import InstantConnector

LONGEST_TOKENS = 1 << 22
BLOCK_BYTES = 1_024
"""Of a block on the device; any number does, as only ratios count."""
NO_JOB = -1


class SimpleCPUHalf:
    """The manager behind the connector, with the connector's names."""

    def __init__(self, shape: EngineShape, host_blocks: int, *, lazy: bool) -> None:
        module = import_module("vllm.v1.simple_kv_offload.manager")
        self._metadata = import_module("vllm.v1.simple_kv_offload.metadata")
        self._begun: tuple[set[str], dict[int, int]] = set(), {}
        self.manager: Any = module.SimpleCPUOffloadScheduler(
            _settings(shape),
            _cache_settings(shape),
            host_blocks * BLOCK_BYTES,
            shape.block_tokens,
            shape.block_tokens,
            lazy_offload=lazy,
        )
        for name in (
            "get_num_new_matched_tokens",
            "update_state_after_alloc",
            "build_connector_meta",
            "update_connector_output",
            "request_finished_all_groups",
            "take_events",
        ):
            setattr(self, name, getattr(self.manager, name))
        self.reset_cache = self.manager.reset
        self.has_pending_push_work = self.manager.has_pending_stores

    def bind_kv_cache_manager(self, manager: BlockTables) -> None:
        """Take the engine's block pool."""
        self.manager.bind_gpu_block_pool(manager.block_pool)

    def on_new_request(self, request: object) -> None:
        """Nothing is kept of requests."""

    def ended(self, metadata: Any) -> ConnectorReport:  # noqa: ANN401  # vLLM's.
        """What ends with a step: the copies that the step before began."""
        loads, stores = self._begun
        self._begun = (
            set(metadata.load_event_to_reqs.get(metadata.load_event, ())),
            {metadata.store_event: 1} if metadata.store_event != NO_JOB else {},
        )
        meta = self._metadata.SimpleCPUOffloadWorkerMetadata(completed_store_events=stores)
        return ConnectorReport(finished_recving=loads or None, kv_connector_worker_meta=meta)


def simple_cpu(shape: EngineShape, host_blocks: int, *, lazy: bool) -> InstantConnector:
    """Make vLLM's tier. Raises: ImportError: vLLM is not installed."""
    half: Any = SimpleCPUHalf(shape, host_blocks, lazy=lazy)
    return InstantConnector(half, half.ended)


def _settings(shape: EngineShape) -> SimpleNamespace:
    """What the manager reads of vLLM's configuration."""
    return SimpleNamespace(
        kv_events_config=None,
        speculative_config=None,
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, world_size=1),
        model_config=SimpleNamespace(max_model_len=LONGEST_TOKENS),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=shape.step_tokens),
        max_in_flight_tokens=shape.step_tokens,
        num_prefill_lookahead_tokens=0,
    )


def _cache_settings(shape: EngineShape) -> Any:  # noqa: ANN401  # vLLM's.
    """One group of full attention, with as many blocks as the engine's pool."""
    interface = import_module("vllm.v1.kv_cache_interface")
    spec = interface.FullAttentionSpec(
        block_size=shape.block_tokens,
        num_kv_heads=1,
        head_size=1,
        dtype=import_module("torch").uint8,
    )
    blocks = shape.blocks + 1
    tensor = interface.KVCacheTensor(
        size=blocks * BLOCK_BYTES, layers=["full"], layer_stride=0, block_stride=BLOCK_BYTES
    )
    return interface.KVCacheConfig(
        num_blocks=blocks,
        kv_cache_tensors=[tensor],
        kv_cache_groups=[interface.KVCacheGroupSpec(["full"], spec)],
    )
