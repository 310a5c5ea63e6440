"""Walks over the whole tree, or over paths: what the scheduler and its checks ask for seldom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    RadixCacheWalkResult,
    TreePathNodeInfo,
)

from kvcanon.optimized import _core
from kvcanon.optimized.sglang.native_tree import TreeOfNodes
from kvcanon.optimized.sglang.slot_table import SlotTable
from kvcanon.spec.errors import BadArgument

FULL, SWA = ComponentType.FULL, ComponentType.SWA


def path_to(nodes: _core.Nodes, node_id: int) -> list[int]:
    """The nodes from below the root down to a node. Raises: KeyError, for one that is gone."""
    path: list[int] = []
    try:
        parent = nodes.parent(node_id)
        while parent is not None:
            path.append(node_id)
            node_id, parent = parent, nodes.parent(parent)
    except BadArgument as error:
        raise KeyError(node_id) from error
    return path[::-1]


def path_info(nodes: _core.Nodes, node_id: int, page_size: int) -> tuple[TreePathNodeInfo, ...]:
    """The key span, the full data and the children of each node of a path."""
    found, above = [], nodes.root()
    for each in path_to(nodes, node_id):
        first, last, (full, _, _), _ = nodes.describe(each)
        begin, end = first * page_size, last * page_size
        length = end - begin if full else None
        below = len(nodes.children(each))
        found.append(TreePathNodeInfo(each, above, begin, end, length, below))
        above = each
    return tuple(found)


def weight_order(nodes: _core.Nodes, node_ids: Sequence[int]) -> list[int]:
    """The positions of nodes, depth first; the sibling above most of them comes first."""
    here: dict[int, list[int]] = {}
    weights: Counter[int] = Counter()
    for at, node_id in enumerate(node_ids):
        here.setdefault(node_id, []).append(at)
        weights.update([nodes.root(), *path_to(nodes, node_id)])
    order: list[int] = []
    # A node's requests come after those below it.
    stack = [(nodes.root(), False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order += here.get(node, [])
            continue
        stack.append((node, True))
        below = [child for child in nodes.children(node) if weights[child]]
        below.sort(key=lambda child: -weights[child])
        stack += [(child, False) for child in reversed(below)]
    return order


def all_slots(nodes: _core.Nodes, table: SlotTable, kind: ComponentType) -> torch.Tensor:
    """The token slots of a component on the device, of all nodes."""
    found = [
        table.get(nodes.slots(node, None, kind))
        for node, _ in _with_parents(nodes)
        if nodes.has(node, kind)
    ]
    return torch.cat(found) if found else table.nothing


def canary(
    native: TreeOfNodes, full: SlotTable, *, unlocked_only: bool, swa: bool
) -> RadixCacheWalkResult:
    """Every full token slot, with its position and the slot before it on its path."""
    nodes, locks = native.nodes, _locks(native, SWA if swa else FULL)
    last_slots = {nodes.root(): -1}
    rows: list[tuple[int, int, int]] = []
    for node, parent in _with_parents(nodes):
        first, _, (has_full, has_swa, _), _ = nodes.describe(node)
        before = last_slots[parent]
        slots = full.get(nodes.slots(node)).tolist() if has_full else []
        last_slots[node] = slots[-1] if slots else before
        if (swa and not has_swa) or (unlocked_only and locks[node]):
            continue
        position = first * native.settings.page_size
        for slot in slots:
            rows.append((slot, position, before))
            position, before = position + 1, slot
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    slot_column, positions, befores = (torch.tensor(each, dtype=torch.int64) for each in columns)
    return RadixCacheWalkResult(
        slot_indices=slot_column, positions=positions, prev_slot_indices=befores
    )


def unlocked(native: TreeOfNodes, node_ids: Sequence[int]) -> list[int]:
    """Those of some nodes that are gone, or that no lock holds."""
    locks = _locks(native, FULL)
    return [node_id for node_id in node_ids if not locks.get(node_id)]


def drawn(native: TreeOfNodes, page_size: int) -> str:
    """The tree as text, a node a line."""
    nodes, locks, lines = native.nodes, _locks(native, FULL), []
    for node, parent in [(nodes.root(), None), *_with_parents(nodes)]:
        first, last, device, host = nodes.describe(node)
        depth = 0 if parent is None else len(path_to(nodes, node))
        lines.append(
            f"{'  ' * depth}[{node}] {(last - first) * page_size} full_lock={locks[node]} "
            f"device={device} host={host}"
        )
    return "\n".join(lines)


def _with_parents(nodes: _core.Nodes) -> Iterator[tuple[int, int]]:
    """Every node but the root, with the node above, parents first."""
    for node in nodes.all():
        parent = nodes.parent(node)
        if parent is not None:
            yield node, parent


def _locks(native: TreeOfNodes, kind: ComponentType) -> dict[int, int]:
    """How often each node's component is locked."""
    # Components that the tree lacks are left out; full data comes first, then window data.
    return {
        handle: seen[6][kind][2]
        for handle, seen in zip(native.nodes.all(), native.view.nodes(), strict=True)
    }
