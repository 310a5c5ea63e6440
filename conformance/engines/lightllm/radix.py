"""Translates operations to calls of lightllm's radix cache, which has pages of one token.

In lightllm one call matches a prompt and takes a reference on what it found. Here a match drops the
reference again. A lock makes the same call directly after a match of the same prompt, which is then
the most recent one already: so the second call changes no order. A lock of anything else is
refused, since lightllm's engine never makes it.
"""

from __future__ import annotations

from itertools import count
from os import getpid
from typing import Any

from attrs import evolve

from kvcanon.conformance.adapter_parts.arguments import check_evict, check_insert
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.slot_ledger import SlotLedger
from kvcanon.conformance.adapter_parts.slot_memory import SlotMemory
from kvcanon.conformance.adapter_parts.token_slots import page_slots, tokens_of
from kvcanon.conformance.adapter_parts.tree_view import LastMatch, TreeView
from kvcanon.conformance.engines.package_version import source_module
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.config import CacheConfig, Limit, Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import Component, Counts, Key, Slot, Slots

ENGINE = "lightllm"
_RADIX = source_module("lightllm.server.router.dynamic_prompt.radix_cache", ENGINE)
_TORCH = source_module("torch", ENGINE)
_NAMES = (f"kvcanon_{getpid()}_{number}" for number in count())


class LightRadix:
    """A `TreeCache` around a `RadixCache`."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.cache = _RADIX.RadixCache(next(_NAMES), config.device_slots.full, 0)
        for shared in (self.cache.refed_tokens_num, self.cache.tree_total_tokens_num):
            # Its counters are in shared memory, which needs its name no longer.
            shared.shm.unlink()
        self.view = TreeView[Any](
            1,
            children=lambda node: node.children.values(),
            tokens=lambda node: node.token_id_key.tolist(),
            indices=lambda node: node.token_mem_index_value.tolist(),
        )
        self.receipts, self.last = Receipts[Any](), LastMatch[None]()
        self.ledger, self.memory = SlotLedger.of_config(config), SlotMemory(config)
        self.allocate, self.free, self.read = (
            self.ledger.allocate,
            self.ledger.free,
            self.memory.read,
        )

    def match(self, key: Key) -> Matched:
        """Match the tokens of a key, and drop the reference."""
        node, indices = self._matched(key)
        self.cache.dec_node_ref_counter(node)
        slots = page_slots(indices, 1)
        self.last.remember(key, len(slots), None)
        return Matched(len(slots), len(slots), Slots(slots))

    def lock(self, key: Key) -> Receipt:
        """Match what was matched last, and keep the reference."""
        cached = self.view.find(self.cache.root_node, key).pages
        if cached < len(key):
            raise PrefixNotCached(len(key), cached)
        if len(key):
            self.last.handle_of(key)
        return self.receipts.issue(key, self._matched(key)[0])

    def unlock(self, receipt: Receipt) -> None:
        """Drop the reference of a receipt."""
        self.cache.dec_node_ref_counter(self.receipts.spend(receipt))

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Insert the tokens of a key, and free the duplicates."""
        del priority
        check_insert(key, start_pages, slots, counted_pages)
        self.ledger.check_held(slots)
        before = self.view.indices_of(self.cache.root_node, key.prefix(start_pages))
        self.last.forget()
        present = self.cache.insert(_tensor(tokens_of(key)), _tensor([*before, *slots.full]))
        return self.ledger.insert_done(slots, start_pages, present)

    def evict(self, counts: Counts) -> Evicted:
        """Evict as many tokens as can be; the engine never asks for more."""
        check_evict(counts)
        self.last.forget()
        unused = self.cache.get_tree_total_tokens_num() - self.cache.get_refed_tokens_num()
        freed: list[int] = []
        self.cache.evict(
            min(counts.full, int(unused)), lambda indices: freed.extend(indices.tolist())
        )
        self.ledger.give_back(freed)
        return Evicted(Counts(len(freed)))

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot that a request holds."""
        self.ledger.check_writable(component, slot)
        self.memory.write(component, slot, data)

    def _matched(self, key: Key) -> tuple[Any, list[int]]:
        """The node that a match ends at, with a reference on it, and the indices of its path."""
        if not len(key):
            # lightllm matches no empty prompt.
            return None, []
        node, _, indices = self.cache.match_prefix(_tensor(tokens_of(key)), update_refs=True)
        return node, [] if indices is None else indices.tolist()


def _tensor(numbers: list[int]) -> Any:  # noqa: ANN401 # torch's.
    return _TORCH.tensor(numbers, dtype=_TORCH.int64)


PROFILE = Profile(limits=frozenset({Limit.NODE_HANDLES}))
OFFER = evolve(FULL_ATTENTION, page_sizes=(1,), namespaces=False)
LIGHT = Adapter("lightllm", LightRadix, OFFER, PROFILE)
