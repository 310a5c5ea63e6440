"""Translates operations to calls of sglang-jax's radix caches, which count in tokens.

Slots are those of sglang-jax's allocators, whose first page is padding. `RadixCache` leaves the
duplicates of an insert to the scheduler; `SWARadixCache` frees them itself, and its allocator knows
which window slot belongs to which full slot. Locks are on nodes, and a window lock on whole nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve

from kvcanon.conformance.adapter_parts.arguments import check_evict, check_key
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.slot_ledger import CountedPool, SlotLedger, TokenAllocator
from kvcanon.conformance.adapter_parts.slot_memory import SlotMemory
from kvcanon.conformance.adapter_parts.token_slots import (
    extra_key_of,
    page_count,
    page_slots,
    token_indices,
    tokens_of,
)
from kvcanon.conformance.adapter_parts.tree_view import TreeView
from kvcanon.conformance.engines.package_version import source_module
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.spec.config import CacheConfig, Limit, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import FULL, GPU, SWA, Component, Counts, Key, Medium, Slot, Slots

ENGINE = "sglang-jax"
_HOME = "sgl_jax.srt.mem_cache"
_ALLOCATORS = source_module(f"{_HOME}.allocator", ENGINE)
_BASE = source_module(f"{_HOME}.base_prefix_cache", ENGINE)
_POOLS = source_module(f"{_HOME}.memory_pool", ENGINE)
_RADIX = source_module(f"{_HOME}.radix_cache", ENGINE)
_WINDOW = source_module(f"{_HOME}.swa_radix_cache", ENGINE)
PADDING = 1
"""Pages before the first one that is given out."""


class JaxRadix:
    """A `TreeCache` around a `RadixCache`."""

    def __init__(self, config: CacheConfig) -> None:
        self.config, self.size = config, config.page_size
        self.allocator = self.new_allocator()
        self.cache = self.new_cache()
        self.receipts = Receipts[tuple[Any, Any]]()
        self.ledger, self.memory = self.new_ledger(), SlotMemory(config)
        self.read = self.memory.read

    def new_allocator(self) -> Any:  # noqa: ANN401 # sglang-jax's.
        """The allocator of this page size."""
        return _plain_allocator(self.config.device_slots.full, self.size)

    def new_cache(self) -> Any:  # noqa: ANN401 # sglang-jax's.
        """The cache over the allocator."""
        return _RADIX.RadixCache(None, self.allocator, self.size)

    def new_ledger(self) -> SlotLedger:
        """The slots of requests, over the allocator's free ones."""
        return SlotLedger(
            {
                FULL: TokenAllocator(
                    self.allocator.alloc,
                    lambda indices: self.allocator.free(np.array(indices, dtype=np.int32)),
                    self.allocator.available_size,
                    self.size,
                    PADDING,
                )
            }
        )

    def match(self, key: Key) -> Matched:
        """Match the tokens of a key."""
        check_key(self.config, key)
        found = self.cache.match_prefix(_BASE.MatchPrefixParams(_radix_key(key))).device_indices
        slots = self.slots_of(found)
        return Matched(len(slots.full), len(slots.full), slots)

    def lock(self, key: Key) -> Receipt:
        """Lock the node that a key ends at."""
        check_key(self.config, key)
        node = _view(self.size, key).end_of(self.cache.root_node, key)
        self.check_lockable(node)
        return self.receipts.issue(key, (node, self.cache.inc_lock_ref(node)))

    def check_lockable(self, node: Any) -> None:  # noqa: ANN401 # sglang-jax's.
        """Check that a match could have ended at a node. Raises: BadArgument."""

    def unlock(self, receipt: Receipt) -> None:
        """Unlock the node of a receipt."""
        node, given = self.receipts.spend(receipt)
        self.cache.dec_lock_ref(node, given.to_dec_params())

    def allocate(self, counts: Counts) -> Slots:
        """Take slots."""
        return self.ledger.allocate(counts)

    def free(self, slots: Slots) -> None:
        """Free slots."""
        self.ledger.free(slots)

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Insert the tokens of a key."""
        del priority
        check_key(self.config, key)
        self.ledger.check_insert(key, start_pages, slots, counted_pages)
        view, root, prefix = _view(self.size, key), self.cache.root_node, key.prefix(start_pages)
        self.check_lockable(view.end_of(root, prefix))
        before = view.indices_of(root, prefix)
        indices = [*before, *token_indices(slots.full, self.size, PADDING)]
        return self.insert_indices(key, start_pages, slots, np.array(indices, dtype=np.int32))

    def insert_indices(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        indices: Any,  # noqa: ANN401 # An array.
    ) -> Inserted:
        """Insert, and free the duplicates."""
        present = self.cache.insert(_BASE.InsertParams(_radix_key(key), indices))
        return self.ledger.insert_done(slots, start_pages, page_count(present, self.size))

    def evict(self, counts: Counts) -> Evicted:
        """Evict as many tokens."""
        check_evict(counts)
        asked = _BASE.EvictParams(counts.full * self.size, counts.swa * self.size)
        done = self.cache.evict(asked)
        return Evicted(
            Counts(
                page_count(done.num_tokens_evicted, self.size),
                page_count(done.swa_num_tokens_evicted, self.size),
            )
        )

    def free_slots(self, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The slots that the allocator has."""
        return _free(self.allocator) if (component, medium) == (FULL, GPU) else ()

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot that a request holds."""
        self.ledger.check_writable(component, slot)
        self.memory.write(component, slot, data)

    def slots_of(self, indices: Any) -> Slots:  # noqa: ANN401 # An array.
        """The slots of token indices."""
        return Slots(page_slots(indices, self.size, PADDING))


class JaxWindow(JaxRadix):
    """A `TreeCache` around a `SWARadixCache`."""

    def new_allocator(self) -> Any:  # noqa: ANN401 # sglang-jax's.
        """The allocator of pairs."""
        memory, pools = _POOLS.SWAKVPool(), self.config.device_slots
        memory.full_kv_pool = memory.swa_kv_pool = None
        return _ALLOCATORS.SWATokenToKVPoolAllocator(
            pools.full * self.size, pools.swa * self.size, memory, self.size
        )

    def new_cache(self) -> Any:  # noqa: ANN401 # sglang-jax's.
        """The cache over the allocator."""
        return _WINDOW.SWARadixCache(None, self.allocator, self.config.window_tokens, self.size)

    def new_ledger(self) -> SlotLedger:
        """The slots of requests, and their pairs."""
        return SlotLedger(
            {
                FULL: CountedPool(lambda: self.allocator.full_available_size() // self.size),
                SWA: CountedPool(lambda: self.allocator.swa_available_size() // self.size),
            }
        )

    def check_lockable(self, node: Any) -> None:  # noqa: ANN401 # sglang-jax's.
        """Check that the last window before a node is whole. Raises: BadArgument."""
        reach = 0
        while node is not self.cache.root_node and reach < self.cache.sliding_window_size:
            if node.swa_tombstone:
                raise BadArgument("key", "ends where no match ends; sglang-jax locks matches alone")
            reach += len(node.value)
            node = node.parent

    def allocate(self, counts: Counts) -> Slots:
        """Take full slots, and window slots for the last of them."""
        self.ledger.check_allocate(counts)
        full = self.allocator.full_attn_allocator.alloc(counts.full * self.size)
        windows = self.allocator.swa_attn_allocator.alloc(counts.swa * self.size)
        if counts.swa:
            self.allocator.full_to_swa_index_mapping[full[-len(windows) :]] = windows
        return self.ledger.hold(self.slots_of(full))

    def free(self, slots: Slots) -> None:
        """Free pairs, or window slots alone by their full slots."""
        self.ledger.check_held(slots)
        self.ledger.check_pairs_together(slots)
        slid = self._tokens(self.ledger.full_slots_of(slots.swa))
        self.ledger.hand_over(slots)
        self.allocator.free_swa(slid)
        self.allocator.free(self._tokens(slots.full))

    def insert_indices(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        indices: Any,  # noqa: ANN401 # An array.
    ) -> Inserted:
        """Insert; the cache frees the duplicates."""
        slid = len(slots.full) - len(slots.swa)
        asked = _BASE.InsertParams(
            _radix_key(key),
            indices,
            prev_prefix_len=start_pages * self.size,
            swa_evicted_seqlen=(start_pages + slid) * self.size if slid else 0,
        )
        before = self.ledger.counts()
        present = self.cache.insert(asked)
        return self.ledger.insert_counted(slots, page_count(present, self.size), before)

    def free_slots(self, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The slots that the allocators have."""
        pools = {
            FULL: self.allocator.full_attn_allocator,
            SWA: self.allocator.swa_attn_allocator,
        }
        return _free(pools[component]) if medium is GPU and component in pools else ()

    def slots_of(self, indices: Any) -> Slots:  # noqa: ANN401 # An array.
        """The slots of token indices, and of the windows that reach back without a gap."""
        windows = self.allocator.full_to_swa_index_mapping[indices]
        gaps = np.flatnonzero(windows == 0)
        first = int(gaps[-1]) + 1 if len(gaps) else 0
        return Slots(
            page_slots(indices, self.size, PADDING), page_slots(windows[first:], self.size, PADDING)
        )

    def _tokens(self, slots: tuple[Slot, ...]) -> Any:  # noqa: ANN401 # An array.
        return np.array(token_indices(slots, self.size, PADDING), dtype=np.int32)


