"""The Rust core of UnifiedRadixCache. It shows no nodes, so its tree is read by node ids.

For an id the core returns the path, the page hashes, the device slots, and whether data is on the
host only. That is enough to find the nodes of a key, as calls need. It returns no locks, ages or
host slots, so there is no snapshot.

The core numbers nodes consecutively and raises KeyError for an id without a node, so ids are tried
one after another.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NoReturn, cast

from attrs import Factory, define, frozen

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang.hicache import HostedCache
from kvcanon.conformance.engines.sglang.keys import NodeKey
from kvcanon.conformance.engines.sglang.peer_types import Kind, LockReceipt, SGLangNode, Tensor
from kvcanon.conformance.engines.sglang.snapshot import Tree
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import Inserted
from kvcanon.spec.snapshot import HoldState
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    Component,
    Key,
    Medium,
    NodeId,
    Page,
    Slot,
    Slots,
)

AHEAD = 64
"""How many ids after the last known one are tried: more than one call creates."""


@define(eq=False)
class NativeTree(Tree):
    """The tree of a core that shows no nodes."""

    pages: dict[str, Page] = Factory(dict)
    """The pages of all inserted keys, by page hash."""
    ids: set[NodeId] = Factory(set)
    last: NodeId = 0

    def learn(self, key: Key) -> None:
        """Remember the pages of a key by their page hashes."""
        names = page_hashes(namespace_seed(key.namespace), key.pages)
        self.pages.update((name.hex(), page) for name, page in zip(names, key.pages, strict=True))

    @property
    def root(self) -> SGLangNode:
        """The root, with all nodes below it as they are now."""
        return self._all()[self.core.root_node_handle(None)]

    def handle(self, node: SGLangNode) -> object:
        """A node's id."""
        return node.id

    def node(self, handle: object) -> SGLangNode:
        """The node of an id."""
        return self._all()[cast("NodeId", handle)]

    def slots(self, node: SGLangNode, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The slots of a node; for host slots only their number is right."""
        if medium is GPU or node.parent is None or (component, CPU) not in self.pools:
            return super().slots(node, component, medium)
        if not self._is_live(node.id):
            return ()
        there = self.core.component_has_host_value_only(node.id, self.kinds[component])
        if component is FULL:
            there = self.core.is_backuped(node.id)
        pages = 1 if component is MAMBA else len(node.key) // self.keys.page_size
        return tuple(range(pages)) if there else ()

    def _all(self) -> dict[NodeId, SGLangNode]:
        """Every node."""
        self.core.backfill_missing_hash_values()
        nodes: dict[NodeId, EngineObject] = {}
        for node_id in self._live():
            nodes[node_id] = self._made(node_id)
        for node_id, node in nodes.items():
            path = self.core.collect_path_info([node_id])[0]
            if path:
                node.parent = nodes[path[-1].parent_id]
                node.parent.children[node_id] = node
        return nodes

    def _live(self) -> Iterator[NodeId]:
        """The ids that have nodes."""
        root_id = self.core.root_node_handle(None)
        if root_id not in self.ids:
            self.last = root_id - 1
        tried = sorted(self.ids) + list(range(self.last + 1, self.last + 1 + AHEAD))
        self.ids = {node_id for node_id in tried if self._is_live(node_id)}
        # The node of the last id may be gone, but the next id still follows it.
        self.last = max(self.last, *self.ids)
        return iter(sorted(self.ids))

    def _is_live(self, node_id: NodeId) -> bool:
        try:
            self.core.is_backuped(node_id)
        except KeyError:
            return False
        return True

    def _made(self, node_id: NodeId) -> object:
        pages = [self.pages[name] for name in self.core.get_hash_values(node_id)]
        tokens = array("q", [cast("int", token) for page in pages for token in page])
        return SimpleNamespace(
            id=node_id,
            parent=None,
            children={},
            key=NodeKey(tokens),
            component_data={kind: _Data(self.core, node_id, kind) for kind in self.kinds.values()},
            hit_count=0,
        )


@frozen(eq=False)
class _Data:
    """One component's data at a node, read anew at each access."""

    core: EngineObject
    node_id: NodeId
    kind: Kind

    @property
    def value(self) -> Tensor | None:
        """The token slots on the device; None if the node is gone."""
        try:
            return self.core.get_component_device_value(self.node_id, self.kind)
        except KeyError:
            return None


@define(eq=False)
class NativeCache(HostedCache):
    """A `UnifiedRadixCache` with a core that shows no nodes."""

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Insert the data of a key."""
        cast("NativeTree", self.tree).learn(key)
        return super().insert(
            key, start_pages, slots, counted_pages=counted_pages, priority=priority
        )

    @property
    def snapshot(self) -> NoReturn:
        """Not available. Raises: AttributeError."""
        raise AttributeError("snapshot")

    def _hold(
        self, receipt_id: int, node: SGLangNode, given: LockReceipt, transfer_id: int | None = None
    ) -> HoldState:
        """An empty hold: there is no snapshot that would show it."""
        del given
        return HoldState(receipt_id, node.id, None, state_held=False, transfer_id=transfer_id)
