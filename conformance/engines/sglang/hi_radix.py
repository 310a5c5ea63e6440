"""HiRadixCache: SGLang's cache with a host tier before UnifiedRadixCache had one.

It is a RadixCache whose nodes also have host slots. Its tree and inserts are translated like those
of RadixCache, its copies like those of a UnifiedRadixCache with a host tier.

Its match returns the last node with a host copy, though the device hit may reach further. The
prefix hit is the sum of the device and the host length.
"""

from __future__ import annotations

import atexit

from attrs import define

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang import validate
from kvcanon.conformance.engines.sglang.hicache import HostedCache
from kvcanon.conformance.engines.sglang.peer_types import SGLangNode
from kvcanon.conformance.engines.sglang.radix import PlainData, RadixCache, RadixTree
from kvcanon.conformance.engines.sglang.release import named
from kvcanon.conformance.engines.sglang.transfers import Entry, PendingCopies
from kvcanon.spec.operations import Evicted, Matched
from kvcanon.spec.types import CPU, FULL, Component, Counts, Key, Slots


@define(eq=False)
class HierarchicalTree(RadixTree):
    """The tree of a HiRadixCache."""

    def data(self, node: SGLangNode, component: Component) -> PlainData:  # noqa: ARG002 # The tree's.
        """Full data, on the device and on the host."""
        return PlainData(node.value, node.lock_ref, host_value=node.host_value)


@define(eq=False)
class PlainCopies(PendingCopies):
    """The copies of a HiRadixCache. Their records have no lock receipts.

    A node has at most one copy in flight, so the locked node identifies the copy.
    """

    def _lock(self, noted: EngineObject) -> object:
        """The locked node."""
        return noted[0] if isinstance(noted, tuple) else noted

    def _entry(self, noted: EngineObject) -> Entry:
        """The record of a copy: its node, and in later releases its length and its parts."""
        node, parts = (noted[0], noted[2]) if isinstance(noted, tuple) else (noted, [noted])
        return Entry(parts, node, node)


@define(eq=False)
class HierarchicalCache(HostedCache, RadixCache):
    """A `HiRadixCache`."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.in_flight = PlainCopies(self.world.cache, self.tree, self.ids)

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key."""
        if not len(key):
            return Matched(0, 0, Slots())
        params = named("MatchPrefixParams")(key=self.tree.keys.radix_key(key))
        found = self.world.cache.match_prefix(params)
        tokens, size = found.device_indices, self.config.page_size
        return Matched(
            prefix_pages=(len(tokens) + found.host_hit_length) // size,
            device_pages=len(tokens) // size,
            slots=self._slots_behind(tokens, found.last_device_node),
        )

    def evict_host(self, counts: Counts) -> Evicted:
        """Free host slots. SGLang does not return how many, so they are counted."""
        counts = validate.evicted_counts(self.config, counts)
        before = len(self.free_slots(FULL, CPU))
        self.world.cache.evict_host(counts.full * self.config.page_size)
        return Evicted(Counts(full=len(self.free_slots(FULL, CPU)) - before))


def forget_at_exit(cache: EngineObject) -> None:
    """Drop the exit hook of a cache, which would keep the cache alive until the process ends."""
    atexit.unregister(cache.shutdown)
