"""SGLang's Python core, mended where kvcanon must decide otherwise: what servers of kvcanon are held to.

Each mend undoes one thing that a law forbids kvcanon, and wraps the method that decides it:

- A split makes the suffix recent that was not matched (sgl#38482), so that it is evicted after pages that were
  matched since. REC-7: a split leaves recency as it is.
- The controller asks the host for room for a whole copy where a part of it is free, and the core evicts that much.
  EVICT-2: an eviction stops once enough is free.
- Window data on the host alone leaves in the order in which it left the device. REC-3: that which was used longest ago
  leaves first, on the host too (`Profile.host_order_by_use`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import count
from typing import Any

_PYTHON_CORE = "sglang.srt.mem_cache.unified_cache.unified_tree_core"
_WINDOW_HOST_POOL = "_swa_kv_pool_host"

Core = Any
"""SGLang's `UnifiedTreeCore`, which has no types here; nor have its nodes."""
TreeNode = Any


def mended_core(*given: object) -> Core:
    """A core with all mends. Takes what factories take."""
    core = import_module(_PYTHON_CORE).UnifiedTreeCore(*given)
    for mend in (split_in_place, evict_what_lacks, evict_windows_by_use):
        mend(core)
    return core


def split_in_place(core: Core) -> None:
    """Let a split leave recency as it is."""
    split = core._split_node  # noqa: SLF001  # It has no other name.

    def split_node(key: object, child: TreeNode, length: int) -> tuple[TreeNode, object]:
        before = child.last_access_time
        upper, action = split(key, child, length)
        child.last_access_time = upper.last_access_time = before
        return upper, action

    core._split_node = split_node  # noqa: SLF001


def evict_what_lacks(core: Core) -> None:
    """Let the host evict window data only as far as a copy lacks room."""
    evict = core.drive_host_eviction

    def drive_host_eviction(kind: Any, tokens: int) -> object:  # noqa: ANN401
        pool = getattr(core.components_by_type[kind], _WINDOW_HOST_POOL, None)
        return evict(kind, tokens if pool is None else tokens - pool.available_size())

    core.drive_host_eviction = drive_host_eviction


def evict_windows_by_use(core: Core) -> None:
    """Let window data leave the host by its last use, on the device or on the host."""
    kinds = [kind for kind, each in core.components_by_type.items() if hasattr(each, _WINDOW_HOST_POOL)]
    for kind in kinds:
        _order_by_use(core, kind)


def _order_by_use(core: Core, kind: Any) -> None:
    windows, ticks = core.components_by_type[kind], count(1)
    refresh, reset, split, put = windows.refresh_lru, core.reset, core._split_node, core.set_component_device_value
    used: dict[int, int] = {}

    def refresh_lru(phase: Any, node: TreeNode, root: TreeNode) -> None:
        refresh(phase, node, root)
        if phase.name == "WALKDOWN":
            return
        tick, covered = next(ticks), 0
        while node is not root and covered < windows.sliding_window_size + core.page_size:
            used[node.id] = tick
            covered += len(node.key)
            node = node.parent

    def set_component_device_value(node_id: int, given: Any, value: object) -> None:
        if given is kind and core.node_by_id(node_id).component_data[kind].host_value is None:
            used[node_id] = next(ticks)
        put(node_id, given, value)

    def split_node(key: object, child: TreeNode, length: int) -> tuple[TreeNode, object]:
        upper, action = split(key, child, length)
        used[upper.id] = used.get(child.id, 0)
        return upper, action

    def by_use(host: Any) -> list[TreeNode]:
        free = [node for node in host.cache.values() if not node.component_data[kind].host_lock_ref and not node.component_data[kind].lock_ref]
        return sorted(free, key=lambda node: (used.get(node.id, 0), _depth(node)))

    def install() -> None:
        host = core.host_lru_lists[kind]
        host.get_lru_no_host_lock = lambda: next(iter(by_use(host)), None)
        host.get_prev_no_host_lock = lambda node: next(iter(x for x in by_use(host) if x is not node), None)

    def reset_all() -> None:
        reset()
        used.clear()
        install()

    windows.refresh_lru = refresh_lru
    core.set_component_device_value = set_component_device_value
    core._split_node = split_node
    core.reset = reset_all
    install()


def _depth(node: TreeNode) -> int:
    depth = 0
    while node.parent is not None:
        node = node.parent
        depth += len(node.key)
    return depth
