"""The host tier: SGLang's controller copies, and the tree says what and records it.

A copy counts as being there when it is enqueued, as SGLang's kernels wait for loads layer by layer.
The controller locks the nodes of a copy until its acknowledgement, and the store event of a copy to
the host is emitted then.
"""

from __future__ import annotations

import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    DecLockRefParams,
    DecLockRefResult,
    IncLockRefResult,
)
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.unified_cache.cache_action import BackupKV, RebuildFullToSWAMapping
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.core_state import FULL, MAMBA, SWA, CoreState

HOST = 1
PARTS = (SWA, MAMBA)
"""The components besides full data, in the order of the native numbers."""
POOLS = {SWA: PoolName.SWA, MAMBA: PoolName.MAMBA}
Transfers = dict[ComponentType, list[PoolTransfer]]


class HostTier(CoreState):
    """The part of the core that serves HiCache."""

    # Copies to the host.

    def is_backuped(self, node_id: int) -> bool:
        """Whether the host has a node's full data."""
        return self.native.nodes.has(node_id, int(FULL), HOST)

    def is_full_device_evicted(self, node_id: int) -> bool:
        """Whether the device lacks a node's full data."""
        nodes = self.native.nodes
        return node_id != nodes.root() and not nodes.has(node_id, int(FULL))

    def component_has_host_value_only(self, node_id: int, component_type: ComponentType) -> bool:
        """Whether the host has a component of a node that the device lacks."""
        nodes, kind = self.native.nodes, int(component_type)
        return nodes.has(node_id, kind, HOST) and not nodes.has(node_id, kind)

    def build_backup_kv_action(self, node_id: int) -> BackupKV:
        """The copy of a node and of the nodes above that have none, the upper first."""
        nodes = self.native.nodes
        chain, node = [node_id], nodes.parent(node_id)
        while node is not None and node != nodes.root() and not self.is_backuped(node):
            chain.append(node)
            node = nodes.parent(node)
        return BackupKV(chain[::-1])

    def build_backup_spec(self, node_id: int) -> tuple[torch.Tensor, Transfers]:
        """What a copy named by a node reads on the device: full slots, and other components."""
        self._copy = self._joined or (self.node_of(node_id),)
        if self._is_declined():
            return self._full.nothing, {}
        nodes = self._nodes or self.native.nodes
        (full, _, states), windows_of = nodes.slots_to_back_up(self._copy)
        slots = self._full.nothing if full is None else self._full.get(full)
        transfers: Transfers = {}
        if not self._has_parts and not self._joined:
            return slots, transfers  # The controller asks for room in the one pool that there is.
        tokens = {FULL: slots.shape[0]}
        parts: dict[ComponentType, torch.Tensor] = {}
        if windows_of is not None and SWA in self.host_tables:
            parts[SWA] = self._window_slots(windows_of)
        if states is not None and MAMBA in self.host_tables:
            parts[MAMBA] = self.tables[MAMBA].get(states)
        for kind, part in parts.items():
            tokens[kind] = part.shape[0]
            transfers[kind] = [PoolTransfer(POOLS[kind], None, part)]
        self._expect_copy(tokens)
        return slots, transfers

    def commit_backup(
        self, node_id: int, host_indices: torch.Tensor, comp_xfers: Transfers
    ) -> None:
        """Record that the data of a copy is on its way to these host slots."""
        del node_id
        self._copying, self._joined = {}, ()
        given = {FULL: host_indices} if host_indices.numel() else {}
        for kind, transfers in comp_xfers.items():
            if transfers and transfers[0].host_indices is not None:
                given[kind] = transfers[0].host_indices
        nodes = self._nodes or self.native.nodes
        placed, stored = nodes.add_host_copy(self._copy, given)
        for kind, slots in given.items():
            rows = placed[kind]
            if rows is not None:
                self.host_tables[kind].put(rows, slots)
        self.unannounced.update(stored)
        # The controller locks the node that names the copy now: for all of them.
        self._locking = self._copy

    def mark_write_through_pending(self, node_ids: list[int], ack_id: int) -> list[int]:
        """Record which acknowledgement ends the copies of nodes; returns them upper first."""
        copied, self._locking = list(self._locking or node_ids), ()
        for node_id in copied:
            self.pending[node_id] = (*self.pending.get(node_id, ()), ack_id)
        if len(copied) > 1:
            nodes = self.native.nodes
            copied.sort(key=lambda node_id: nodes.describe(node_id)[0])
        return copied

    def finish_write_through(self, node_ids: list[int], ack_id: int) -> None:
        """End copies to the host, and announce full data that is there now."""
        for node_id in node_ids:
            left = tuple(each for each in self.pending.pop(node_id, ()) if each != ack_id)
            if left:
                self.pending[node_id] = left
            if node_id in self.unannounced:
                self.unannounced.remove(node_id)
                self.native.nodes.emit_host_store(node_id)

    def is_write_through_compatible(self) -> bool:
        """Whether each host copy has one above it, and full data."""
        nodes = self.native.nodes
        for node in nodes.all():
            _, _, _, (full, swa, states) = nodes.describe(node)
            parent = nodes.parent(node)
            if parent is None:
                continue
            if not full and (swa or states):
                return False
            if full and parent != nodes.root() and not nodes.has(parent, int(FULL), HOST):
                return False
        return True

    # Loads.

    def inc_host_lock_ref(self, node_id: int) -> IncLockRefResult:
        """Note that a load reads a node's path.

        The native tree needs no lock of its own for it: the controller locks the path as well
        until the load has ended, and such a lock protects host copies, too.
        """
        result = IncLockRefResult(node_id=node_id)
        self._host_receipts += 1
        self.host_locks[self._host_receipts] = node_id
        result.set_lock_uuid(FULL, self._host_receipts, lock_host=True)
        return result

    def dec_host_lock_ref(self, node_id: int, params: DecLockRefParams) -> DecLockRefResult:
        """Note that a load has ended. Raises: AssertionError, for a receipt of another node."""
        receipt = params.get_lock_uuid(FULL, lock_host=True)
        if params.node_id != node_id or self.host_locks.get(receipt) != node_id:
            raise AssertionError(
                f"lock receipt anchored on node {params.node_id} released on node {node_id}"
            )
        del self.host_locks[receipt]
        return DecLockRefResult()

    def build_load_back_spec(
        self, node_id: int, req: object = None
    ) -> tuple[PoolTransfer, Transfers]:
        """What a load of the path to a node reads on the host."""
        full, *others = (self._nodes or self.native.nodes).slots_to_load(node_id)
        table = self.host_tables[FULL]
        kv = PoolTransfer(PoolName.KV, table.nothing if full is None else table.get(full))
        transfers = {
            kind: [PoolTransfer(POOLS[kind], self.host_tables[kind].get(rows))]
            for kind, rows in zip(PARTS, others, strict=True)
            if rows is not None
        }
        own = None if req is None else req.kv.mamba_pool_idx  # type: ignore[attr-defined]
        if MAMBA in transfers and own is not None:
            # The request computes on a state of its own.
            (loaded,) = transfers[MAMBA]
            transfers[MAMBA].append(
                PoolTransfer(
                    name=PoolName.MAMBA,
                    host_indices=loaded.host_indices,
                    device_indices=own.unsqueeze(0),
                )
            )
        return kv, transfers

    def commit_load_back(
        self,
        node_id: int,
        device_indices: torch.Tensor,
        kv_xfer: PoolTransfer,
        comp_xfers: Transfers,
    ) -> list[object]:
        """Record that data is on its way to these device slots; returns the pairs to map."""
        kv_xfer.device_indices = device_indices
        given = {kind: transfers[0].device_indices for kind, transfers in comp_xfers.items()}
        if device_indices.numel():
            given[FULL] = device_indices
        nodes = self._nodes or self.native.nodes
        placed, paired = nodes.add_device_copy(node_id, given)
        for kind, table in self.tables.items():
            rows = placed[kind]
            if rows is not None:
                table.put(rows, given[kind])
        if paired is None:
            return []
        return [RebuildFullToSWAMapping([self._full.get(paired)], [given[SWA]])]

    def finish_load_back(self, anchor_node_id: int) -> None:
        """Do nothing: the controller's locks protect what a load reads until now."""

    # Helpers.

    def _copies_of(self, wanted: list[int], done: _core.NodeInserted) -> list[object]:
        """The action for the copies that an insert wants.

        SGLang plans, allocates and acknowledges each copy on its own, so that nodes of one path are
        copied as one, named by the lowest. Where the host lacks room for all of it, `end_insert`
        asks for a copy of each. A state is locked only at the end of a path.

        An acknowledgement is known by what names its copy. A node that names one in flight gets
        another name for the next.
        """
        in_flight = {ack_id for node in wanted for ack_id in self.pending.get(node, ())}
        if in_flight:
            return [BackupKV([self._name_of_copy(node, in_flight) for node in wanted])]
        if len(wanted) > 1 and MAMBA not in self.components:
            self._joined = tuple(wanted)
            return [BackupKV([done.wanted_end])]
        return [BackupKV(wanted)]

    def _name_of_copy(self, node_id: int, in_flight: set[int]) -> int:
        """The node, or a further name of it if the node names a copy in flight."""
        if node_id not in in_flight:
            return node_id
        self._last_name -= 1
        self.copied_nodes[self._last_name] = node_id
        self._new_names.append(self._last_name)
        return self._last_name

    def _forget_names_of_no_copy(self) -> None:
        """Forget the further names that an insert gave to copies that SGLang did not make."""
        for name in self._new_names:
            if name not in self.pending.get(self.node_of(name), ()):
                self.copied_nodes.pop(name, None)
        self._new_names.clear()

    def _forget_host_tier(self) -> None:
        self.pending.clear()
        self.unannounced.clear()
        self.copied_nodes.clear()
        self._new_names.clear()
        self.host_locks.clear()
