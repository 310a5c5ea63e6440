"""RadixCache and SWARadixCache: the older caches, whose nodes have no components.

A node of RadixCache stores its full slots itself. A node of SWARadixCache has a flag for a window
tombstone; without it, the full slots map to the window slots. Both are presented as components, so
that the rest of the adapter is shared with UnifiedRadixCache.

An insert of RadixCache frees no duplicates. SGLang's scheduler frees them afterwards, and so does
the adapter.
"""

from __future__ import annotations

from attrs import Factory, define

from kvcanon.conformance.engines.sglang.factory import World
from kvcanon.conformance.engines.sglang.keys import keys_of
from kvcanon.conformance.engines.sglang.peer_types import SGLangNode, Tensor
from kvcanon.conformance.engines.sglang.release import named
from kvcanon.conformance.engines.sglang.snapshot import Tree
from kvcanon.conformance.engines.sglang.unified import UnifiedCache
from kvcanon.spec.operations import Inserted
from kvcanon.spec.snapshot import Usage
from kvcanon.spec.types import FULL, GPU, SWA, Component, Counts, Key, Medium, NodeId, Slots

NANOSECONDS = 1_000_000_000
"""RadixCache takes times from the system clock, in seconds."""


@define(eq=False)
class PlainData:
    """A component's data at a node, in the form of later releases."""

    value: Tensor | None
    lock_ref: int
    metadata: dict[str, object] = Factory(dict)
    host_value: Tensor | None = None
    host_lock_ref: int = 0


@define(eq=False)
class RadixTree(Tree):
    """The tree of a RadixCache."""

    def data(self, node: SGLangNode, component: Component) -> PlainData:  # noqa: ARG002 # The tree's.
        """Full data, the only component."""
        return PlainData(node.value, node.lock_ref)

    def ticks(self, seconds: float) -> int:
        """Convert a clock time to ticks."""
        return round(seconds * NANOSECONDS)

    def born(self, node: SGLangNode) -> int:
        """The time when a node was made, in ticks of the same clock."""
        return self.ticks(node.creation_time)

    def usage(self, component: Component) -> Usage:  # noqa: ARG002 # The tree's.
        """The cache's evictable and protected counts."""
        size = self.keys.page_size
        return Usage(self.core.evictable_size_ // size, self.core.protected_size_ // size)


@define(eq=False)
class WindowTree(Tree):
    """The tree of a SWARadixCache."""

    leads: Tensor = None
    """Maps a token's full slot to its window slot."""

    def data(self, node: SGLangNode, component: Component) -> PlainData:
        """Full data, or the window data that it maps to."""
        if component is FULL:
            return PlainData(node.value, node.full_lock_ref)
        value = None if node.swa_tombstone else self.leads[node.value]
        return PlainData(value, node.swa_lock_ref, {"uuid": node.swa_uuid})

    def order(self, component: Component, medium: Medium) -> list[NodeId]:
        """The nodes of one LRU list, least recently used first."""
        if medium is not GPU:
            return []
        chain = self.core.swa_lru_list if component is SWA else self.core.full_lru_list
        found: list[NodeId] = []
        node = getattr(chain.tail, chain.prv)
        while node is not None and node is not chain.head and len(found) <= len(chain.cache):
            found.append(node.id)
            node = getattr(node, chain.prv)
        return found

    def usage(self, component: Component) -> Usage:
        """The cache's evictable and protected counts."""
        size = self.keys.page_size
        evictable = getattr(self.core, f"{component}_evictable_size_")
        protected = getattr(self.core, f"{component}_protected_size_")
        return Usage(evictable // size, protected // size)


@define(eq=False)
class RadixCache(UnifiedCache):
    """A `RadixCache`."""

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Insert the data of a key, and free the slots that the tree had already."""
        answer = super().insert(
            key, start_pages, slots, counted_pages=counted_pages, priority=priority
        )
        again = max(0, answer.present_pages - start_pages)
        self._free_full(slots.full[:again])
        return Inserted(
            answer.present_pages,
            Counts(full=answer.adopted.full - again),
            Counts(full=answer.freed.full + again),
        )


def window_tree_of(world: World) -> WindowTree:
    """The tree of a SWARadixCache. Its root does not show its token container.

    It takes the same keys as RadixCache.
    """
    root = named("RadixCache").create_simulated().root_node
    keys = keys_of(world.config.page_size, root.key.token_ids)
    tree = WindowTree.of(world, keys)
    tree.leads = world.allocator.full_to_swa_index_mapping
    return tree
