"""What SGLang's own test kit asks of a tree core beyond its interface, for kvcanon's.

The native core has no state that contradicts itself. So a method that would make one (a value
without its bookkeeping, a lock count out of nothing) skips the test, with the reason.
"""

from __future__ import annotations

from typing import Any, NoReturn
from unittest import SkipTest

import numpy as np
import torch
from sglang.srt.mem_cache import base_prefix_cache as calls
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.components import EvictLayer
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import BaseEvictionResult
from sglang.test.kits.unified_radix_cache.unified_tree_core_inspection_interface import (
    UnifiedTreeCoreInspectionInterface,
)

from kvcanon.optimized.sglang.tree_core import KvcanonTreeCore
from kvcanon.spec.errors import BadArgument

FULL, SWA, MAMBA = ComponentType.FULL, ComponentType.SWA, ComponentType.MAMBA
GPU, CPU = 0, 1


class KvcanonInspector(KvcanonTreeCore, UnifiedTreeCoreInspectionInterface):  # type: ignore[misc]
    """The tree core with its nodes in view."""

    def __init__(self, params: Any, components: dict[ComponentType, object]) -> None:  # noqa: ANN401 # SGLang's.
        super().__init__(params, components)
        self.host_locks: dict[int, int] = {}
        """The node that each open lock on the host is for."""

    def inc_host_lock_ref(self, node_id: int) -> calls.IncLockRefResult:
        result = super().inc_host_lock_ref(node_id)
        self.host_locks[result.component_host_lock_uuids[FULL]] = node_id
        return result

    def dec_host_lock_ref(
        self, node_id: int, params: calls.DecLockRefParams
    ) -> calls.DecLockRefResult:
        result = super().dec_host_lock_ref(node_id, params)
        del self.host_locks[params.get_lock_uuid(FULL, lock_host=True)]
        return result

    def contains_node(self, node_id: int) -> bool:
        try:
            self.state.nodes.describe(node_id)
        except BadArgument:
            return False
        return True

    def get_parent_node_id(self, node_id: int) -> int | None:
        return self.state.nodes.parent(node_id)

    def get_child_node_ids(self, node_id: int) -> list[int]:
        return self.state.nodes.children(node_id)

    def get_node_key_length(self, node_id: int) -> int:
        first, last, _, _ = self.state.nodes.describe(node_id)
        return (last - first) * self.page_size

    def get_node_token_ids(self, node_id: int) -> list[int]:
        words = np.frombuffer(self._seen(node_id)[4], dtype=np.uint32)
        if not self.is_eagle:
            plain: list[int] = words.tolist()
            return plain
        # Of overlapping pairs: the first of each, and the second of the last.
        return [*words[::2].tolist(), *words[-1:].tolist()]

    def is_node_key_bigram(self, node_id: int) -> bool:
        return self.is_eagle

    def get_component_host_value(
        self, node_id: int, component_type: ComponentType
    ) -> torch.Tensor | None:
        return self.slots_at(node_id, component_type, 1)

    def get_component_device_lock_ref(self, node_id: int, component_type: ComponentType) -> int:
        if component_type not in self.components:
            return 0
        if self.is_root(node_id):
            return 1
        count: int = self._data(node_id, component_type)[2]
        return count

    def get_component_host_lock_ref(self, node_id: int, component_type: ComponentType) -> int:
        # A lock of the device protects host copies, too; this counts those of the host alone.
        return sum(locked == node_id for locked in self.host_locks.values())

    def get_node_hit_count(self, node_id: int) -> int:
        hits: int = self._seen(node_id)[7]
        return hits

    def get_write_through_pending_id(self, node_id: int) -> int | None:
        return next(iter(self.state.copies.pending.get(node_id, ())), None)

    def is_external_cache_stored(self, node_id: int) -> bool:
        return False

    def is_node_in_device_lru(self, node_id: int, component_type: ComponentType) -> bool:
        return component_type is not FULL and self.state.nodes.has(node_id, component_type)

    def is_node_in_host_lru(self, node_id: int, component_type: ComponentType) -> bool:
        return component_type is not FULL and self.component_has_host_value_only(
            node_id, component_type
        )

    def get_component_device_lru_node_ids(self, component_type: ComponentType) -> list[int]:
        used = [
            (self._data(node, component_type)[5], -self.state.nodes.describe(node)[0], node)
            for node in self.state.nodes.all()
            if component_type is not FULL and self.state.nodes.has(node, component_type)
        ]
        return [node for _, _, node in sorted(used, reverse=True)]

    def is_device_evictable_leaf(self, node_id: int) -> bool:
        return self.contains_node(node_id) and self.is_device_leaf(node_id)

    def is_host_evictable_leaf(self, node_id: int) -> bool:
        if not self.contains_node(node_id) or self.is_root(node_id):
            return False
        nodes = self.state.nodes
        return (
            self.component_has_host_value_only(node_id, FULL)
            and not nodes.children(node_id)
            and not self._is_locked(node_id)
        )

    def is_device_leaf(self, node_id: int) -> bool:
        nodes = self.state.nodes
        return (
            not self.is_root(node_id)
            and nodes.has(node_id, FULL)
            and not self._is_locked(node_id)
            and not any(nodes.has(child, FULL) for child in nodes.children(node_id))
        )

    def get_all_node_ids(self) -> list[int]:
        return self.state.nodes.all()

    def set_component_host_value_raw(
        self, node_id: int, component_type: ComponentType, value: torch.Tensor | None
    ) -> None:
        if value is None or component_type not in self.state.slots.host_tables:
            self._refuse("a host value that is taken away, or has no host tier")
        placed, _ = self.state.nodes.add_host_copy([node_id], [component_type])
        rows = placed[component_type]
        if rows is not None:
            self.state.slots.host_tables[component_type].put(rows, value)

    def evict_component(
        self, node_id: int, component_type: ComponentType, target: EvictLayer
    ) -> BaseEvictionResult:
        if target is not EvictLayer.DEVICE or component_type is FULL:
            self._refuse("full data or host data that leaves alone")
        if self.is_device_leaf(node_id):
            self._refuse("a leaf that loses one component")
        step = self.state.engine_nodes.evict_node(node_id, component_type)
        return BaseEvictionResult(step.device, step.host, step.tokens)

    def build_backup_node_ids(self, node_id: int, write_back: bool = False) -> list[int]:
        if write_back:
            return [node_id]
        node_ids: list[int] = self.build_backup_kv_action(node_id).node_ids
        return node_ids

    def update_duplicate_tracking(self, node_id: int) -> None:
        """Do nothing: the native queues are exact."""

    def set_node_hash_values(self, *_given: object) -> NoReturn:
        self._refuse("hashes that are set")

    def set_component_device_value_raw(self, *_given: object) -> NoReturn:
        self._refuse("a value without its bookkeeping")

    def set_component_device_lock_ref(self, *_given: object) -> NoReturn:
        self._refuse("a lock count without a lock")

    def remove_node_from_device_lru(self, *_given: object) -> NoReturn:
        self._refuse("a value that is in no order")

    def insert_node_into_host_lru(self, *_given: object) -> NoReturn:
        self._refuse("an order without a value")

    def set_component_evictable_size(self, *_given: object) -> NoReturn:
        self._refuse("a size without slots")

    def set_component_protected_size(self, *_given: object) -> NoReturn:
        self._refuse("a size without slots")

    def advance_insert_walk_once(self) -> NoReturn:
        self._refuse("an insert that is suspended")

    def validate_cascade_evict(self, *_given: object) -> NoReturn:
        self._refuse("a cascade that is only validated")

    def cleanup_tombstone_ancestors(self, *_given: object) -> NoReturn:
        self._refuse("ancestors without data")

    def finalize_component_match_result(self, *_given: object) -> NoReturn:
        self._refuse("a match result of one component")

    def _refuse(self, what: str) -> NoReturn:
        raise SkipTest(f"the native core has no {what}")

    def _seen(self, node_id: int) -> tuple:  # type: ignore[type-arg]
        return dict(zip(self.state.nodes.all(), self.native.view.nodes(), strict=True))[node_id]

    def _data(self, node_id: int, component_type: ComponentType) -> tuple:  # type: ignore[type-arg]
        kinds = [kind for kind in (FULL, SWA, MAMBA) if kind in self.components]
        data: tuple = self._seen(node_id)[6][kinds.index(component_type)]  # type: ignore[type-arg]
        return data

    def _is_locked(self, node_id: int) -> bool:
        return any(self.get_component_device_lock_ref(node_id, kind) for kind in self.components)
