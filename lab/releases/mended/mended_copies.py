"""Mends of SGLang's Python core: what an insert copies to the host (`mended_core`)."""

from __future__ import annotations

import itertools
from typing import Any

from kvcanon.lab.releases.mended.mended_windows import end_of, windows_of

Core = Any
"""SGLang's `UnifiedTreeCore`, which has no types here; nor has what it takes and returns."""
TreeNode = Any
Insert = Any


def copy_path_at_its_end(core: Core) -> None:
    """RES-5; free to all: an insert copies its path once, when all of it is there.

    SGLang copies on its way down each node that is hit often enough, and window data that came back
    only with a node that it copies anyway.
    """
    count, wants_copy = core._inc_hit_count_and_check, core._should_backup_after_insert  # noqa: SLF001
    build = core._build_backup_kv_action  # noqa: SLF001

    def count_hit(node: TreeNode) -> bool:
        count(node)
        return False

    def should_back_up(state: Insert) -> bool:
        wants_copy(state)
        return bool(_nodes_to_copy(core, state.target_node))

    def build_backup_kv_action(node: TreeNode, write_back: bool = False) -> object:  # SGLang's.
        action = build(node, write_back=write_back)
        if core.is_write_back:
            return action
        return type(action)([each.id for each in _nodes_to_copy(core, node)])

    core._inc_hit_count_and_check = count_hit  # noqa: SLF001
    core._should_backup_after_insert = should_back_up  # noqa: SLF001
    core._build_backup_kv_action = build_backup_kv_action  # noqa: SLF001


def _nodes_to_copy(core: Core, node: TreeNode) -> list[TreeNode]:
    """What an insert copies that ends at a node: new data, and then what came back.

    The upper comes before the lower, as far down as the path was hit often enough.
    """
    if not core.enable_hicache or core.is_write_back:
        return []
    while node.parent is not None and node.hit_count < core.write_through_threshold:
        node = node.parent
    path: list[TreeNode] = []
    end, size = end_of(node), core.page_size
    windows = [-(-each.sliding_window_size // size) * size for each in windows_of(core)]
    window_from = max(0, end - windows[0]) if windows else 0
    while node.parent is not None:
        path.insert(0, node)
        node = node.parent
    back = [each for each in path if each.backuped and end_of(each) > window_from]
    return [
        *(each for each in path if not each.backuped),
        *(each for each in back if core._needs_incremental_component_backup(each)),  # noqa: SLF001
    ]


def copy_during_a_copy(core: Core) -> None:
    """RES-5: data that comes to a node is copied also while an earlier copy of it is in flight.

    SGLang knows a copy by its node and keeps one of each, so that such data waits for a later
    insert. Here the next copy has a name of its own, by which its node is found.
    """
    resolve, mark, reset = core.node_by_id, core.mark_write_through_pending, core.reset
    build = core._build_backup_kv_action  # noqa: SLF001
    numbers = itertools.count(-2, -1)
    named: dict[int, int] = {}

    def node_by_id(name: int) -> TreeNode:
        return resolve(named.get(name, name))

    def name_of_copy(node_id: int) -> int:
        if node_by_id(node_id).write_through_pending_id is None:
            return node_id
        name = next(numbers)
        named[name] = node_id
        return name

    def build_backup_kv_action(node: TreeNode, write_back: bool = False) -> Any:  # noqa: ANN401
        action = build(node, write_back=write_back)
        return type(action)([name_of_copy(node_id) for node_id in action.node_ids])

    def mark_write_through_pending(names: list[int], ack_id: int) -> list[int]:
        # Copies end in their order, so that the node waits for the last one.
        for name in names:
            node_by_id(name).write_through_pending_id = None
        marked: list[int] = mark(names, ack_id)
        return marked

    def forget() -> None:
        named.clear()
        reset()

    core.node_by_id, core.reset = node_by_id, forget
    core.mark_write_through_pending = mark_write_through_pending
    core._build_backup_kv_action = build_backup_kv_action  # noqa: SLF001
