"""kvcanon's tree core under SGLang's UnifiedRadixCache: its nodes, for snapshots and calls.

The nodes are those of the native core. What SGLang owns (slots, copies, acknowledgements) is read
from SGLang, as for its own cores, so that the bridge is judged, and not the native core alone.
"""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import cast

from attrs import Factory, define, frozen

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang.hicache import HostedCache
from kvcanon.conformance.engines.sglang.keys import NodeKey
from kvcanon.conformance.engines.sglang.peer_types import Kind, LockReceipt, SGLangNode, Tensor
from kvcanon.conformance.engines.sglang.snapshot import Tree
from kvcanon.spec.snapshot import HoldState, Usage
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Medium, NodeId

COMPONENTS = (FULL, SWA, MAMBA)
"""In the order of the native core's numbers."""


@define(eq=False)
class NodeTree(Tree):
    """The tree of kvcanon's core; each call makes new node objects."""

    @property
    def root(self) -> SGLangNode:
        """The root, with all nodes below it as they are now."""
        return self.nodes_by_id()[self.core.root_node_handle(None)]

    def handle(self, node: SGLangNode) -> object:
        """A node's id."""
        return node.id

    def node(self, handle: object) -> SGLangNode:
        """The node of an id, or of the name of a copy of it."""
        return self.nodes_by_id()[self.core.node_of(cast("NodeId", handle))]

    def order(self, component: Component, medium: Medium) -> list[NodeId]:
        """The nodes that have a component's data on a medium, least recently used first."""
        own = self._components.index(component)
        keys = []
        for handle, seen in self._seen():
            data = seen[6][own]
            if data[0 if medium is GPU else 1] is not None:
                keys.append((seen[10] if component is FULL else data[5], seen[5], handle))
        return [handle for _, _, handle in sorted(keys)]

    def usage(self, component: Component) -> Usage:
        """SGLang's evictable and protected counts."""
        size = 1 if component is MAMBA else self.keys.page_size
        kind = self.kinds[component]
        evictable = self.core.component_evictable_size(kind)
        protected = self.core.component_protected_size(kind)
        return Usage(evictable // size, protected // size)

    def ticks(self, time: float) -> int:
        """An access time, which is in ticks."""
        return int(time)

    def hold_of(self, given: LockReceipt) -> tuple[int | None, bool]:
        """The first page of the window that a lock holds, and whether it holds a state."""
        receipt = given.component_lock_uuids.get(self.kinds[FULL])
        for number, _, window_from, holds_state, _ in self.core.native.view.holds():
            if number == receipt:
                return window_from, holds_state
        return (0 if SWA in self.kinds else None), MAMBA in self.kinds

    @property
    def _components(self) -> list[Component]:
        return [each for each in COMPONENTS if each in self.kinds]

    def _seen(self) -> list[tuple[NodeId, EngineObject]]:
        native = self.core.native
        # Reading the events that wait computes page hashes, which the nodes then show.
        native.view.pending_events()
        return list(zip(native.nodes.all(), native.view.nodes(), strict=True))

    def nodes_by_id(self) -> dict[NodeId, SGLangNode]:
        """Every node as it is now."""
        listed = self._seen()
        handles = {seen[0]: handle for handle, seen in listed}
        nodes: dict[NodeId, EngineObject] = {}
        for handle, seen in listed:
            nodes[handle] = self._made(handle, seen)
            if seen[1] is not None:
                parent = nodes[handles[seen[1]]]
                nodes[handle].parent = parent
        for handle, seen in listed:
            nodes[handle].children = {handles[child]: nodes[handles[child]] for child in seen[2]}
        return nodes

    def _made(self, handle: NodeId, seen: EngineObject) -> object:
        _, _, _, number, words, _, data, hits, priority, created, used, hashes = seen
        scope = self.core.native.scope(number)
        tokens = array("q", array("I", words))
        return SimpleNamespace(
            id=handle,
            parent=None,
            children={},
            key=NodeKey(tokens, scope[0]),
            component_data={
                self.kinds[component]: _NodeData(
                    self.core, handle, self.kinds[component], own[2], own[2]
                )
                for component, own in zip(self._components, data, strict=True)
            },
            hit_count=hits,
            priority=priority,
            creation_time=created,
            last_access_time=used,
            hash_value=None if hashes is None else _hex(hashes),
        )


@frozen(eq=False)
class _NodeData:
    """One component's data at a node. Its token slots are read anew at each access.

    The bridge's tables lead from the rows of the tree's nodes to them, and SGLang's map from full
    slots on the device to window slots.
    """

    core: EngineObject
    node_id: NodeId
    kind: Kind
    lock_ref: int
    host_lock_ref: int
    metadata: dict[str, object] = Factory(dict)

    @property
    def value(self) -> Tensor | None:
        """The token slots on the device; None if the node is gone or has none."""
        return self.core.slots_at(self.node_id, self.kind)

    @property
    def host_value(self) -> Tensor | None:
        """The token slots on the host; None if the node is gone or has none."""
        return self.core.slots_at(self.node_id, self.kind, 1)


def _hex(hashes: bytes) -> list[str]:
    return [hashes[at : at + 32].hex() for at in range(0, len(hashes), 32)]


@define(eq=False)
class BridgedCache(HostedCache):
    """A `UnifiedRadixCache` with kvcanon's core."""

    def _hold(
        self, receipt_id: int, node: SGLangNode, given: LockReceipt, transfer_id: int | None = None
    ) -> HoldState:
        """What a lock holds, as its receipt in the native core says."""
        window_from, has_state = cast("NodeTree", self.tree).hold_of(given)
        return HoldState(
            receipt_id, node.id, window_from, has_state and node.parent is not None, transfer_id
        )
