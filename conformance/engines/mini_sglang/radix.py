"""Translates operations to calls of mini-sglang's radix cache, which counts in tokens.

The free slots are those of mini-sglang's CacheManager, a plain list. An insert keeps the data that
the tree had, and answers how much that was; the scheduler frees the duplicates.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from kvcanon.conformance.adapter_parts.arguments import check_evict, check_insert
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.slot_ledger import SlotLedger
from kvcanon.conformance.adapter_parts.slot_memory import SlotMemory
from kvcanon.conformance.adapter_parts.token_slots import page_slots, token_indices, tokens_of
from kvcanon.conformance.adapter_parts.tree_view import TreeView
from kvcanon.conformance.engines.package_version import source_module
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.config import CacheConfig, Limit, Profile
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import Component, Counts, Key, Slot, Slots

ENGINE = "mini-sglang"
_CORE = source_module("minisgl.core", ENGINE)
_RADIX = source_module("minisgl.kvcache.radix_cache", ENGINE)
_TORCH = source_module("torch", ENGINE)


class MiniRadix:
    """A `TreeCache` around a `RadixPrefixCache`."""

    def __init__(self, config: CacheConfig) -> None:
        self.config, self.size = config, config.page_size
        # A cache takes its page size from the context of its process.
        vars(_CORE)["_GLOBAL_CTX"] = _CORE.Context(config.page_size)
        self.cache = _RADIX.RadixPrefixCache(_TORCH.device("cpu"))
        self.view = TreeView[Any](
            config.page_size,
            children=lambda node: node.children.values(),
            tokens=lambda node: node._key.tolist(),  # noqa: SLF001 # It has no other name.
            indices=lambda node: node.value.tolist(),
        )
        self.receipts = Receipts[Any]()
        self.ledger, self.memory = SlotLedger.of_config(config), SlotMemory(config)
        self.allocate, self.free, self.read = (
            self.ledger.allocate,
            self.ledger.free,
            self.memory.read,
        )

    def match(self, key: Key) -> Matched:
        """Match the tokens of a key."""
        handle = self.cache.match_prefix(_tensor(tokens_of(key))).cuda_handle
        indices = handle.get_matched_indices().tolist() if handle.cached_len else []
        slots = page_slots(indices, self.size)
        return Matched(len(slots), len(slots), Slots(slots))

    def lock(self, key: Key) -> Receipt:
        """Lock the node that a key ends at."""
        node = self.view.end_of(self.cache.root_node, key)
        handle = _RADIX.RadixCacheHandle(len(key) * self.size, node)
        self.cache.lock_handle(handle)
        return self.receipts.issue(key, handle)

    def unlock(self, receipt: Receipt) -> None:
        """Unlock the node of a receipt."""
        self.cache.lock_handle(self.receipts.spend(receipt), unlock=True)

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Insert the tokens of a key, and free the duplicates."""
        del priority
        check_insert(key, start_pages, slots, counted_pages)
        self.ledger.check_held(slots)
        before = self.view.indices_of(self.cache.root_node, key.prefix(start_pages))
        indices = [*before, *token_indices(slots.full, self.size)]
        present = self.cache.insert_prefix(_tensor(tokens_of(key)), _tensor(indices)).cached_len
        return self.ledger.insert_done(slots, start_pages, present // self.size)

    def evict(self, counts: Counts) -> Evicted:
        """Evict as many tokens as can be; the engine never asks for more."""
        check_evict(counts)
        tokens = min(counts.full * self.size, self.cache.size_info.evictable_size)
        slots = page_slots(self.cache.evict(tokens).tolist(), self.size)
        self.ledger.give_back(slots)
        return Evicted(Counts(len(slots)))

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot that a request holds."""
        self.ledger.check_writable(component, slot)
        self.memory.write(component, slot, data)


def _tensor(numbers: list[int]) -> Any:  # noqa: ANN401 # torch's.
    return _TORCH.tensor(numbers, dtype=_TORCH.int64)


PROFILE = Profile(limits=frozenset({Limit.NODE_HANDLES}))
MINI = Adapter("mini-sglang", MiniRadix, evolve(FULL_ATTENTION, namespaces=False), PROFILE)
