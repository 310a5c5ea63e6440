"""An insert: SGLang's parameters as the tree's, and the tree's answer as SGLang's actions.

SGLang hands over slots for the whole key. What the tree does not take goes back to the allocator at
once, by actions that the controller executes before its next decision.
"""

from __future__ import annotations

import torch
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
from kvcanon.optimized.sglang.slot_table import SlotTable


def require_known_hints(params: InsertParams) -> None:
    """Refuse hints of an insert that this core cannot follow. Raises: ValueError."""
    if params.rotation_base is not None:
        refuse("--enable-kv-cache-sharding", "it does not record which rank begins a chain")
    if params.c128_value is not None:
        refuse("C128 pages", "it has full attention, one window, and states")


def own_numbers(params: InsertParams, length: int, device: torch.device) -> torch.Tensor:
    """What SGLang means by an insert without slots: the tokens themselves."""
    return torch.tensor(params.key.raw_token_ids()[:length], dtype=torch.int64, device=device)


def add_slot_actions(
    actions: list[object],
    done: _core.NodeInserted,
    tokens: torch.Tensor,
    frontier: int,
    full: SlotTable,
) -> None:
    """Add the actions that give duplicates back, and pair window slots.

    `frontier` is how many tokens of the request have no window slots any more.
    """
    size = full.page_size
    for first, last in done.duplicates:
        begin, end = first * size, last * size
        middle = min(max(begin, frontier), end)
        if begin < middle:
            actions.append(FreeDeviceKVFullOnly([tokens[begin:middle]]))
        if middle < end:
            actions.append(FreeDeviceKV([tokens[middle:end]]))
    for node, first, last, healed in done.windows:
        incoming = tokens[first * size : last * size]
        if healed:
            actions.append(RecoverSWAWithLockedFull(node, full.get(node), incoming))
        else:
            actions.append(SWARebuild(node, incoming))


def result_of(
    done: _core.NodeInserted, params: InsertParams, tables: dict[ComponentType, SlotTable]
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
        for _node, first, last in done.nodes:
            result.record_adopted_range(ComponentType.FULL, first * size, last * size)
        for _node, first, last, _healed in done.windows:
            result.record_adopted_range(ComponentType.SWA, first * size, last * size)
    return result
