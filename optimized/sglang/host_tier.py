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
PARTS = (SWA, MAMBA)
"""The components besides full data, in the order of the native numbers."""
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
    nodes = copies.joined or (copies.node_of(name),)
    order.plan(name, nodes)
    if order.declined and order.is_declined():
        return slots.full.nothing, {}
    (full, _, states), windows_of = core.nodes.slots_to_back_up(nodes)
    read = slots.full.nothing if full is None else slots.full.get(full)
    transfers: Transfers = {}
    if not slots.has_parts and not copies.joined:
        return read, transfers  # The controller asks for room in the one pool that there is.
    tokens = {FULL: read.shape[0]}
    parts: dict[ComponentType, torch.Tensor] = {}
    if windows_of is not None and SWA in slots.host_tables:
        parts[SWA] = slots.window(windows_of)
    if states is not None and MAMBA in slots.host_tables:
        parts[MAMBA] = slots.tables[MAMBA].get(states)
    for kind, part in parts.items():
        tokens[kind] = part.shape[0]
        transfers[kind] = [PoolTransfer(POOLS[kind], None, part)]
    expect_copy(core, tokens)
    return read, transfers


def commit_backup(
    core: CoreState, name: int, host_indices: torch.Tensor, transfers: Transfers
) -> None:
    """Record that the data of the copy that was planned is on its way to these host slots."""
    copies = core.copies
    nodes, copies.joined = copies.order.commit(name), ()
    given = {FULL: host_indices} if host_indices.numel() else {}
    for kind, each in transfers.items():
        if each and each[0].host_indices is not None:
            given[kind] = each[0].host_indices
    placed, stored = core.nodes.add_host_copy(nodes, given)
    for kind, written in given.items():
        rows = placed[kind]
        if rows is not None:
            core.slots.host_tables[kind].put_parts([(0, rows)], written)
    copies.unannounced.update(stored)


def load_back_spec(
    core: CoreState, node_id: int, own_state: torch.Tensor | None
) -> tuple[PoolTransfer, Transfers]:
    """What a load of the path to a node reads on the host.

    `own_state` is the slot of the state that a request computes on.
    """
    full, *others = core.nodes.slots_to_load(node_id)
    tables = core.slots.host_tables
    read = tables[FULL].nothing if full is None else tables[FULL].get(full)
    kv = PoolTransfer(PoolName.KV, read)
    transfers = {
        kind: [PoolTransfer(POOLS[kind], tables[kind].get(rows))]
        for kind, rows in zip(PARTS, others, strict=True)
        if rows is not None
    }
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
    given = {kind: each[0].device_indices for kind, each in transfers.items()}
    if device_indices.numel():
        given[FULL] = device_indices
    placed, paired = core.nodes.add_device_copy(node_id, given)
    for kind, table in core.slots.tables.items():
        rows = placed[kind]
        if rows is not None:
            table.put(rows, given[kind])
    if paired is None:
        return []
    return [RebuildFullToSWAMapping([core.slots.full.get(paired)], [given[SWA]])]


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
