"""An insert: SGLang's parameters as the tree's, and the tree's answer as SGLang's actions.

SGLang hands over slots for the whole key. What the tree does not take goes back to the allocator at
once, by actions that the controller executes before its next decision.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, InsertResult
from sglang.srt.mem_cache.unified_cache.cache_action import (
    FreeComponentDeviceSlot,
    FreeDeviceKV,
    FreeDeviceKVFullOnly,
    RecoverSWAWithLockedFull,
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
    size: int,
) -> None:
    """Add the actions that give duplicates back.

    `frontier` is how many tokens of the request have no window slots any more, and `size` is that
    of a page.
    """
    for first, last in done.duplicates:
        begin, end = first * size, last * size
        middle = min(max(begin, frontier), end)
        if begin < middle:
            actions.append(FreeDeviceKVFullOnly([tokens[begin:middle]]))
        if middle < end:
            actions.append(FreeDeviceKV([tokens[middle:end]]))


def add_window_actions(
    actions: list[object],
    done: _core.NodeInserted,
    tokens: torch.Tensor,
    nodes: _core.Nodes,
    full: SlotTable,
) -> None:
    """Pair the window data that came back to nodes with their full slots.

    A node takes the request's full slots, whose windows are in SGLang's map already, and frees its
    own, as in SGLang's cores. They are freed as an eviction frees them, without a look at the map,
    which has nothing of them. Where a lock holds them they stay, and SGLang maps them anew.
    """
    size = full.page_size
    for first, rows in done.healed:
        actions.append(FreeComponentDeviceSlot([full.get(rows)], ComponentType.FULL))
        full.put(rows, tokens, first)
    for end, above, first, last, locked in done.windows:
        if locked:
            kept = full.get(nodes.slots(end, above))
            brought = tokens[first * size : last * size]
            actions.append(RecoverSWAWithLockedFull(end, kept, brought))


def result_of(
    done: _core.NodeInserted,
    params: InsertParams,
    components: Collection[ComponentType],
    size: int,
) -> InsertResult:
    """SGLang's result of an insert."""
    # In the order of SGLang's fields: the prefix, the total, and the end.
    result = InsertResult(done.walked_pages * size, 0, done.end)
    if len(components) > 1:
        if ComponentType.MAMBA in components:
            result.mamba_exist = done.state is None
        hint = params.swa_branching_seqlen
        if hint is not None and ComponentType.SWA in components:
            result.swa_branch_inserted = len(params.key) >= hint
    if params.track_adopted_ranges:
        result.adopted_ranges = {}
        for first, rows in sorted([*done.full, *done.healed], key=itemgetter(0)):
            last = first + len(rows)
            result.record_adopted_range(ComponentType.FULL, first * size, last * size)
        for _end, _above, first, last, _locked in done.windows:
            result.record_adopted_range(ComponentType.SWA, first * size, last * size)
    return result
