"""Mends of SGLang's Python core that concern window data on the host; `mended_core` says what for.

A component of SGLang's has one kind of data. That of windows is the one with a pool for window data
on the host, under an attribute that no other has.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import count
from typing import Any

Core = Any
"""SGLang's `UnifiedTreeCore`, which has no types here; nor has what it takes and returns."""
Windows = Any
TreeNode = Any
Kind = Any

_POOL = "_swa_kv_pool_host"
_COMPONENTS = "sglang.srt.mem_cache.unified_cache.components"


def windows_of(core: Core) -> Iterator[Windows]:
    """The component of window data, if the core has one."""
    return (each for each in core.components_by_type.values() if hasattr(each, _POOL))


def end_of(node: TreeNode) -> int:
    """How many tokens the path to a node has."""
    tokens = 0
    while node.parent is not None:
        tokens += len(node.key)
        node = node.parent
    return tokens


def evict_what_lacks(core: Core) -> None:
    """REC-3: window data leaves the host until a copy has room.

    SGLang's controller asks for room for all of a copy, also where some is free.
    """
    evict = core.drive_host_eviction
    pools = {each.component_type: each for each in windows_of(core)}

    def drive_host_eviction(kind: Kind, tokens: int) -> object:
        pool = getattr(pools.get(kind), _POOL, None)
        return evict(kind, tokens if pool is None else tokens - pool.available_size())

    core.drive_host_eviction = drive_host_eviction


def make_room_for_a_node(core: Core) -> None:
    """Free to all: the host makes room for a node's full data first, and then for its window data.

    SGLang does it the other way round where a window leaves the device under write_back, and
    evicts windows of nodes that leave the host anyway.
    """
    for windows in windows_of(core):
        _full_first(core, windows)


def _full_first(core: Core, windows: Windows) -> None:
    kind, full = windows.component_type, core.components[0]
    following, evict = core.evict_device_next_node, core.drive_host_eviction
    named: list[int] = []

    def evict_device_next_node(*given: object) -> Any:  # noqa: ANN401
        result = following(*given)
        named[:] = [each for each in (result.swa_backup_node_id,) if each is not None]
        return result

    def drive_host_eviction(given: Kind, tokens: int) -> Any:  # noqa: ANN401
        node = core.node_by_id(named.pop()) if named and given == kind else None
        if node is None or node.backuped:
            return evict(given, tokens)
        lacking = len(node.key) - full.cache.cache_controller.mem_pool_host.available_size()
        if lacking <= 0:
            return evict(given, tokens)
        first = evict(full.component_type, lacking)
        then = evict(given, tokens - first.tracker.get(given, 0))
        for freed in ("device_frees", "host_frees", "tracker"):
            for part, more in getattr(then, freed).items():
                getattr(first, freed)[part] += more
            getattr(then, freed).clear()
        first.cache_actions += then.cache_actions
        then.cache_actions.clear()
        return first

    core.evict_device_next_node = evict_device_next_node
    core.drive_host_eviction = drive_host_eviction


def evict_windows_by_use(core: Core) -> None:
    """REC-3, LOCK-4: window data leaves the host by its last use, and stays while it is locked.

    SGLang takes what left the device first, and its locks of the device leave the host alone
    (`Profile.host_order_by_use`, `Profile.locks_hold_host_copies`). Free to all: data that an
    insert brings back to the device is as recent there as on the host, unless it is in the last
    window of the insert. SGLang makes it the most recent one.
    """
    for windows in windows_of(core):
        used = _last_uses(core, windows)
        _order_host(core, windows.component_type, used)
        _keep_use(core, windows.component_type, used)


def copy_own_windows(core: Core) -> None:
    """RES-2: a node goes to the host as a whole, and with it no other node's window data.

    SGLang copies the windows of the nodes above, too, under write_back without their full data
    (`Profile.whole_nodes_on_host`).
    """
    for windows in windows_of(core):
        _copy_own(core, windows)


def copy_windows_of_backed_nodes(core: Core) -> None:
    """EVICT-8: under write_back window data is copied where full data has a copy already.

    SGLang loses the window data of such a node, in walks of either kind.
    """
    for windows in windows_of(core):
        _copy_first(core, windows)
        _copy_before_leaf(core, windows)


