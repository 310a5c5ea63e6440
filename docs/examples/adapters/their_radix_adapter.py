"""The adapter of `their_radix.py`: tokens become pages, and the scheduler's part is played.

kvcanon check their_radix_adapter:ADAPTER
"""

from __future__ import annotations

from their_radix import RadixTree, TreeNode

from kvcanon.conformance import (
    FULL_ATTENTION,
    Adapter,
    Receipts,
    SlotLedger,
    SlotMemory,
    TreeView,
    check_evict,
    check_insert,
    extra_key_of,
    page_slots,
    token_indices,
    tokens_of,
)
from kvcanon.spec.config import CacheConfig, Limit, Profile
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import Component, Counts, Key, Slot, Slots


class TheirRadix:
    """Their cache as a `TreeCache`."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.size = config.page_size
        self.tree = RadixTree(config.page_size)
        self.view = TreeView[TreeNode](
            config.page_size,
            children=lambda node: node.children.values(),
            tokens=lambda node: node.tokens,
            indices=lambda node: node.indices,
        )
        self.receipts = Receipts[TreeNode]()
        self.ledger, self.memory = SlotLedger.of_config(config), SlotMemory(config)
        self.allocate, self.free = self.ledger.allocate, self.ledger.free
        self.read = self.memory.read

    def match(self, key: Key) -> Matched:
        indices, _ = self.tree.match_prefix(tokens_of(key), extra_key_of(key.namespace))
        slots = page_slots(indices, self.size)
        return Matched(len(slots), len(slots), Slots(slots))

    def lock(self, key: Key) -> Receipt:
        node = self.view.end_of(self.root_of(key), key)
        self.tree.inc_lock_ref(node)
        return self.receipts.issue(key, node)

    def unlock(self, receipt: Receipt) -> None:
        self.tree.dec_lock_ref(self.receipts.spend(receipt))

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,  # noqa: ARG002  # Only the policy `priority` needs it.
    ) -> Inserted:
        check_insert(key, start_pages, slots, counted_pages)
        self.ledger.check_held(slots)
        before = self.view.indices_of(self.root_of(key), key.prefix(start_pages))
        indices = [*before, *token_indices(slots.full, self.size)]
        present = self.tree.insert(tokens_of(key), indices, extra_key_of(key.namespace))
        return self.ledger.insert_done(slots, start_pages, present // self.size)

    def evict(self, counts: Counts) -> Evicted:
        check_evict(counts)
        freed: list[int] = []
        self.tree.evict(counts.full * self.size, freed.extend)
        slots = page_slots(freed, self.size)
        self.ledger.give_back(slots)
        return Evicted(Counts(len(slots)))

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        self.ledger.check_writable(component, slot)
        self.memory.write(component, slot, data)

    def root_of(self, key: Key) -> TreeNode:
        return self.tree.root_of(extra_key_of(key.namespace))


HANDLES = Profile(limits=frozenset({Limit.NODE_HANDLES}))
ADAPTER = Adapter("their radix cache", TheirRadix, FULL_ATTENTION, HANDLES)
