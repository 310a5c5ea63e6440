"""The adapter of `their_window.py`: a cache with a window whose allocator pairs its blocks.

kvcanon check their_window_adapter:ADAPTER
"""

from __future__ import annotations

from itertools import takewhile

from attrs import define, evolve
from their_window import Node, PairedAllocator, WindowTree

from kvcanon.conformance import (
    FULL_ATTENTION,
    Adapter,
    CountedPool,
    Offer,
    Receipts,
    SlotLedger,
    SlotMemory,
    check_evict,
    check_key,
    extra_key_of,
    tokens_of,
)
from kvcanon.spec.config import CacheConfig, Limit, Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import FULL, GPU, SWA, Component, Counts, Key, Medium, Slot, Slots


@define
class Lock:
    """What a receipt holds."""

    path: list[Node]
    window: bool = True
    """Whether it still holds the window."""


class TheirWindow:
    """Their cache as a `TreeCache`."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        pools, window = config.device_slots, config.window_tokens or 0
        self.allocator = PairedAllocator(pools.full, pools.swa)
        self.tree = WindowTree(self.allocator, config.page_size, window)
        self.receipts = Receipts[Lock]()
        self.ledger = SlotLedger(
            {
                FULL: CountedPool(lambda: len(self.allocator.free_full)),
                SWA: CountedPool(lambda: len(self.allocator.free_windows)),
            }
        )
        self.memory = SlotMemory(config)
        self.read = self.memory.read

    def match(self, key: Key) -> Matched:
        check_key(self.config, key)
        path = self.tree.match(tokens_of(key), extra_key_of(key.namespace))
        return Matched(len(path), len(path), self.slots_of([node.block for node in path]))

    def lock(self, key: Key) -> Receipt:
        path = self.find(key)
        self.tree.lock(path)
        return self.receipts.issue(key, Lock(path))

    def unlock(self, receipt: Receipt) -> None:
        lock = self.receipts.spend(receipt)
        self.tree.unlock(lock.path, window=lock.window)

    def unlock_window(self, receipt: Receipt) -> None:
        lock = self.receipts.handle_of(receipt)
        if lock.window:
            self.tree.unlock_window(lock.path)
            lock.window = False

    def allocate(self, counts: Counts) -> Slots:
        self.ledger.check_allocate(counts)
        return self.ledger.hold(self.slots_of(self.allocator.alloc(counts.full, counts.swa)))

    def free(self, slots: Slots) -> None:
        self.ledger.check_held(slots)
        self.ledger.check_pairs_together(slots)
        self.allocator.release_windows(self.ledger.full_slots_of(slots.swa))
        self.ledger.hand_over(slots)
        self.allocator.release(slots.full)

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,  # noqa: ARG002  # Only the policy `priority` needs it.
    ) -> Inserted:
        self.ledger.check_insert(key, start_pages, slots, counted_pages)
        before = [node.block for node in self.find(key.prefix(start_pages))]
        free = self.ledger.counts()
        present = self.tree.insert(
            tokens_of(key), [*before, *slots.full], extra_key_of(key.namespace)
        )
        return self.ledger.insert_counted(slots, present, free)

    def evict(self, counts: Counts) -> Evicted:
        check_evict(counts)
        return Evicted(Counts(*self.tree.evict(counts.full, counts.swa)))

    def free_slots(self, component: Component, medium: Medium) -> list[Slot]:
        pools = {FULL: self.allocator.free_full, SWA: self.allocator.free_windows}
        return pools.get(component, []) if medium is GPU else []

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        self.ledger.check_writable(component, slot)
        self.memory.write(component, slot, data)

    def find(self, key: Key) -> list[Node]:
        check_key(self.config, key)
        path = self.tree.find(tokens_of(key), extra_key_of(key.namespace))
        if len(path) < len(key):
            raise PrefixNotCached(len(key), len(path))
        return path

    def slots_of(self, blocks: list[int]) -> Slots:
        # Window slots reach back from the end, up to the first page that has none.
        pairs = (self.allocator.window_of.get(block) for block in reversed(blocks))
        windows = takewhile(lambda window: window is not None, pairs)
        return Slots(tuple(blocks), tuple(windows)[::-1])


WINDOWS = tuple(tokens for tokens in Offer().windows_tokens if tokens is not None)
OFFER = evolve(FULL_ATTENTION, windows_tokens=WINDOWS)
PAIRS = Profile(limits=frozenset({Limit.PAIRS_TOGETHER}))
ADAPTER = Adapter("their window tree", TheirWindow, OFFER, PAIRS)
