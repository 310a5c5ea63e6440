"""Eviction from the device: one victim a step, chosen by the native tree.

SGLang asks with a quota and stops after the first victim that suffices. Under write_back it copies
a victim between two steps.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
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
from kvcanon.optimized.sglang.core_state import FULL, KINDS, MAMBA, SWA, CoreState
from kvcanon.spec.errors import BadArgument

DIGEST_FACTOR, DIGEST_MASK = 1_000_003, (1 << 42) - 1
"""How SGLang folds what a rank reclaimed on its host into one number."""


SlotLists: TypeAlias = dict[ComponentType, list[torch.Tensor]]
"""Token slots, by component."""
Tokens: TypeAlias = dict[ComponentType, int]
"""How many, by component."""


class DeviceEviction(CoreState):
    """The part of the core that evicts from the device and from the host."""

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        """Begin a walk with a quota of tokens or states."""
        self._quota = {component_type: request_cnt}

    def evict_device_end(self, component_type: ComponentType) -> None:
        """End a walk."""
        self._quota = {component_type: 0}
        self._copying, self._without_room = {}, ()

    def evict_device_next_node(
        self, component_type: ComponentType, tracker: dict[ComponentType, int]
    ) -> EvictDeviceNextNodeResult:
        """Evict a victim, or as many as a quota needs; or name one that must be copied first."""
        short = self._quota.get(component_type, 0) - tracker.get(component_type, 0)
        if short <= 0 or component_type not in self.components:
            return EvictDeviceNextNodeResult()
        nodes = self._nodes or self.native.nodes
        # For full data SGLang stops where its allocator has room, which it asks after each victim.
        # For the others the quota is what it lacks: all victims leave at once.
        pages = 1 if component_type is FULL else -(-short // self._page_tokens(component_type))
        step = nodes.evict_step(component_type, pages)
        node, copy_first, _, lost, _, left, on_host = step
        if not node:
            return EvictDeviceNextNodeResult()
        if copy_first:
            result = EvictDeviceNextNodeResult(made_progress=True)
            if self._name_copy(result, step, component_type):
                return result
            self._copy_parts(node)
            _, _, _, lost, _, left, on_host = nodes.evict_node(node, component_type)
        device, tokens = self._left_device(left)
        host = self._left_host(on_host)[0] if self._hicache else {}
        # In the order of SGLang's fields: no action, no node to evict, and progress.
        return EvictDeviceNextNodeResult(
            device, host, tokens, [], None, True, lost * self.page_size
        )

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
        if not self._is_part_of_copy(component_type, num_tokens):
            if component_type in self.host_tables:
                self._make_room(result, {component_type: num_tokens}, {component_type: 0})
            return result
        # The controller makes room pool by pool, for the whole of a copy. Room for all of it is
        # made here. What the controller has taken from a pool since is room that was there.
        rooms = {kind: max(self._room(kind), had) for kind, had in self._rooms.items()}
        if self._joined:
            self._make_room_for_each(result, rooms)
        elif not self._is_declined() and not self._make_room(result, self._copying, rooms):
            self._without_room = self._copy if self.is_write_back else ()
        self._rooms = {kind: had + result.tracker[kind] for kind, had in self._rooms.items()}
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
            freed = self._left_device(step.device)[0].get(MAMBA)
            if freed is not None:
                device_frees[MAMBA] += freed
                excess -= 1

    # Helpers.

    def _make_room_for_each(
        self, result: DriveHostEvictionResult, rooms: dict[ComponentType, int]
    ) -> None:
        """Make room for a copy of several nodes: for one after the other, as for copies of each.

        A node that has room is locked meanwhile, as it is while it is copied.
        """
        nodes, receipts = self.native.nodes, []
        for node in self._joined:
            parts = zip(KINDS, nodes.slots_to_back_up((node,))[0], strict=True)
            tokens = {
                kind: len(rows) * self.host_tables[kind].page_size
                for kind, rows in parts
                if rows is not None and kind in rooms
            }
            if not self._make_room(result, tokens, rooms):
                break
            for kind, count in tokens.items():
                rooms[kind] -= count
            receipts.append((node, nodes.lock(node)[0]))
        for node, receipt in receipts:
            nodes.unlock(node, receipt)

    def _make_room(
        self,
        result: DriveHostEvictionResult,
        wanted: dict[ComponentType, int],
        rooms: dict[ComponentType, int],
    ) -> bool:
        """Evict from the host what its rooms lack for so many tokens; whether they suffice then.

        Stops at the first pool that stays short: no copy needs what others would lose.
        """
        for kind, tokens in wanted.items():
            table, short = self.host_tables[kind], tokens - rooms[kind]
            if short <= 0:
                continue
            pages = -(-short // table.page_size)
            device, host = self.native.nodes.evict_host(int(kind), pages)
            for freed, count in self._add_slots(result, device, host)[1].items():
                result.tracker[freed] += count
                if freed in rooms:
                    rooms[freed] += count
            if self.is_write_back and host[0] is not None:
                self._fold(host[0].runs()[0][0])
                self._fold(len(host[0]))
            if tokens > rooms[kind]:
                return False
        return True

    def _is_part_of_copy(self, kind: ComponentType, num_tokens: int) -> bool:
        """Whether the controller asks for room for the copy that it is about to make."""
        tokens = self._copying.get(kind)
        return tokens is not None and num_tokens in (tokens, tokens - self._room(kind))

    def _name_copy(
        self, result: EvictDeviceNextNodeResult, step: _core.EvictStep, kind: ComponentType
    ) -> bool:
        """Name a victim for the controller to copy; whether it can copy it.

        A leaf is copied as a whole if its full data has no copy. What else a node lacks is copied
        where the walk is of that component.
        """
        full, swa, states = step.lacks
        self._copy, self._without_room = (step.node,), ()
        self._expect_copy(
            {
                kind: slots * self.host_tables[kind].page_size
                for kind, slots in zip(KINDS, step.lacks, strict=True)
                if slots and kind in self.host_tables
            }
        )
        if step.whole and full:
            result.node_id = step.node
        elif kind is SWA and swa and self.has_swa_host_pool:
            result.swa_backup_node_id = step.node
            result.swa_backup_num_tokens = swa * self.page_size
        elif kind is MAMBA and states and MAMBA in self.host_tables:
            result.mamba_backup_node_id = step.node
        else:
            return False
        return True

    def _copy_parts(self, node_id: int) -> None:
        """Have what a victim lacks on the host besides full data copied, as far as there is room.

        The controller does so itself in a walk of that component; in a walk of full data it copies
        nothing of a leaf whose full data has a copy, and its windows and states would be lost.
        """
        if not self._copying:
            return
        cache = self.unified_cache
        for kind, tokens in list(self._copying.items()):
            if self._room(kind) < tokens:
                cache.evict_host(tokens, kind)
        cache.backup_node_for_write_back(node_id)
        self._end_copy(node_id)

    def _end_copy(self, node_id: int) -> None:
        """Wait for the copy of a victim, which the controller does only where full data is copied.

        Else slots would be freed, and written to, before they are read.
        """
        if node_id in self.pending:
            self.unified_cache.writing_check(write_back=True)

    def _finish(self, node_id: int, kind: ComponentType) -> EvictDeviceNextNodeResult:
        result = EvictDeviceNextNodeResult(made_progress=True)
        self._end_copy(node_id)
        nodes = self.native.nodes
        try:
            if nodes.has(node_id, int(kind)):
                self._fill(result, nodes.evict_node(node_id, int(kind)))
        except BadArgument:
            return result  # It is gone, or locked by now.
        return result

    def _fill(self, result: BaseEvictionResult, step: _core.EvictStep) -> None:
        """Add what a step freed, as SGLang's token slots."""
        for kind, tokens in self._add_slots(result, step.device, step.host)[0].items():
            result.tracker[kind] += tokens

    def _add_slots(
        self,
        result: BaseEvictionResult,
        device: _core.RowsByComponent,
        host: _core.RowsByComponent,
    ) -> tuple[Tokens, Tokens]:
        """Add the token slots that came free to a result; returns how many, by medium."""
        on_device, device_tokens = self._left_device(device)
        on_host, host_tokens = self._left_host(host)
        for kind, slots in on_device.items():
            result.device_frees[kind] += slots
        for kind, slots in on_host.items():
            result.host_frees[kind] += slots
        return device_tokens, host_tokens

    def _left_device(self, rows: _core.RowsByComponent) -> tuple[SlotLists, Tokens]:
        """The token slots of rows that came free on the device, and how many."""
        full, swa, states = rows
        size = self.page_size
        device: SlotLists = {}
        tokens: Tokens = {}
        # Window data first: SGLang finds its slots by the full slots of their pages.
        if swa is not None:
            device[SWA], tokens[SWA] = [self._full.get(swa)], len(swa) * size
        if states is not None:
            device[MAMBA], tokens[MAMBA] = [self.tables[MAMBA].get(states)], len(states)
        if full is not None:
            device[FULL], tokens[FULL] = [self._full.get(full)], len(full) * size
        return device, tokens

    def _left_host(self, rows: _core.RowsByComponent) -> tuple[SlotLists, Tokens]:
        """The token slots of rows that came free on the host, and how many."""
        host: SlotLists = {}
        tokens: Tokens = {}
        for kind, table in self.host_tables.items():
            freed = rows[kind]
            if freed is not None:
                host[kind], tokens[kind] = [table.get(freed)], len(freed) * table.page_size
        return host, tokens

    def _fold(self, number: int) -> None:
        digest: int = self.write_back_duplicate_reclaim_digest
        self.write_back_duplicate_reclaim_digest = (
            digest * DIGEST_FACTOR + number + 1
        ) & DIGEST_MASK
