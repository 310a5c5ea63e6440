"""Chapter 12. Differences: the nodes and slots that differ between two states.

A step touches few nodes of a large tree. If the state before it was sound, a law needs to check
only the touched nodes, their parents and their children. A difference says where to look, not what
is right there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import TypeAlias

from attrs import fields

from kvcanon.spec.snapshot import NO_POOL, NodeState, Snapshot, kept
from kvcanon.spec.types import CPU, GPU, Component, Medium, NodeId, Slot

_FIELDS = tuple(each.name for each in fields(Snapshot) if each.name != "nodes")
_values = attrgetter(*_FIELDS)


class Difference:
    """Two states of one cache, and the nodes, fields and slots that differ."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self.before = before
        self.after = after
        self.touched: AbstractSet[NodeId] = _touched(before, after)
        """The nodes that are in one state only, or differ."""
        self.fields: AbstractSet[str] = _fields(before, after)
        """The names of the fields of the states, other than `nodes`, that differ."""
        self.is_none = not (self.touched or self.fields)
        """Whether the states are equal."""

    def unchanged(self, *fields: str) -> bool:
        """Whether no node was rebuilt, and these fields are equal in both states."""
        return not self.rebuilt and self.fields.isdisjoint(fields)

    @kept
    def shifted(self) -> AbstractSet[NodeId]:
        """The nodes that are equal in both states but at another depth: a node above them grew."""
        if not self.rebuilt:
            return frozenset()
        before, after = self.before, self.after
        below: list[NodeId] = []
        for node_id in self.touched:
            was, now = before.nodes.get(node_id), after.nodes.get(node_id)
            if was is not None and now is not None and before.end(was) != after.end(now):
                below.extend((*was.child_ids, *now.child_ids))
        shifted: set[NodeId] = set()
        while below:
            node_id = below.pop()
            if node_id not in self.touched and node_id not in shifted:
                shifted.add(node_id)
                below.extend(after.nodes[node_id].child_ids)
        return shifted

    @kept
    def changed(self) -> tuple[list[NodeState], list[NodeState]]:
        """The nodes below the root that differ or are at another depth, before and after."""
        ids = self.touched | self.shifted
        return _in_order(self.before, ids), _in_order(self.after, ids)

    @kept
    def rebuilt(self) -> AbstractSet[NodeId]:
        """The touched nodes that differ in their place, their pages, or their data.

        A node of which only ticks, hits or page hashes changed is not rebuilt.
        """
        here, there = self.before.nodes, self.after.nodes
        return {
            node_id
            for node_id in self.touched
            if (was := here.get(node_id)) is None
            or (now := there.get(node_id)) is None
            or was.data != now.data
            or was.child_ids != now.child_ids
            or was.pages != now.pages
            or (was.parent_id, was.namespace) != (now.parent_id, now.namespace)
        }

    @kept
    def family(self) -> AbstractSet[NodeId]:
        """The rebuilt nodes and all that were or are their parents and children.

        Every other node has the same parent and children as before, and they are unchanged.
        """
        ids = set(self.rebuilt)
        for state in (self.before, self.after):
            for node_id in self.rebuilt:
                node = state.nodes.get(node_id)
                if node is not None:
                    ids.update(node.child_ids)
                    if node.parent_id is not None:
                        ids.add(node.parent_id)
        return ids

    @kept
    def remapped(self) -> AbstractSet[Slot]:
        """The full slots that have another window slot than before."""
        here, there = self.before.swa_of_full, self.after.swa_of_full
        if "swa_of_full" not in self.fields:
            return frozenset()
        remapped = {slot for slot, led_to in there.items() if here.get(slot) != led_to}
        remapped.update(here.keys() - there.keys())
        return remapped

    @kept
    def balanced(self) -> bool:
        """Whether each slot that left a free list, a request or a node went to another of them."""
        if self.unchanged("pools"):
            return True
        pools = ((each, medium) for each in self.after.config.components for medium in (GPU, CPU))
        return all(self._is_balanced(*pool) for pool in pools)

    def _is_balanced(self, component: Component, medium: Medium) -> bool:
        was = self.before.pools.get((component, medium), NO_POOL)
        now = self.after.pools.get((component, medium), NO_POOL)
        if was is now and not self.rebuilt:
            return True
        lost = _slots_of(self.rebuilt_nodes_before, component, medium)
        gained = _slots_of(self.rebuilt_nodes, component, medium)
        if was.held != now.held:
            lost.extend(was.held - now.held)
            gained.extend(now.held - was.held)
        if was.free != now.free:
            if len(was.free) != len(was.free_set) or len(now.free) != len(now.free_set):
                return False
            lost.extend(was.free_set - now.free_set)
            gained.extend(now.free_set - was.free_set)
        return was.capacity == now.capacity and (lost == gained or sorted(lost) == sorted(gained))

    # The nodes that laws of nodes check.

    @kept
    def rebuilt_nodes(self) -> Collection[NodeState]:
        """The rebuilt nodes, as they are after the step."""
        return self.nodes_after(self.rebuilt)

    @kept
    def rebuilt_nodes_before(self) -> Collection[NodeState]:
        """The rebuilt nodes, as they were before the step."""
        return _below_root(self.before, self.rebuilt)

    @kept
    def rebuilt_and_adjacent(self) -> Collection[NodeState]:
        """The rebuilt nodes, their parents and their children, as they are after the step."""
        return self.nodes_after(self.family)

    def nodes_after(self, ids: Iterable[NodeId]) -> Collection[NodeState]:
        """The nodes with these ids, as they are after the step."""
        return _below_root(self.after, ids)


NodesOf: TypeAlias = Callable[[Difference], Collection[NodeState]]
"""Which nodes of a state to look at after a step."""

REBUILT: NodesOf = attrgetter("rebuilt_nodes")
REBUILT_AND_ADJACENT: NodesOf = attrgetter("rebuilt_and_adjacent")


def _touched(before: Snapshot, after: Snapshot) -> AbstractSet[NodeId]:
    here, there = before.nodes, after.nodes
    if here is there:
        return frozenset()
    touched = {
        node_id
        for node_id, node in here.items()
        if (other := there.get(node_id)) is not node and other != node
    }
    touched.update(there.keys() - here.keys())
    return touched


def _fields(before: Snapshot, after: Snapshot) -> AbstractSet[str]:
    if before is after:
        return frozenset()
    both = zip(_FIELDS, _values(before), _values(after), strict=True)
    return frozenset([name for name, was, now in both if was is not now and was != now])


def _slots_of(nodes: Iterable[NodeState], component: Component, medium: Medium) -> list[Slot]:
    """The slots that nodes have in a pool."""
    found: list[Slot] = []
    for node in nodes:
        data = node.data.get(component)
        slots = None if data is None else data.device if medium is GPU else data.host
        if slots:
            found.extend(slots)
    return found


def _below_root(state: Snapshot, ids: Iterable[NodeId]) -> list[NodeState]:
    nodes, root_id = state.nodes, state.root_id
    return [nodes[node_id] for node_id in ids if node_id in nodes and node_id != root_id]


def _in_order(state: Snapshot, ids: Collection[NodeId]) -> list[NodeState]:
    """The nodes below the root with these ids, in the order of the state."""
    if not ids:
        return []
    return [node for node in state.below_root() if node.node_id in ids]
