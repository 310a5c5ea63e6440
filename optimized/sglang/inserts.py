"""An insert: SGLang's parameters as the tree's, and the tree's answer as SGLang's actions.

SGLang hands over slots for the whole key. What the tree does not take goes back to the allocator at
once, by actions that the controller executes before its next decision.
"""

from __future__ import annotations

import torch
from attrs import frozen
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, InsertResult
from sglang.srt.mem_cache.unified_cache.cache_action import (
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    RecoverSWAWithLockedFull,
    SWARebuild,
)
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.refusals import refuse
from kvcanon.optimized.sglang.rows import RowTable


@frozen
class Handover:
    """What an insert hands over. Pages are of the key, `tokens` are token slots for all of them."""

    pages: int
    owned_pages: int
    window_from: int
    frontier: int
    """Tokens whose window slots the request has freed."""
    tokens: torch.Tensor


def require_known_hints(params: InsertParams) -> None:
    """Refuse hints of an insert that this core cannot follow. Raises: ValueError."""
    if params.rotation_base is not None:
        refuse("--enable-kv-cache-sharding", "it does not record which rank begins a chain")
    if params.c128_value is not None:
        refuse("C128 pages", "it has full attention, one window, and states")


def handover(
    params: InsertParams, pages: int, page_size: int, device: torch.device, *, swa: bool
) -> Handover:
    """Read what an insert hands over."""
    length = pages * page_size
    value = params.value
    if value is None:
        value = torch.tensor(params.key.raw_token_ids()[:length], dtype=torch.int64, device=device)
    frontier = params.get_evicted_seqlen(ComponentType.SWA) if swa else 0
    return Handover(
        pages=pages,
        owned_pages=min(pages, -(-params.prev_prefix_len // page_size)),
        window_from=min(pages, -(-frontier // page_size)),
        frontier=frontier,
        tokens=value[:length],
    )


def fill_rows(
    given: Handover,
    done: _core.NodeInserted,
    params: InsertParams,
    tables: dict[ComponentType, RowTable],
) -> None:
    """Write the token slots of the pages and of the state that the tree took into the tables."""
    full = tables[ComponentType.FULL]
    size = full.page_size
    for begin, rows in done.full:
        full.put(rows, given.tokens[begin * size : (begin + len(rows)) * size])
    row = done.state
    if row is not None:
        states = tables[ComponentType.MAMBA].table
        states[row] = params.mamba_value.view(-1)[0]


def slot_actions(
    given: Handover, done: _core.NodeInserted, nodes: _core.Nodes, full: RowTable
) -> list[object]:
    """The actions that give duplicates back, and pair window slots."""
    size = full.page_size
    actions: list[object] = []
    for first, last in done.duplicates:
        begin, end = first * size, last * size
        middle = min(max(begin, given.frontier), end)
        if begin < middle:
            actions.append(FreeDeviceKVFullOnly([given.tokens[begin:middle]]))
        if middle < end:
            actions.append(FreeDeviceKV([given.tokens[middle:end]]))
    for node, first, last, healed in done.windows:
        incoming = given.tokens[first * size : last * size]
        if healed:
            kept = full.get(nodes.slots(node, _above(nodes, node)))
            actions.append(RecoverSWAWithLockedFull(node, kept, incoming))
        else:
            actions.append(SWARebuild(node, incoming))
    return actions


def result_of(
    given: Handover, done: _core.NodeInserted, params: InsertParams, tables: dict[object, RowTable]
) -> InsertResult:
    """SGLang's result of an insert."""
    size = tables[ComponentType.FULL].page_size
    result = InsertResult(prefix_len=done.walked_pages * size, last_device_node=done.end)
    if ComponentType.MAMBA in tables:
        result.mamba_exist = done.state is None
    hint = params.swa_branching_seqlen
    if hint is not None and ComponentType.SWA in tables:
        result.swa_branch_inserted = len(params.key) >= hint
    if params.track_adopted_ranges:
        result.adopted_ranges = {}
        for begin, rows in done.full:
            result.record_adopted_range(
                ComponentType.FULL, begin * size, (begin + len(rows)) * size
            )
        for _node, first, last, _healed in done.windows:
            result.record_adopted_range(ComponentType.SWA, first * size, last * size)
    del given
    return result


def _above(nodes: _core.Nodes, node: int) -> int:
    parent = nodes.parent(node)
    return nodes.root() if parent is None else parent
