"""Storage below the host: SGLang's controller writes pages there and fetches them, by the tree.

The controller names pages by hashes, writes the host copy of each node that a copy has filled, and
asks storage for what follows a prompt's prefix. The tree gives it hashes and host slots, and takes
the host slots that were filled; what it does not take stays the controller's, which frees it.
"""

from __future__ import annotations

from array import array

import torch
from attrs import frozen
from sglang.srt.mem_cache import base_prefix_cache as calls
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolTransfer, PoolTransferResult
from sglang.srt.mem_cache.unified_cache.cache_action import FreeComponentHostSlot
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core import StorageBackupSpec

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.copies import follow_cuts
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.host_tier import HOST, POOLS, Transfers
from kvcanon.optimized.sglang.native_tree import Scope
from kvcanon.optimized.sglang.pool_slots import FULL, MAMBA, SWA

PLACEHOLDER = "__placeholder__"
"""SGLang's key of a page whose hash it puts in once storage has told what it has."""


def scope_of(core: CoreState, node_id: int) -> Scope:
    """The namespace of a node, `extra_key` and `cache_salt`; the root belongs to all."""
    if node_id == core.root:
        return None, None
    return core.native.scope(core.nodes.namespace_of(node_id))


def hashes_above(nodes: _core.Nodes, node_id: int) -> list[str]:
    """The hashes of the pages above a node, the first page first."""
    parent = nodes.parent(node_id)
    return [] if parent is None else nodes.storage_hashes(parent, nodes.root())


def backup_spec(core: CoreState, node_id: int, *, with_prefix: bool) -> StorageBackupSpec | None:
    """What storage is given of a node; None where the host does not have it."""
    nodes, tables = core.nodes, core.slots.host_tables
    if not nodes.has(node_id, FULL, HOST):
        return None
    tokens = array("q")
    tokens.frombytes(nodes.tokens(node_id))
    hashes = nodes.storage_hashes(node_id)
    transfers: Transfers = {}
    for kind, pool in POOLS.items():
        if kind not in tables or not nodes.has(node_id, kind, HOST):
            continue
        slots = tables[kind].get(nodes.slots(node_id, None, kind, HOST))
        keys = hashes[-1:] if kind is MAMBA else hashes
        transfers[kind] = [
            PoolTransfer(pool, slots, keys=keys, hit_policy=PoolHitPolicy.TRAILING_PAGES)
        ]
    return StorageBackupSpec(
        host_value=tables[FULL].get(nodes.slots(node_id, None, FULL, HOST)),
        token_ids=tokens,
        hash_value=hashes,
        prefix_keys=hashes_above(nodes, node_id) if with_prefix else None,
        comp_xfers=transfers,
    )


def insert_fetched(
    core: CoreState, anchor: int, tokens: array[int], namespace: int, host_slots: torch.Tensor
) -> calls.InsertResult:
    """Let the tree take fetched pages that follow a node.

    The caller frees the first `prefix_len` of the host slots, or all if they were dropped.
    """
    core.copies.order.give_up("insert_host")
    done = core.nodes.take_fetched(anchor, tokens, namespace)
    if done.taken:
        core.slots.host_tables[FULL].put_parts(done.taken, host_slots)
    return calls.InsertResult(
        prefix_len=done.present_pages * core.slots.page_size,
        total_len=host_slots.numel(),
        inserted_host_node=done.end or None,
        host_insert_dropped=done.dropped,
        cache_actions=follow_cuts(core.copies, done.cuts),
    )


def transfers_to_fetch(kind: ComponentType, pages: int) -> list[PoolTransfer] | None:
    """What is fetched of a component: so many trailing pages, or a state."""
    if pages == 0:
        return None
    keys = [PLACEHOLDER] * (1 if kind is MAMBA else pages)
    return [PoolTransfer(POOLS[kind], keys=keys, hit_policy=PoolHitPolicy.TRAILING_PAGES)]


@frozen
class Fetched:
    """Fetched pages whose full data was inserted, and how much came of the other components."""

    anchor: int
    """The node that they follow."""
    inserted: calls.InsertResult | None
    found: PoolTransferResult | None

    @property
    def end(self) -> int | None:
        """The node at which they end, where the host has it."""
        end: int | None = None if self.inserted is None else self.inserted.inserted_host_node
        return end

    def pages(self, kind: ComponentType) -> int:
        """How many pages storage had of a component, on all ranks."""
        if self.found is None:
            return 0
        pages: int = self.found.extra_pool_hit_pages.get(POOLS[kind], 0)
        return pages


def commit_window(
    core: CoreState, fetched: Fetched, host_slots: torch.Tensor | None, whole_pages: int
) -> list[object]:
    """Let the tree take a fetched window as a whole; returns what frees the rest.

    Below a prefix a window needs `whole_pages`: a shorter one begins with pages that it lacks.
    """
    if host_slots is None or not host_slots.numel():
        return []
    size, end = core.slots.page_size, fetched.end
    pages = host_slots.numel() // size
    is_short = fetched.anchor != core.root and pages < whole_pages
    if is_short or end is None or fetched.pages(SWA) < pages:
        return [FreeComponentHostSlot([host_slots], SWA)]
    taken, left, cuts = core.nodes.take_fetched_window(fetched.anchor, end, pages)
    if taken:
        core.slots.host_tables[SWA].put_parts(taken, host_slots)
    actions = follow_cuts(core.copies, cuts)
    actions += [
        FreeComponentHostSlot([host_slots[first * size : last * size]], SWA) for first, last in left
    ]
    return actions


def commit_state(
    core: CoreState, fetched: Fetched, host_slots: torch.Tensor | None
) -> list[object]:
    """Let the tree take a fetched state; returns what frees it otherwise."""
    if fetched.inserted is not None:
        fetched.inserted.mamba_exist = True
    if host_slots is None:
        return []
    row = None
    if fetched.end is not None and fetched.pages(MAMBA):
        row = core.nodes.take_fetched_state(fetched.end)
    if row is None:
        return [FreeComponentHostSlot([host_slots], MAMBA)]
    core.slots.host_tables[MAMBA].put(row, host_slots)
    if fetched.inserted is not None:
        fetched.inserted.mamba_exist = False
    return []
