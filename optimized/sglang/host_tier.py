"""The host tier: SGLang's controller copies, and the tree says what and records it.

A copy counts as being there when it is enqueued, as SGLang's kernels wait for loads layer by layer.
The controller locks the nodes of a copy until its acknowledgement, and the store event of a copy to
the host is emitted then.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.unified_cache.cache_action import RebuildFullToSWAMapping
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.host_room import expect_copy
from kvcanon.optimized.sglang.pool_slots import FULL, MAMBA, SWA

HOST = 1
POOLS = {SWA: PoolName.SWA, MAMBA: PoolName.MAMBA}
Transfers: TypeAlias = dict[ComponentType, list[PoolTransfer]]


def chain_to_back_up(nodes: _core.Nodes, node_id: int) -> list[int]:
    """A node and the nodes above that have no copy on the host, the upper first."""
    chain, node = [node_id], nodes.parent(node_id)
    while node is not None and node != nodes.root() and not nodes.has(node, FULL, HOST):
        chain.append(node)
        node = nodes.parent(node)
    return chain[::-1]


def backup_spec(core: CoreState, name: int) -> tuple[torch.Tensor, Transfers]:
    """What a copy of this name reads on the device: full slots, and other components."""
    slots, copies, order = core.slots, core.copies, core.copies.order
    nodes = copies.joined or order.victims(name) or (copies.node_of(name),)
    order.plan(name, nodes)
    if order.declined and order.is_declined():
        return slots.full.nothing, {}
    full, paired, states = core.engine_nodes.read_for_backup(nodes)
    read = slots.full.nothing if full is None else full
    transfers: Transfers = {}
    if not slots.has_parts and not copies.joined:
        return read, transfers  # The controller asks for room in the one pool that there is.
    windows = 0
    if paired is not None and SWA in slots.host_tables:
        window = slots.window(paired)
        windows, transfers[SWA] = len(window), [PoolTransfer(POOLS[SWA], None, window)]
    if states is None or MAMBA not in slots.host_tables:
        states = slots.full.nothing
    else:
        transfers[MAMBA] = [PoolTransfer(POOLS[MAMBA], None, states)]
    expect_copy(core, (len(read), windows, len(states)))
    return read, transfers


def commit_backup(
    core: CoreState, name: int, host_indices: torch.Tensor, transfers: Transfers
) -> None:
    """Record that the data of the copy that was planned is on its way to these host slots."""
    copies = core.copies
    nodes, copies.joined = copies.order.commit(name), ()
    full = host_indices if len(host_indices) else None
    windows, states = _on_host(transfers, SWA), _on_host(transfers, MAMBA)
    copies.unannounced.update(core.engine_nodes.add_host_copy(nodes, full, windows, states))


def _on_host(transfers: Transfers, kind: ComponentType) -> torch.Tensor | None:
    """The host slots of a component's transfer, if it has some."""
    planned = transfers.get(kind)
    if not planned:
        return None
    slots: torch.Tensor | None = planned[0].host_indices
    return slots


def load_back_spec(
    core: CoreState, node_id: int, own_state: torch.Tensor | None
) -> tuple[PoolTransfer, Transfers]:
    """What a load of the path to a node reads on the host.

    `own_state` is the slot of the state that a request computes on.
    """
    full, windows, states = core.engine_nodes.read_for_load(node_id)
    kv = PoolTransfer(PoolName.KV, core.slots.host_tables[FULL].nothing if full is None else full)
    transfers: Transfers = {}
    if windows is not None:
        transfers[SWA] = [PoolTransfer(POOLS[SWA], windows)]
    if states is not None:
        transfers[MAMBA] = [PoolTransfer(POOLS[MAMBA], states)]
    if MAMBA in transfers and own_state is not None:
        (loaded,) = transfers[MAMBA]
        own = PoolTransfer(
            name=PoolName.MAMBA,
            host_indices=loaded.host_indices,
            device_indices=own_state.unsqueeze(0),
        )
        transfers[MAMBA].append(own)
    return kv, transfers


def commit_load_back(
    core: CoreState, node_id: int, device_indices: torch.Tensor, transfers: Transfers
) -> list[object]:
    """Record that data is on its way to these device slots; returns the pairs to map."""
    full = device_indices if len(device_indices) else None
    windows, states = _on_device(transfers, SWA), _on_device(transfers, MAMBA)
    paired = core.engine_nodes.add_device_copy(node_id, full, windows, states)
    if paired is None or windows is None:
        return []
    return [RebuildFullToSWAMapping([paired], [windows])]


def _on_device(transfers: Transfers, kind: ComponentType) -> torch.Tensor | None:
    """The device slots of a component's transfer, if there is one."""
    planned = transfers.get(kind)
    slots: torch.Tensor | None = planned[0].device_indices if planned else None
    return slots


def is_write_through_compatible(nodes: _core.Nodes) -> bool:
    """Whether each host copy has full data, and a parent with a host copy."""
    for node in nodes.all():
        _, _, _, (full, swa, states) = nodes.describe(node)
        parent = nodes.parent(node)
        if parent is None:
            continue
        if not full and (swa or states):
            return False
        if full and parent != nodes.root() and not nodes.has(parent, FULL, HOST):
            return False
    return True
