"""An insert: SGLang's parameters as the tree's, and the tree's answer as SGLang's actions.

SGLang hands over slots for the whole key. What the tree does not take goes back to the allocator at
once, by actions that the controller executes before its next decision.
"""

from __future__ import annotations

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, InsertResult
from sglang.srt.mem_cache.unified_cache.cache_action import (
    FreeComponentDeviceSlot,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    RecoverSWAWithLockedFull,
)

from kvcanon.optimized.native_types import PromptInserted
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.pool_slots import FULL, MAMBA, SWA
from kvcanon.optimized.sglang.start_checks import refuse


def slots_of(params: InsertParams, device: torch.device) -> torch.Tensor:
    """The token slots of an insert; where it has none SGLang means the tokens themselves.

    Raises: ValueError, where a hint asks for what this core cannot do.
    """
    if params.rotation_base is not None:
        refuse("--enable-kv-cache-sharding", "it does not record which rank begins a chain")
    if params.c128_value is not None:
        refuse("C128 pages", "it has full attention, one window, and states")
    slots: torch.Tensor | None = params.value
    if slots is not None:
        return slots
    return torch.tensor(params.key.raw_token_ids(), dtype=torch.int64, device=device)


def give_back(done: PromptInserted, tokens: torch.Tensor, frontier: int, size: int) -> list[object]:
    """The actions for what the tree did not take of an insert, or gave up for it.

    `frontier` is how many tokens of the request have no window slots any more, `size` the tokens a
    page.

    A node whose window data came back takes the request's full slots, whose windows are in SGLang's
    map already, and frees its own, as in SGLang's cores. They are freed as an eviction frees them,
    without a look at the map, which has nothing of them. Where a lock holds them they stay, and
    SGLang maps them anew.
    """
    actions: list[object] = []
    for first, last in done.duplicates:
        begin, end = first * size, last * size
        middle = min(max(begin, frontier), end)
        if begin < middle:
            actions.append(FreeDeviceKVFullOnly([tokens[begin:middle]]))
        if middle < end:
            actions.append(FreeDeviceKV([tokens[middle:end]]))
    if done.replaced is not None:
        actions.append(FreeComponentDeviceSlot([done.replaced], FULL))
    for node, kept, first, last in done.locked:
        brought = tokens[first * size : last * size]
        actions.append(RecoverSWAWithLockedFull(node, kept, brought))
    return actions


def result_of(core: CoreState, done: PromptInserted, params: InsertParams) -> InsertResult:
    """SGLang's result of an insert; keeps the state that the tree took."""
    slots, size = core.slots, core.slots.page_size
    # In the order of SGLang's fields: the prefix, the total, and the end.
    result = InsertResult(done.walked_pages * size, 0, done.end)
    if MAMBA in slots.kinds:
        result.mamba_exist = done.state is None
        if done.state is not None:
            rows = core.nodes.slots(done.end, None, MAMBA)
            slots.tables[MAMBA].put(rows, params.mamba_value.view(-1)[:1])
    hint = params.swa_branching_seqlen
    if hint is not None and SWA in slots.kinds:
        result.swa_branch_inserted = len(params.key) >= hint
    if done.adopted is not None:
        result.adopted_ranges = {}
        full, windows = done.adopted
        for first, last in sorted(full):
            result.record_adopted_range(FULL, first * size, last * size)
        for first, last in windows:
            result.record_adopted_range(SWA, first * size, last * size)
    return result
