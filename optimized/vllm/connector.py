"""`KvcanonConnector`: both halves of the tier as a KV connector of vLLM.

vLLM makes one object in its scheduler and one in each worker. docs/vllm.md says how to select it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvcanon.optimized.vllm.block_copies import CopyEngine, ThreadCopies
from kvcanon.optimized.vllm.disk_copies import DiskMover, HostPages
from kvcanon.optimized.vllm.regions import group_regions, layout_facts, page_bytes
from kvcanon.optimized.vllm.scheduler_half import SchedulerHalf
from kvcanon.optimized.vllm.start_checks import (
    check_engine,
    check_interface,
    engine_groups,
    installed_release,
)
from kvcanon.optimized.vllm.step_copies import EndedStores, StepCopies
from kvcanon.optimized.vllm.stream_copies import StreamCopies
from kvcanon.optimized.vllm.tier_config import host_rows, read_config
from kvcanon.optimized.vllm.tier_events import PagesStored, TierEvent
from kvcanon.optimized.vllm.tier_shape import TierShape
from kvcanon.optimized.vllm.tier_stats import TierMetrics, TierStats
from kvcanon.optimized.vllm.worker_half import WorkerHalf

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request


class StepMetadata(KVConnectorMetadata):  # type: ignore[misc]  # vLLM has no types here.
    """The copies of a step, for the workers."""

    def __init__(self, copies: StepCopies) -> None:
        self.copies = copies


class StoresMetadata(KVConnectorWorkerMetadata):  # type: ignore[misc]  # As above.
    """The stores that workers have ended."""

    def __init__(self, ended: EndedStores) -> None:
        self.ended = ended

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """The stores of both."""
        return StoresMetadata(self.ended.aggregate(other.ended))


class SettledOutput:
    """A report of the workers, as the scheduler's half reads it."""

    def __init__(self, output: KVConnectorOutput) -> None:
        meta = output.kv_connector_worker_meta
        self.finished_recving = output.finished_recving
        self.failed_recving = output.failed_recving
        self.kv_connector_worker_meta = meta.ended if isinstance(meta, StoresMetadata) else None


class KvcanonConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # As above.
    """kvcanon's host tier."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        """Make one half.

        Raises:
            ValueError: vLLM has another interface, or does something that this does not serve.
        """
        check_interface(KVConnectorBase_V1)
        super().__init__(vllm_config, role, kv_cache_config)
        check_engine(vllm_config)
        config = read_config(vllm_config.kv_transfer_config.kv_connector_extra_config or {})
        ranks = vllm_config.parallel_config.tensor_parallel_size
        self._groups = engine_groups(vllm_config, kv_cache_config)
        self._rows = host_rows(config, self._groups, ranks)
        self._config = config
        self._reported: dict[str, int] = {}
        self._host: HostPages | None = None
        """The rows of a rank, and how their pages lie, once they are there."""
        self._layout: Mapping[str, str] = {}
        self._scheduler: SchedulerHalf | None = None
        self._worker: WorkerHalf | None = None
        if role is KVConnectorRole.WORKER:
            rank = get_tensor_model_parallel_rank() if ranks > 1 else 0
            self._worker = WorkerHalf(self._make_copies, self._make_disk, rank)
            return
        events, size = vllm_config.kv_events_config, vllm_config.cache_config.block_size
        step = -(-vllm_config.scheduler_config.max_num_batched_tokens // size)
        self._scheduler = SchedulerHalf(
            TierShape(
                self._rows,
                size,
                tuple(group.pages for group in self._groups),
                ranks,
                step * len(self._groups),
                config.policy,
                events=events is not None and events.enable_kv_cache_events,
                disk=bool(config.disk_folder),
            )
        )

    @property
    def requires_kv_delivery(self) -> bool:
        """False: what is not stored is computed again."""
        return False

    # The scheduler's half.

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        """Take the engine's block pool."""
        super().bind_kv_cache_manager(kv_cache_manager)
        self._deciding().bind_gpu_block_pool(kv_cache_manager.block_pool)

    def on_new_request(self, request: Request) -> None:
        """Take note of a request."""
        self._deciding().on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Answer how many tokens after the local hit can be loaded."""
        return self._deciding().get_num_new_matched_tokens(request, num_computed_tokens)

    def get_external_cache_hit_sources(
        self, request: Request, num_external_tokens: int
    ) -> dict[CacheHitSource, int]:
        """How many tokens of a load come from the host, and from the disk."""
        on_disk = min(self._deciding().tokens_from_disk(request), num_external_tokens)
        sources = {
            CacheHitSource.HOST: num_external_tokens - on_disk,
            CacheHitSource.DISK: on_disk,
        }
        return {source: tokens for source, tokens in sources.items() if tokens}

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        """Begin the load that was answered."""
        self._deciding().update_state_after_alloc(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        """Decide the copies that begin with a step."""
        return StepMetadata(self._deciding().build_connector_meta(scheduler_output))

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """Take what all ranks have ended."""
        self._deciding().update_connector_output(SettledOutput(connector_output))

    def request_finished(
        self, request: Request, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Take note of what a request has computed, and forget it."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Take note of what a request has computed, and forget it."""
        return self._deciding().request_finished_all_groups(request, block_ids)

    def has_pending_push_work(self) -> bool:
        """Whether copies to the host are in flight."""
        return self._scheduler is not None and self._scheduler.has_pending_push_work()

    def take_events(self) -> Iterable[BlockStored | BlockRemoved]:
        """What came to the host and left it since the last call."""
        return [event_of_vllm(each) for each in self._deciding().take_events()]

    def reset_cache(self) -> bool | None:
        """Forget everything. Returns: False if a load is in flight."""
        return self._deciding().reset_cache()

    # The worker's half.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Take the device's caches, and allocate the host memory."""
        self._copying().register_kv_caches(kv_caches)

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        """Begin the stores of a step, and wait for what it overwrites."""
        self._copying().handle_preemptions(_copies(kv_connector_metadata))

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Take a step."""
        super().bind_connector_metadata(connector_metadata)
        self._copying().bind_connector_metadata(_copies(connector_metadata))

    def clear_connector_metadata(self) -> None:
        """Forget the step."""
        super().clear_connector_metadata()
        self._copying().clear_connector_metadata()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Begin the loads of a step."""
        del kwargs
        self._copying().start_load_kv(forward_context)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: loads end between steps."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Nothing: stores read what earlier steps have computed."""

    def wait_for_save(self) -> None:
        """Nothing: stores go on after the step."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """The loads that ended."""
        results = self.get_transfer_results(finished_req_ids)
        return results.finished_sending or None, results.finished_recving or None

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """The loads that ended, and those of them that failed."""
        results = self._copying().get_transfer_results(finished_req_ids)
        return KVConnectorTransferResults(
            finished_sending=results.finished_sending,
            finished_recving=results.finished_recving,
            failed_recving=results.failed_recving,
        )

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        """The stores that ended."""
        ended = self._copying().build_connector_worker_meta()
        return None if ended is None else StoresMetadata(ended)

    def shutdown(self) -> None:
        """End all copies."""
        if self._worker is not None:
            self._worker.shutdown()

    # Both halves.

    def get_kv_connector_stats(self) -> TierStats | None:
        """What was counted since the last call; the workers count nothing."""
        half = self._scheduler
        if half is None:
            return None
        now = half.totals()
        new = {name: count - self._reported.get(name, 0) for name, count in now.items()}
        if not any(new.values()):
            return None
        self._reported = now
        return TierStats({**{name: count for name, count in new.items() if count}, **half.gauges()})

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> TierStats:
        """Stats that came from another process."""
        return TierStats(data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> TierMetrics:
        """The metrics of the tier."""
        return TierMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def _make_copies(self, kv_caches: Mapping[str, torch.Tensor]) -> CopyEngine:
        blocks = self._kv_cache_config.num_blocks
        regions = group_regions(kv_caches, [group.layers for group in self._groups], blocks)
        sizes = [page_bytes(each) for each in regions]
        device = next(iter(kv_caches.values())).device
        copies: ThreadCopies | StreamCopies
        if device.type == "cpu":
            slab = torch.zeros((self._rows, max(sizes)), dtype=torch.uint8)
            copies = ThreadCopies(regions, slab)
        else:
            copies = StreamCopies.on_device(device, regions, self._rows, max(sizes))
        if self._config.disk_folder:
            self._host = HostPages(copies.slab.numpy(), sizes)
            self._layout = layout_facts(kv_caches, regions)
        return copies

    def _make_disk(self) -> DiskMover | None:
        """Open the disk of a rank. Raises: DiskUnusable."""
        config, ranks = self._config, self._vllm_config.parallel_config.tensor_parallel_size
        if self._host is None:
            return None
        # It needs xxhash, which a tier without a disk does not.
        from kvcanon.optimized.vllm.rank_disk import open_disk, vllm_identity  # noqa: PLC0415

        identity = vllm_identity(
            self._vllm_config,
            installed_release(),
            config.disk_weights,
            self._layout,
            self._copying().rank,
        )
        return open_disk(
            Path(config.disk_folder).expanduser(), config.disk_bytes(ranks), identity, self._host
        )

    def _deciding(self) -> SchedulerHalf:
        if self._scheduler is None:
            raise RuntimeError("a worker's half of KvcanonConnector was asked to decide")
        return self._scheduler

    def _copying(self) -> WorkerHalf:
        if self._worker is None:
            raise RuntimeError("the scheduler's half of KvcanonConnector was asked to copy")
        return self._worker


def event_of_vllm(event: TierEvent) -> BlockStored | BlockRemoved:
    """An event in vLLM's class, with hashes as vLLM's own events have them."""
    hashes = [maybe_convert_block_hash(each) for each in event.block_hashes]
    if not isinstance(event, PagesStored):
        return BlockRemoved(block_hashes=hashes, medium=event.medium, group_idx=event.group_idx)
    parent = event.parent_block_hash
    # vLLM's hashes have the adapter in each block, and the salt in the first of a prompt.
    extra = [event.lora_name, event.salt if parent is None else None]
    keys = tuple(each for each in extra if each)
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None if parent is None else maybe_convert_block_hash(parent),
        token_ids=list(event.token_ids),
        block_size=event.block_size,
        lora_id=event.lora_id,
        medium=event.medium,
        lora_name=event.lora_name,
        extra_keys=[keys or None],
        group_idx=event.group_idx,
        locality="LOCAL",
    )


def _copies(metadata: KVConnectorMetadata) -> StepCopies:
    if not isinstance(metadata, StepMetadata):
        raise TypeError(f"KvcanonConnector was given metadata of {type(metadata).__name__}")
    return metadata.copies
