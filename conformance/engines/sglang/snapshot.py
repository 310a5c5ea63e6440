"""Makes a snapshot of SGLang's tree through its public attributes.

SGLang has no LRU list of full data; the snapshot orders it by `last_access_time`, which the
eviction policies use. Everything else is read as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from attrs import define, frozen

from kvcanon.conformance.adapter_parts.token_slots import namespace_of_extra_key
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang.factory import World, kinds_of
from kvcanon.conformance.engines.sglang.keys import Keys, keys_of
from kvcanon.conformance.engines.sglang.peer_types import Kind, LockReceipt, SGLangNode
from kvcanon.conformance.engines.sglang.pools import SlotPool
from kvcanon.spec.snapshot import ComponentState, NodeState, Usage
from kvcanon.spec.types import (
    CPU,
    DEFAULT_NAMESPACE,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Key,
    Medium,
    NodeId,
    Slot,
    TransferId,
)

Span = tuple[int, int]
"""A range of pages: first, and one past the last."""

TICKS = 100_000
"""SGLang makes each ancestor of a used node a hundred-thousandth of a tick older."""


@frozen(eq=False)
class MatchedNode:
    """A node on a key's path, and how many of its pages the key shares."""

    node: SGLangNode
    end_pages: int
    """Pages from the root to the end of the node."""
    shared_pages: int


