"""The Rust core of UnifiedRadixCache: its tree is read by node ids, as it shows no nodes.

For an id it gives the path, the page hashes, the device slots, and whether data is on the host
only. That is enough to find the nodes of a key, which is what calls need. It gives no locks, ages
or host slots; so there is no snapshot.

Ids are tried one after the other: they are given out in turn, and the core raises KeyError for an
id without a node.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn, cast

from attrs import Factory, define, frozen

from kvcanon.conformance.engines.sglang.factory import World, kinds_of
from kvcanon.conformance.engines.sglang.hicache import HostedCache
from kvcanon.conformance.engines.sglang.keys import Keys
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
"""So many ids after the last that is known are tried: more than a call gives out."""


@define(eq=False)
class NativeTree(Tree):
    """The nodes of a core that shows none."""

    pages: dict[str, Page] = Factory(dict)
    """Pages by their names, of all keys that were handed over."""
    ids: set[NodeId] = Factory(set)
    last: NodeId = 0

    def learn(self, key: Key) -> None:
        """Know the pages of a key by their names."""
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
        """The slots of a node; on the host only how many there are is true."""
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
        nodes: dict[NodeId, Any] = {}
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
        # The last one that was given out may be gone: the next one follows it all the same.
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
            key=_Edge(tokens),
            component_data={kind: _Data(self.core, node_id, kind) for kind in self.kinds.values()},
            hit_count=0,
        )


class _Edge:
    """The tokens of a node, as SGLang's keys have them."""

    def __init__(self, tokens: array[int]) -> None:
        self.token_ids, self.extra_key, self.is_bigram = tokens, None, False

    def __len__(self) -> int:
        return len(self.token_ids)


@frozen(eq=False)
class _Data:
    """One component's data at a node, as it is whenever it is looked at."""

    core: Any
    node_id: NodeId
    kind: Kind

    @property
    def value(self) -> Tensor | None:
        """The slots of tokens on the device; none where the node is gone."""
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
        """Hand over the data of a key."""
        cast("NativeTree", self.tree).learn(key)
        return super().insert(
            key, start_pages, slots, counted_pages=counted_pages, priority=priority
        )

    @property
    def snapshot(self) -> NoReturn:
        """It has none. Raises: AttributeError."""
        raise AttributeError("snapshot")

    def _hold(
        self, receipt_id: int, node: SGLangNode, given: LockReceipt, transfer_id: int | None = None
    ) -> HoldState:
        """Nobody is shown it."""
        del given
        return HoldState(receipt_id, node.id, None, state_held=False, transfer_id=transfer_id)


def native_tree_of(world: World) -> NativeTree:
    """The tree of a cache with such a core."""
    keys = Keys(world.config.page_size, "q")
    return NativeTree(world.cache.tree_core, keys, kinds_of(world.config), world.pools)
