"""SGLang's Python core with what a law forbids kvcanon mended: servers of kvcanon are held to it.

Each mend changes one rule of SGLang's for that of a law, by wrapping the method that follows it.
What is left to differ is a fault of kvcanon's. The mends of window data are in `mended_windows`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from kvcanon.conformance.serving.mended_windows import (
    copy_own_windows,
    copy_windows_of_backed_nodes,
    end_of,
    evict_what_lacks,
    evict_windows_by_use,
)

_PYTHON_CORE = "sglang.srt.mem_cache.unified_cache.unified_tree_core"
_COMPONENTS = "sglang.srt.mem_cache.unified_cache.components"
_EVENTS = "sglang.srt.disaggregation.kv_events"

Core = Any
"""SGLang's `UnifiedTreeCore`, which has no types here; nor has what it takes and returns."""
TreeNode = Any
Found = Any
Insert = Any
Mend = Callable[[Core], None]


def mended_core(*given: object) -> Core:
    """A core with all mends. Takes what factories take."""
    core = import_module(_PYTHON_CORE).UnifiedTreeCore(*given)
    for mend in MENDS:
        mend(core)
    return core


def split_in_place(core: Core) -> None:
    """REC-7: a split does not make the suffix recent that was not matched (sgl#38482)."""
    split = core._split_node  # noqa: SLF001  # Here and below, they have no other names.

    def split_node(key: object, child: TreeNode, length: int) -> tuple[TreeNode, object]:
        before = child.last_access_time
        upper, action = split(key, child, length)
        child.last_access_time = upper.last_access_time = before
        return upper, action

    core._split_node = split_node  # noqa: SLF001


def count_every_part(core: Core) -> None:
    """RES-7: both parts of a node that an insert splits at its window count its hit.

    SGLang counts the lower one alone (`docs/findings/sglang/window_split_counts_no_hit.md`).
    """
    begin, count = core.begin_insert, core._inc_hit_count_and_check  # noqa: SLF001
    wants_copy = core._should_backup_after_insert  # noqa: SLF001
    counted = set[int]()

    def begin_insert(params: Insert) -> object:
        counted.clear()
        return begin(params)

    def count_hit(node: TreeNode) -> object:
        counted.add(node.id)
        return count(node)

    def should_back_up(state: Insert) -> object:
        node = state.target_node.parent
        while node is not None and node.parent is not None:
            if node.id not in counted and end_of(node) > state.params.inserted_len:
                count_hit(node)
            node = node.parent
        return wants_copy(state)

    core.begin_insert = begin_insert
    core._inc_hit_count_and_check = count_hit  # noqa: SLF001
    core._should_backup_after_insert = should_back_up  # noqa: SLF001


def promise_whole_hits(core: Core) -> None:
    """MATCH-1: what a match found on the device and beyond it are all tokens that can be used.

    SGLang counts beyond it only nodes whose full data is on the host, so that a hit is too short
    where the device has full data and waits for window data. The scheduler adds both numbers.
    """
    match = core.match_prefix

    def match_prefix(params: object) -> Found:
        found = match(params)
        if not core.enable_hicache:
            return found
        reached = end_of(core.node_by_id(found.best_match_node))
        longer = found.swa_branching_seqlen
        return found._replace(
            host_hit_length=reached - found.device_prefix_len,
            swa_branching_seqlen=longer if longer is not None and longer > reached else None,
        )

    core.match_prefix = match_prefix


def give_up_whole_duplicates(core: Core) -> None:
    """RES-2, REC-3: under write_back, copies that the device has leave as a whole, by the policy.

    SGLang drops their full data alone, in the order in which the copies were made, also where a
    lock holds the node (`Profile.whole_nodes_on_host`, `Profile.locks_hold_host_copies`).
    """
    full = core.components[0].component_type

    def rank(node: TreeNode) -> tuple[bool, object, int]:
        is_leaf = node in core.evictable_device_leaves
        return (is_leaf, core.eviction_strategy.get_priority(node), end_of(node))

    def reclaim(
        tokens: int, tracker: dict[object, int], device: object, host: object, **more: object
    ) -> None:
        for node in sorted(filter(_is_duplicate, core._node_arena.values()), key=rank):  # noqa: SLF001
            if tracker[full] >= tokens:
                return
            core.kv_events.record_remove(node, medium=import_module(_EVENTS).StorageMedium.CPU)
            core.full_host_duplicates.pop(node.id, None)
            for part in reversed(core.components):
                core._evict_component_and_detach_lru(  # noqa: SLF001
                    node,
                    part,
                    device,
                    host,
                    target=import_module(_COMPONENTS).EvictLayer.HOST,
                    tracker=tracker,
                    **more,
                )

    core._reclaim_full_host_duplicates = reclaim  # noqa: SLF001


def _is_duplicate(node: TreeNode) -> bool:
    """Whether the device has all of a node's host copy, and nothing uses the node."""
    if node.write_through_pending_id is not None or node.load_back_pending_id is not None:
        return False
    if any(data.lock_ref or data.host_lock_ref for data in node.component_data):
        return False
    on_host = [data for data in node.component_data if data.host_value is not None]
    return node.backuped and all(data.value is not None for data in on_host)


MENDS: tuple[Mend, ...] = (
    split_in_place,
    count_every_part,
    promise_whole_hits,
    give_up_whole_duplicates,
    evict_what_lacks,
    evict_windows_by_use,
    copy_own_windows,
    copy_windows_of_backed_nodes,
)