@define(eq=False)
class Tree:
    """An SGLang tree."""

    core: EngineObject
    """The object that has `root_node`, `lru_lists` and the sizes."""
    keys: Keys
    kinds: Mapping[Component, Kind]
    pools: Mapping[tuple[Component, Medium], SlotPool]

    @classmethod
    def of(cls, world: World, keys: Keys | None = None) -> Self:
        """The tree of a cache, at the attribute where its release has it.

        `keys` are given where the root does not show its token container.
        """
        core: EngineObject = getattr(world.cache, "tree_core", world.cache)
        keys = keys or keys_of(world.config.page_size, core.root_node.key.token_ids)
        return cls(core, keys, kinds_of(world.config), world.pools)

    @property
    def root(self) -> SGLangNode:
        """The root."""
        return self.core.root_node

    def handle(self, node: SGLangNode) -> object:
        """The handle of a node in SGLang's calls: the node itself, or its id."""
        return node.id if hasattr(self.core, "node_by_id") else node

    def node(self, handle: object) -> SGLangNode:
        """The node of a handle that SGLang returns."""
        return self.core.node_by_id(handle) if isinstance(handle, int) else handle

    def data(self, node: SGLangNode, component: Component) -> EngineObject:
        """A component's data at a node."""
        return node.component_data[self.kinds[component]]

    def slots(self, node: SGLangNode, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The slots of a node in a pool; empty at the root, and without data."""
        pool = self.pools.get((component, medium))
        if pool is None or node.parent is None:
            return ()
        data = self.data(node, component)
        return pool.slots(data.value if medium is GPU else data.host_value) or ()

    def nodes(self) -> Iterator[SGLangNode]:
        """Every node, parents before children."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def path(self, key: Key) -> list[MatchedNode]:
        """The nodes that share pages with a key, from the root's child down."""
        stops: list[MatchedNode] = []
        node, at = self.root, 0
        while at < len(key):
            child = self._child(node, key, at)
            if child is None:
                break
            pages = self.keys.pages(child.key)
            shared = _shared(pages, key.pages[at:])
            stops.append(MatchedNode(child, at + len(pages), shared))
            if shared < len(pages):
                break
            node, at = child, at + shared
        return stops

    def _child(self, node: SGLangNode, key: Key, at: int) -> SGLangNode | None:
        for child in node.children.values():
            if namespace_of_extra_key(child.key.extra_key) != key.namespace:
                continue
            if self.keys.pages(child.key)[:1] == key.pages[at : at + 1]:
                return child
        return None

    def depth_pages(self, node: SGLangNode) -> int:
        """Pages from the root to the end of a node."""
        pages = 0
        while node.parent is not None:
            pages += len(node.key) // self.keys.page_size
            node = node.parent
        return pages

    def order(self, component: Component, medium: Medium) -> list[NodeId]:
        """The nodes that have a component's data on a medium, least recently used first."""
        if component is FULL:
            there = [node for node in self.nodes() if self.slots(node, FULL, medium)]
            return [node.id for node in sorted(there, key=lambda node: node.last_access_time)]
        lists = self.core.lru_lists if medium is GPU else self.core.host_lru_lists
        chain = lists[self.kinds[component]]
        found: list[NodeId] = []
        # Nodes have the links of several lists; this is the index of the list's own.
        own = getattr(chain, "_pt", chain.component_type)
        node = chain.tail.lru_prev[own]
        while node is not None and node is not chain.head and len(found) <= len(chain.cache):
            found.append(node.id)
            node = node.lru_prev[own]
        return found

    def usage(self, component: Component) -> Usage:
        """SGLang's evictable and protected counts."""
        size = 1 if component is MAMBA else self.keys.page_size
        kind = self.kinds[component]
        evictable = self.core.component_evictable_size_[kind]
        protected = self.core.component_protected_size_[kind]
        return Usage(evictable // size, protected // size)

    def ticks(self, time: float) -> int:
        """Convert an access time, which is a counter of uses, to ticks."""
        return round(time * TICKS)

    def born(self, node: SGLangNode) -> int:
        """When a node was made."""
        return round(getattr(node, "creation_time", 0))


def _shared(ours: tuple[object, ...], theirs: tuple[object, ...]) -> int:
    for shared, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return shared
    return min(len(ours), len(theirs))


def node_states(
    tree: Tree, nodes: Sequence[SGLangNode], backing: Mapping[tuple[NodeId, Component], TransferId]
) -> dict[NodeId, NodeState]:
    """The states of all nodes, the root first; `backing` has the backups in flight."""
    return {node.id: _seen(tree, node, nodes[0].id, backing) for node in nodes}


def mapping_of(world: World, slots: Sequence[Slot] | None = None) -> dict[Slot, Slot]:
    """Maps full slots to the window slots that attention reads; all full slots if none are given.

    A pool may have many thousands of slots, so ask for those of a call. 0 in SGLang means none.
    """
    if (SWA, GPU) not in world.pools:
        return {}
    full, swa = world.pools[FULL, GPU], world.pools[SWA, GPU]
    given = range(full.capacity) if slots is None else slots
    asked = [slot for slot in given if 0 <= slot < full.capacity]
    by_slot = world.allocator.full_to_swa_index_mapping[full.tokens(asked)].reshape(
        len(asked), full.page_size
    )
    mapped = by_slot.any(dim=1).nonzero().reshape(-1)
    window = swa.slots_of(by_slot[mapped].reshape(-1).tolist())
    return {asked[at]: slot for at, slot in zip(mapped.tolist(), window, strict=True)}


def _seen(
    tree: Tree,
    node: SGLangNode,
    root_id: NodeId,
    backing: Mapping[tuple[NodeId, Component], TransferId],
) -> NodeState:
    at_root = node.id == root_id
    return NodeState(
        node_id=node.id,
        parent_id=None if node.parent is None else node.parent.id,
        child_ids=tuple([child.id for child in node.children.values()]),
        namespace=DEFAULT_NAMESPACE if at_root else namespace_of_extra_key(node.key.extra_key),
        pages=() if at_root else tree.keys.pages(node.key),
        data={}
        if at_root
        else {c: _data(tree, node, c, backing.get((node.id, c))) for c in tree.kinds},
        hit_count=node.hit_count,
        priority=0 if at_root else getattr(node, "priority", 0),
        created=tree.born(node),
        last_access=tree.ticks(node.last_access_time),
        hashes=_hashes(node),
    )


def _data(
    tree: Tree, node: SGLangNode, component: Component, backing: TransferId | None
) -> ComponentState:
    data = tree.data(node, component)
    host = tree.pools.get((component, CPU))
    return ComponentState(
        device=tree.pools[component, GPU].slots(data.value),
        host=None if host is None else host.slots(data.host_value),
        lock_refs=data.lock_ref,
        backing=backing,
    )


def _hashes(node: SGLangNode) -> tuple[bytes, ...] | None:
    # Nodes of caches that emit no events have no hashes.
    hashes = getattr(node, "hash_value", None)
    return None if hashes is None else tuple(map(bytes.fromhex, hashes))


def held_window(tree: Tree, node: SGLangNode, given: LockReceipt) -> tuple[int, tuple[Span, ...]]:
    """The window data that a lock holds: its first page, and the spans that it leaves out.

    SGLang marks the node where the window begins. Earlier releases record the nodes without window
    data, and do not count them; later releases count all.
    """
    kind = tree.kinds[SWA]
    mark = _window_mark(given, kind)
    skipped = getattr(given, "skip_lock_node_ids", {}).get(kind, ())
    gaps: list[Span] = []
    end = tree.depth_pages(node)
    while node.parent is not None:
        begin = end - len(node.key) // tree.keys.page_size
        if node.id in skipped:
            gaps.append((begin, end))
        if mark is not None and tree.data(node, SWA).metadata.get("uuid") == mark:
            return begin, tuple(gaps)
        node, end = node.parent, begin
    return 0, tuple(gaps)


def _window_mark(given: LockReceipt, kind: Kind) -> object:
    """The id on the node where a lock's window begins; None if the window reaches the root."""
    if hasattr(given, "component_lock_uuids"):
        return given.component_lock_uuids.get(kind)
    return given.swa_uuid_for_lock