def _plain_allocator(pages: int, size: int) -> Any:  # noqa: ANN401 # sglang-jax's.
    if size == 1:
        return _ALLOCATORS.TokenToKVPoolAllocator(pages, None)
    return _ALLOCATORS.PagedTokenToKVPoolAllocator(pages * size, size, None)


def _free(allocator: Any) -> tuple[Slot, ...]:  # noqa: ANN401 # sglang-jax's.
    """The free pages of an allocator, which has them in one list or two."""
    if hasattr(allocator, "free_slots"):
        lists = [allocator.free_slots[0]]
    else:
        lists = [allocator.free_pages[0], allocator.release_pages[0]]
    return tuple(int(page) - PADDING for each in lists for page in each)


def _radix_key(key: Key) -> Any:  # noqa: ANN401 # sglang-jax's.
    return _RADIX.RadixKey(tokens_of(key), extra_key_of(key.namespace))


def _view(size: int, key: Key) -> TreeView[Any]:
    """How to read the nodes of a namespace; all namespaces have one root."""
    extra = extra_key_of(key.namespace)
    return TreeView[Any](
        size,
        children=lambda node: [
            each for each in node.children.values() if each.key.extra_key == extra
        ],
        tokens=lambda node: node.key.token_ids,
        indices=lambda node: node.value,
    )


LIMITS = frozenset({Limit.NODE_HANDLES, Limit.PAIRS_TOGETHER})
RADIX_PROFILE = Profile(split_keeps_recency=False, limits=LIMITS)
WINDOW_PROFILE = evolve(
    RADIX_PROFILE,
    window_lock_exact=False,
    heals_in_place=False,
    tombstone_leaves=False,
    uncovered_tombstones_stay=False,
)
OFFER = evolve(FULL_ATTENTION, events=(False,), most_slots=1_500)
WINDOWS = tuple(tokens for tokens in Offer().windows_tokens if tokens is not None)
RADIX = Adapter("sglang-jax", JaxRadix, OFFER, RADIX_PROFILE)
WINDOW = Adapter(
    "sglang-jax-window", JaxWindow, evolve(OFFER, windows_tokens=WINDOWS), WINDOW_PROFILE
)
