"""SGLang's calls for storage below the host: hashes, holds on the host, writes and fetches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.mem_cache import base_prefix_cache as calls
from sglang.srt.mem_cache.hicache_storage import PoolTransfer, PoolTransferResult
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.components import CacheTransferPhase
from sglang.srt.mem_cache.unified_cache.unified_tree_core import StorageBackupSpec

from kvcanon.optimized.sglang import storage
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.host_tier import Transfers
from kvcanon.optimized.sglang.pool_slots import FULL, MAMBA, SWA
from kvcanon.optimized.sglang.receipts import refuse_anchor, release
from kvcanon.optimized.sglang.refused_calls import NotOffered


class StorageCalls(NotOffered):
    """The part of the core that serves storage, for SGLang's controller and any backend of its."""

    state: CoreState
    components: dict[ComponentType, Any]
    page_size: int
    enable_storage: bool = False
    """Whether storage is attached; SGLang's controller sets it, and goes by it."""

    # Hashes.

    def get_hash_values(self, node_id: int) -> list[str]:
        """The hashes by which storage names a node's pages."""
        return self.state.nodes.storage_hashes(node_id)

    def get_last_hash_value(self, node_id: int) -> str | None:
        """The hash of a node's last page; None for the root."""
        return self.state.nodes.last_storage_hash(node_id)

    def get_prefix_hash_values(self, node_id: int) -> list[str]:
        """The hashes of the pages above a node."""
        return storage.hashes_above(self.state.nodes, node_id)

    def backfill_missing_hash_values(self) -> int:
        """How many nodes had to be hashed: none, since hashes are made where they are asked for."""
        return 0

    # Holds on the host.

    def inc_host_lock_ref(self, node_id: int) -> calls.IncLockRefResult:
        """Keep what the host has of a node and its window: it is loaded, written, or continued."""
        result = calls.IncLockRefResult(node_id=node_id)
        result.set_lock_uuid(FULL, self.state.nodes.hold_host(node_id), lock_host=True)
        return result

    def dec_host_lock_ref(
        self, node_id: int, params: calls.DecLockRefParams
    ) -> calls.DecLockRefResult:
        """End what a receipt keeps. Raises: AssertionError, for a receipt of another node."""
        if params.node_id != node_id:
            refuse_anchor(node_id, params)
        receipt = params.get_lock_uuid(FULL, lock_host=True)
        release(self.state.nodes.release_host, node_id, receipt)
        return calls.DecLockRefResult()

    # Writes.

    def build_storage_backup_spec(
        self, node_id: int, pass_prefix_keys: bool
    ) -> StorageBackupSpec | None:
        """What storage is given of a node; None where the host does not have it."""
        return storage.backup_spec(self.state, node_id, with_prefix=pass_prefix_keys)

    # Fetches.

    def prefetch_anchor_info(self, node_id: int) -> tuple[str | None, str | None]:
        """The namespace of a node that fetched pages are to follow."""
        return storage.scope_of(self.state, node_id)

    def insert_host(
        self, node_id: int, key: RadixKey, host_value: torch.Tensor, hash_value: list[str]
    ) -> calls.InsertResult:
        """Take fetched pages that follow a node; their hashes are made from their tokens."""
        del hash_value
        tokens, namespace = self.state.prompt(key)
        # Two neighbours are a bigram, which is what a page is of then.
        if len(tokens) - int(self.is_eagle) < self.page_size:
            return calls.InsertResult(prefix_len=0, mamba_exist=True)
        return storage.insert_fetched(self.state, node_id, tokens, namespace, host_value)

    def build_hicache_transfers(
        self,
        component_type: ComponentType,
        node_id: int,
        phase: CacheTransferPhase,
        *,
        host_indices: torch.Tensor | None = None,
        token_ids: Sequence[int] | None = None,
        prefetch_tokens: int = 0,
        staging_tokens: int = 0,
        last_hash: str | None = None,
    ) -> list[PoolTransfer] | None:
        """What is fetched of a component besides full data. Raises: ValueError in other phases."""
        del node_id, host_indices, token_ids, prefetch_tokens, last_hash
        _require_prefetch(phase)
        pages = staging_tokens // self.page_size
        if component_type is MAMBA:
            pages = min(staging_tokens, 1)
        if component_type not in self.state.slots.host_tables:
            return None
        return storage.transfers_to_fetch(component_type, pages)

    def commit_hicache_transfers(
        self,
        node_id: int,
        phase: CacheTransferPhase,
        comp_xfers: Transfers,
        *,
        cache_actions: list[object],
        insert_result: calls.InsertResult | None = None,
        pool_storage_result: PoolTransferResult | None = None,
    ) -> None:
        """Take what was fetched besides full data. Raises: ValueError in other phases."""
        _require_prefetch(phase)
        fetched = storage.Fetched(node_id, insert_result, pool_storage_result)
        for kind, transfers in comp_xfers.items():
            if not transfers:
                continue
            slots = transfers[0].host_indices
            if kind is SWA:
                whole = self.components[SWA].full_window_pages
                cache_actions += storage.commit_window(self.state, fetched, slots, whole)
            elif kind is MAMBA:
                cache_actions += storage.commit_state(self.state, fetched, slots)


def _require_prefetch(phase: CacheTransferPhase) -> None:
    """Refuse a phase for which SGLang's controller has other calls. Raises: ValueError."""
    if phase is not CacheTransferPhase.PREFETCH:
        raise ValueError(f"transfers of {phase} are planned and committed by calls of their own")