def _last_uses(core: Core, windows: Windows) -> dict[int, int]:
    """When each node's window data was last used, by node; kept up to date."""
    kind, ticks = windows.component_type, count(1)
    used: dict[int, int] = {}
    refresh, put = windows.refresh_lru, core.set_component_device_value
    split = core._split_node  # noqa: SLF001  # Here and below, they have no other names.

    def refresh_lru(phase: Any, node: TreeNode, root: TreeNode) -> None:  # noqa: ANN401
        refresh(phase, node, root)
        if phase.name == "WALKDOWN":
            return
        tick, below = next(ticks), 0
        while node is not root and below < windows.sliding_window_size + core.page_size:
            used[node.id] = tick
            below += len(node.key)
            node = node.parent

    def set_component_device_value(node_id: int, given: Kind, value: object) -> None:
        # What a load brings was used by the match before it.
        if given == kind and core.node_by_id(node_id).component_data[kind].host_value is None:
            used[node_id] = next(ticks)
        put(node_id, given, value)

    def split_node(key: object, child: TreeNode, length: int) -> tuple[TreeNode, object]:
        upper, action = split(key, child, length)
        used[upper.id] = used.get(child.id, 0)
        return upper, action

    windows.refresh_lru = refresh_lru
    core.set_component_device_value = set_component_device_value
    core._split_node = split_node  # noqa: SLF001
    return used


def _order_host(core: Core, kind: Kind, used: dict[int, int]) -> None:
    """Let the list of window data on the host alone go by last use."""
    reset = core.reset

    def first(listed: Any, apart: TreeNode | None) -> TreeNode | None:  # noqa: ANN401
        free = [node for node in listed.cache.values() if node is not apart and _is_free(node)]
        return min(free, key=lambda node: (used.get(node.id, 0), end_of(node)), default=None)

    def _is_free(node: TreeNode) -> bool:
        data = node.component_data[kind]
        return not data.host_lock_ref and not data.lock_ref

    def order() -> None:
        listed = core.host_lru_lists[kind]
        listed.get_lru_no_host_lock = lambda: first(listed, None)
        listed.get_prev_no_host_lock = lambda node: first(listed, node)

    def reset_all() -> None:
        reset()
        used.clear()
        order()

    core.reset = reset_all
    order()


def _keep_use(core: Core, kind: Kind, used: dict[int, int]) -> None:
    """Let window data that comes back to the device take the place of its last use there."""
    put = core.set_component_device_value

    def key(node: TreeNode) -> tuple[int, int]:
        return used.get(node.id, 0), end_of(node)

    def set_component_device_value(node_id: int, given: Kind, value: object) -> None:
        put(node_id, given, value)
        node, listed = core.node_by_id(node_id), core.lru_lists[kind]
        if given != kind or node.component_data[kind].host_value is None:
            return
        listed.remove_node(node)
        newer = [each for each in listed.cache.values() if key(each) > key(node)]
        if newer:
            listed.insert_after(min(newer, key=key), node)
        else:
            listed.insert_mru(node)

    core.set_component_device_value = set_component_device_value


def _copy_own(core: Core, windows: Windows) -> None:
    def collect_own(node: TreeNode) -> list[TreeNode]:
        is_due = core.has_swa_host_pool and _lacks_copy(node, windows.component_type)
        return [node] if is_due else []

    windows._collect_unbacked_swa_nodes = collect_own  # noqa: SLF001


def _copy_first(core: Core, windows: Windows) -> None:
    kind, following = windows.component_type, windows._evict_device_next_node  # noqa: SLF001
    # The node that was copied last: where the host has no room it is evicted without a copy.
    tried: list[int] = []

    def evict_device_next_node(tracker: dict[Kind, int], *frees: object, **more: object) -> object:
        victim = windows._evict_device_cursor  # noqa: SLF001
        listed = core.lru_lists[kind]
        if victim is None or not listed.in_list(victim):
            victim = listed.get_lru_no_lock()
        short = tracker[kind] < windows._evict_device_request_cnt  # noqa: SLF001
        due = core.is_write_back and short and victim is not None and victim.backuped
        if due and _lacks_copy(victim, kind) and tried != [victim.id]:
            tried[:] = [victim.id]
            return import_module(_COMPONENTS).InternalStateBackup(victim.id, len(victim.key))
        tried.clear()
        return following(tracker, *frees, **more)

    windows._evict_device_next_node = evict_device_next_node  # noqa: SLF001


def _copy_before_leaf(core: Core, windows: Windows) -> None:
    evict, kind = core.evict_device_leaf, windows.component_type

    def evict_device_leaf(node_id: int, is_write_back: bool) -> object:
        node = core.node_by_id(node_id)
        if is_write_back and node.backuped and _lacks_copy(node, kind):
            tokens = len(node.component_data[kind].value)
            if getattr(windows, _POOL).available_size() < tokens:
                windows.cache.evict_host(tokens, kind)
            windows.cache.backup_node_for_write_back(node_id)
            # SGLang waits only where full data was copied.
            windows.cache.writing_check(write_back=True)
        return evict(node_id, is_write_back)

    core.evict_device_leaf = evict_device_leaf


def _lacks_copy(node: TreeNode, kind: Kind) -> bool:
    data = node.component_data[kind]
    return data.value is not None and data.host_value is None
