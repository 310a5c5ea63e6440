"""SGLang's Python core with kvcanon's rules where the two differ: kvcanon's core is held to it.

Each mend changes one rule of SGLang's, by wrapping the method that follows it: for that of a law
that SGLang breaks or declares otherwise, or for a choice of the canon that the laws leave free. So
`MENDS` is the whole list of accepted differences, and what is left to differ is a fault. The mends
of window data are in `mended_windows`, those of an insert's copies in `mended_copies`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from importlib import import_module
from typing import Any

from kvcanon.lab.releases.mended.mended_copies import copy_during_a_copy, copy_path_at_its_end
from kvcanon.lab.releases.mended.mended_windows import (
    copy_own_windows,
    copy_windows_of_backed_nodes,
    end_of,
    evict_what_lacks,
    evict_windows_by_use,
    make_room_for_a_node,
)

NAME = "mended"
"""The value of SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND that selects this core."""

_REGISTRY = "sglang.srt.mem_cache.unified_cache.tree_core_registry"
_PYTHON_CORE = "sglang.srt.mem_cache.unified_cache.unified_tree_core"
_COMPONENTS = "sglang.srt.mem_cache.unified_cache.components"
_EVENTS = "sglang.srt.disaggregation.kv_events"

Core = Any
"""SGLang's `UnifiedTreeCore`, which has no types here; nor has what it takes and returns."""
TreeNode = Any
Found = Any
Insert = Any
Mend = Callable[[Core], None]


def register_mended() -> None:
    """Register the core; a second call changes nothing."""
    registry = import_module(_REGISTRY)
    if registry.get_tree_core_factory(NAME) is None:
        registry.register_tree_core_backend(NAME, mended_core)


def mended_core(*given: object) -> Core:
    """A core with all mends. Takes what factories take."""
    core = import_module(_PYTHON_CORE).UnifiedTreeCore(*given)
    for mend in MENDS:
        mend(core)
    return core


def split_in_place(core: Core) -> None:
    """REC-7: a split does not make the suffix recent that was not matched (sgl#38482).

    An insert makes a node recent before it splits it; then the upper part alone stays so.
    """
    split, touch = core._split_node, core._touch_node  # noqa: SLF001  # They have no other names.
    step = core._insert_walk_step  # noqa: SLF001
    before_touch: dict[int, float] = {}

    def touch_node(node: TreeNode) -> None:
        before_touch[node.id] = node.last_access_time
        touch(node)

    def insert_walk_step(state: Insert) -> None:
        before_touch.clear()
        step(state)
        before_touch.clear()

    def split_node(key: object, child: TreeNode, length: int) -> tuple[TreeNode, object]:
        now = child.last_access_time
        upper, action = split(key, child, length)
        upper.last_access_time = now
        child.last_access_time = before_touch.get(child.id, now)
        return upper, action

    core._split_node, core._touch_node = split_node, touch_node  # noqa: SLF001
    core._insert_walk_step = insert_walk_step  # noqa: SLF001


def cut_where_usable(core: Core) -> None:
    """Free to all: a match cuts a node only where the usable prefix ends.

    SGLang cuts wherever its walk leaves a node, also where the window data of the part is missing,
    so that no request can use it (`docs/freedoms.md`: `cuts_where_walks_end`).
    """
    walk, finish = core._match_prefix_helper, core._match_post_processor  # noqa: SLF001
    looked_at: list[tuple[TreeNode, Callable[[], tuple[TreeNode, object]]]] = []

    def match_prefix_helper(*given: object) -> Found:
        split = core._split_node  # noqa: SLF001
        looked_at.clear()

        def look_at(key: object, child: TreeNode, length: int) -> tuple[TreeNode, None]:
            part = _upper_part(child, length)
            looked_at.append((part, lambda: split(key, child, length)))
            return part, None

        core._split_node = look_at  # noqa: SLF001
        try:
            return walk(*given)
        finally:
            core._split_node = split  # noqa: SLF001

    def match_post_processor(params: object, value: object, *ends: Any, **more: object) -> Found:  # noqa: ANN401
        best, best_on_device, value_len, hit_len, action = ends
        if looked_at:
            part, cut = looked_at.pop()
            if part is best or part is best_on_device:
                upper, action = cut()
                best = upper if best is part else best
                best_on_device = upper if best_on_device is part else best_on_device
        return finish(params, value, best, best_on_device, value_len, hit_len, action, **more)

    core._match_prefix_helper = match_prefix_helper  # noqa: SLF001
    core._match_post_processor = match_post_processor  # noqa: SLF001


def _upper_part(node: TreeNode, length: int) -> TreeNode:
    """What a cut would make of the first tokens of a node, for a look: it is in no tree."""
    part = copy(node)
    part.key = node.key[:length]
    part.component_data = [_upper_data(each, len(node.key), length) for each in node.component_data]
    return part


def _upper_data(data: Any, tokens: int, length: int) -> object:  # noqa: ANN401 # SGLang's.
    """A component's data in the upper part; a state, which is at the end of a node, is not."""
    upper = copy(data)
    for name in ("value", "host_value"):
        slots = getattr(data, name)
        in_part = slots is not None and len(slots) == tokens
        setattr(upper, name, slots[:length] if in_part else None)
    return upper


def announce_once(core: Core) -> None:
    """EVENT-2: a node is stored on the host once, when its full data comes there.

    SGLang emits the event again when window data follows.
    """
    events, told = core.kv_events, set[int]()
    store, remove, reset = events.record_store, events.record_remove, core.reset
    host = import_module(_EVENTS).StorageMedium.CPU

    def record_store(node: TreeNode, *given: object, **more: Any) -> None:  # noqa: ANN401
        if more.get("medium") is host:
            if node.id in told:
                return
            told.add(node.id)
        store(node, *given, **more)

    def record_remove(node: TreeNode, *given: object, **more: Any) -> None:  # noqa: ANN401
        if more.get("medium") is host:
            told.discard(node.id)
        remove(node, *given, **more)

    split = core._split_node  # noqa: SLF001

    def split_node(key: object, child: TreeNode, length: int) -> tuple[TreeNode, object]:
        upper, action = split(key, child, length)
        if child.id in told:
            told.add(upper.id)
        return upper, action

    def forget() -> None:
        told.clear()
        reset()

    events.record_store, events.record_remove = record_store, record_remove
    core._split_node, core.reset = split_node, forget  # noqa: SLF001


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


def count_under_write_back(core: Core) -> None:
    """RES-7: hits are counted under write_back, too, where lfu and slru go by them."""
    count, wants_copy = core._inc_hit_count_and_check, core._should_backup_after_insert  # noqa: SLF001

    def count_hit(node: TreeNode) -> object:
        if core.is_write_back and not node.evicted:
            node.hit_count += 1
        return count(node)

    def should_back_up(state: Insert) -> object:
        leaf = state.target_node
        if core.is_write_back and state.is_new_leaf and end_of(leaf) > state.params.inserted_len:
            core._inc_hit_count_and_check(leaf)  # noqa: SLF001
        return wants_copy(state)

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
    cut_where_usable,
    announce_once,
    count_under_write_back,
    count_every_part,
    copy_path_at_its_end,
    copy_during_a_copy,
    promise_whole_hits,
    give_up_whole_duplicates,
    evict_what_lacks,
    make_room_for_a_node,
    evict_windows_by_use,
    copy_own_windows,
    copy_windows_of_backed_nodes,
)
