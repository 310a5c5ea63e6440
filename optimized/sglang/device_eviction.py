"""Eviction from the device: one victim a step, chosen by the native tree.

SGLang asks with a quota and stops after the first victim that suffices. Under write_back it copies
a victim between two steps.
"""

from __future__ import annotations

from sglang.srt.mem_cache.unified_cache.cache_action import BackupKV
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    BaseEvictionResult,
    DemoteResult,
    DriveHostEvictionResult,
    DropSubtreeNoHostResult,
    EvictDeviceLeafResult,
    EvictDeviceNextNodeResult,
)

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.core_state import FULL, MAMBA, SWA, CoreState
from kvcanon.spec.errors import BadArgument

KINDS = (FULL, SWA, MAMBA)
DIGEST_FACTOR, DIGEST_MASK = 1_000_003, (1 << 42) - 1
"""How SGLang folds what a rank reclaimed on its host into one number."""


class DeviceEviction(CoreState):
    """The part of the core that evicts from the device and from the host."""

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        """Begin a walk with a quota of tokens or states."""
        self._quota = {component_type: request_cnt}

    def evict_device_end(self, component_type: ComponentType) -> None:
        """End a walk."""
        self._quota = {component_type: 0}
        self._copying = {}

    def evict_device_next_node(
        self, component_type: ComponentType, tracker: dict[ComponentType, int]
    ) -> EvictDeviceNextNodeResult:
        """Evict one victim, or name it where it must be copied first."""
        result = EvictDeviceNextNodeResult()
        if component_type not in self.tables:
            return result
        if tracker.get(component_type, 0) >= self._quota.get(component_type, 0):
            return result
        nodes = self.native.nodes
        step = nodes.evict_step(int(component_type))
        if not step.node:
            return result
        result.made_progress = True
        if step.copy_first and self._name_copy(result, step, component_type):
            return result
        if step.copy_first:
            step = nodes.evict_node(step.node, int(component_type))
        self._fill(result, step)
        result.unbacked_tokens = step.lost * self.page_size
        return result

    def finish_swa_state_eviction(self, node_id: int) -> EvictDeviceNextNodeResult:
        """Evict a node's window data, after the attempt to copy it."""
        return self._finish(node_id, SWA)

    def finish_mamba_state_eviction(self, node_id: int) -> EvictDeviceNextNodeResult:
        """Evict a node's state, after the attempt to copy it."""
        return self._finish(node_id, MAMBA)

    def evict_device_leaf(self, node_id: int, is_write_back: bool) -> EvictDeviceLeafResult:
        """Ask for the copy of a leaf, or evict it where it has one."""
        result = EvictDeviceLeafResult()
        nodes = self.native.nodes
        if is_write_back and not nodes.has(node_id, int(FULL), 1):
            result.backup_kv = BackupKV([node_id])
            return result
        step = nodes.evict_node(node_id, int(FULL))
        self._fill(result, step)
        result.unbacked_tokens = step.lost * self.page_size
        return result

    def demote(self, node_id: int) -> DemoteResult:
        """Drop the device data of a node that the host has."""
        result = DemoteResult()
        self._fill(result, self.native.nodes.evict_node(node_id, int(FULL)))
        return result

    def drop_subtree_no_host(self, node_id: int) -> DropSubtreeNoHostResult:
        """Drop a leaf that could not be copied; declined where it is locked."""
        result = DropSubtreeNoHostResult(is_dropped=False)
        try:
            step = self.native.nodes.evict_node(node_id, int(FULL))
        except BadArgument:
            return result
        self._fill(result, step)
        result.is_dropped = True
        return result

    def drive_host_eviction(
        self, component_type: ComponentType, num_tokens: int
    ) -> DriveHostEvictionResult:
        """Free host slots of a component."""
        result = DriveHostEvictionResult()
        table = self.host_tables.get(component_type)
        if table is not None and self._copying.get(component_type) == num_tokens:
            # The controller asks for the whole of a copy, also where a part of it has room.
            num_tokens -= self.host_pools[component_type].available_size()  # type: ignore[attr-defined]
        if table is None or num_tokens <= 0:
            return result
        slots = -(-num_tokens // table.page_size)
        device, host = self.native.nodes.evict_host(int(component_type), slots)
        self._add_device(result, device)
        for kind, tokens in self._add_host(result, host).items():
            result.tracker[kind] += tokens
        if self.is_write_back and host[0] is not None:
            for row in (int(host[0][0]), len(host[0])):
                self._fold(row)
        return result

    def evict_excess_path_states(
        self,
        tail_node_id: int,
        device_frees: dict[ComponentType, list[object]],
        host_frees: dict[ComponentType, list[object]],
        cache_actions: list[object],
    ) -> None:
        """Evict the states nearest to the root, beyond the most that a path may have."""
        del host_frees, cache_actions
        cap = self._states_per_path()
        if cap < 0:
            return
        nodes, kind = self.native.nodes, int(MAMBA)
        path: list[int] = []
        node: int | None = tail_node_id
        while node is not None:
            if nodes.has(node, kind):
                path.append(node)
            node = nodes.parent(node)
        excess = len(path) - cap
        for holder in reversed(path):
            below = nodes.children(holder)
            if excess <= 0 or holder == tail_node_id:
                return
            if len(below) != 1 or not nodes.has(below[0], int(FULL)):
                continue
            try:
                step = nodes.evict_node(holder, kind)
            except BadArgument:
                continue  # It is locked.
            freed = step.device[MAMBA]
            if freed is not None:
                device_frees[MAMBA].append(self.tables[MAMBA].get(freed))
                excess -= 1

    # Helpers.

    def _name_copy(
        self, result: EvictDeviceNextNodeResult, step: _core.EvictStep, kind: ComponentType
    ) -> bool:
        """Name a victim for the controller to copy; whether it can copy it.

        A leaf is copied as a whole if its full data has no copy. What else a node lacks is copied
        where the walk is of that component.
        """
        full, swa, states = step.lacks
        if step.whole and full:
            result.node_id = step.node
        elif kind is SWA and swa and self.has_swa_host_pool:
            result.swa_backup_node_id = step.node
            result.swa_backup_num_tokens = self._copying[SWA] = swa * self.page_size
        elif kind is MAMBA and states and MAMBA in self.host_tables:
            result.mamba_backup_node_id = step.node
        else:
            return False
        return True

    def _finish(self, node_id: int, kind: ComponentType) -> EvictDeviceNextNodeResult:
        result = EvictDeviceNextNodeResult(made_progress=True)
        nodes = self.native.nodes
        try:
            if nodes.has(node_id, int(kind)):
                self._fill(result, nodes.evict_node(node_id, int(kind)))
        except BadArgument:
            return result  # It is gone, or locked by now.
        return result

    def _fill(self, result: BaseEvictionResult, step: _core.EvictStep) -> None:
        """Add what a step freed, as SGLang's token slots."""
        for kind, tokens in self._add_device(result, step.device).items():
            result.tracker[kind] += tokens
        self._add_host(result, step.host)

    def _add_device(
        self, result: BaseEvictionResult, freed: _core.FreedSlots
    ) -> dict[ComponentType, int]:
        counts = {}
        for kind, rows in zip(KINDS, freed, strict=True):
            if rows is None:
                continue
            # SGLang frees window slots by the full slots of their pages.
            tokens = self.tables[FULL if kind is SWA else kind].get(rows)
            result.device_frees[kind].append(tokens)
            counts[kind] = len(tokens)
        return counts

    def _add_host(
        self, result: BaseEvictionResult, freed: _core.FreedSlots
    ) -> dict[ComponentType, int]:
        counts = {}
        for kind, rows in zip(KINDS, freed, strict=True):
            if rows is None:
                continue
            tokens = self.host_tables[kind].get(rows)
            result.host_frees[kind].append(tokens)
            counts[kind] = len(tokens)
        return counts

    def _fold(self, number: int) -> None:
        digest: int = self.write_back_duplicate_reclaim_digest
        self.write_back_duplicate_reclaim_digest = (
            digest * DIGEST_FACTOR + number + 1
        ) & DIGEST_MASK
