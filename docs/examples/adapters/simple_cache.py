"""A small prefix cache, as anyone might write it: one block a page, found by a hash of its prefix.

It keeps full pages in device slots and evicts the least recently used leaf. It has no window, no
mamba states and no host tier, as its `OFFER` declares. Judge it with

    kvcanon check simple_cache:ADAPTER
"""

from __future__ import annotations

from itertools import count

from attrs import define

from kvcanon.conformance import Adapter, Offer
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
)
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import GPU, Counts, EvictionPolicy, Key, Slots, WritePolicy


@define
class Block:
    """A cached page."""

    page_hash: bytes
    parent: bytes | None
    slot: int
    used: int = 0
    locks: int = 0
    children: int = 0


class SimpleCache:
    """The cache. `kvcanon.spec.cache` says what its methods do."""

    def __init__(self, config: CacheConfig) -> None:
        if config.window_tokens is not None or config.mamba or config.host_tier:
            raise BadArgument(
                "config", "has a window, mamba states or a host tier; this cache has none"
            )
        self.config = config
        self.free_list = list(range(config.device_slots.full))
        self.held: set[int] = set()
        self.blocks: dict[bytes, Block] = {}
        self.receipts: dict[int, Receipt] = {}
        self.ids = count()
        self.clock = count(1)
        self.events: list[Event] = [AllBlocksCleared()]

    def match(self, key: Key) -> Matched:
        """Find the longest cached prefix, and make it recent."""
        found = self.prefix(key)
        self.touch(found)
        return Matched(len(found), len(found), Slots(tuple(block.slot for block in found)))

    def lock(self, key: Key) -> Receipt:
        """Lock a cached prefix."""
        receipt = Receipt(next(self.ids), key)
        for block in self.require(key):
            block.locks += 1
        self.receipts[receipt.receipt_id] = receipt
        return receipt

    def unlock(self, receipt: Receipt) -> None:
        """Release the lock of a receipt."""
        if self.receipts.get(receipt.receipt_id) != receipt:
            raise ReceiptSpent(receipt.receipt_id)
        del self.receipts[receipt.receipt_id]
        for block in self.prefix(receipt.key):
            block.locks -= 1

    def allocate(self, counts: Counts) -> Slots:
        """Take free slots."""
        if min(counts.full, counts.swa, counts.mamba) < 0 or counts.swa or counts.mamba:
            raise BadArgument(
                "counts", f"are {counts}; give a number of full slots, and 0 of the others"
            )
        if counts.full > len(self.free_list):
            raise OutOfSlots("full on GPU", counts.full, len(self.free_list))
        taken = tuple(self.free_list.pop() for _ in range(counts.full))
        self.held.update(taken)
        return Slots(taken)

    def free(self, slots: Slots) -> None:
        """Free slots that a request holds."""
        self.require_held(slots)
        self.held.difference_update(slots.full)
        self.free_list += slots.full

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,  # noqa: ARG002  # Only the policy `priority` needs it.
    ) -> Inserted:
        """Keep the pages of a key; free the slots of pages that are cached already."""
        if not 0 <= start_pages <= len(key) or len(slots.full) != len(key) - start_pages:
            raise BadArgument(
                "slots.full", f"must have one slot for each page of {start_pages}..{len(key)}"
            )
        if not 0 <= counted_pages <= len(key):
            raise BadArgument("counted_pages", f"is {counted_pages}, of {len(key)} pages")
        self.require_held(slots)
        self.require(key.prefix(start_pages))
        present = len(self.prefix(key))
        adopted = slots.full[max(0, present - start_pages) :]
        surplus = slots.full[: len(slots.full) - len(adopted)]
        self.held.difference_update(slots.full)
        self.free_list += surplus
        hashes: list[bytes | None] = [None, *hashes_of(key)]
        for page, slot in enumerate(adopted, present):
            self.store(key, page, slot, hashes[page])
        self.touch(self.prefix(key))
        return Inserted(present, Counts(len(adopted)), Counts(len(surplus)))

    def evict(self, counts: Counts) -> Evicted:
        """Free slots by evicting the least recently used leaves."""
        if min(counts.full, counts.swa, counts.mamba) < 0:
            raise BadArgument("counts", f"are {counts}; give counts of at least 0")
        freed = 0
        while freed < counts.full:
            leaves = [block for block in self.blocks.values() if not block.locks + block.children]
            if not leaves:
                break
            self.remove(min(leaves, key=lambda block: block.used))
            freed += 1
        return Evicted(Counts(freed))

    def reset(self) -> None:
        """Drop everything that is cached."""
        if self.receipts:
            raise CacheBusy(len(self.receipts))
        self.free_list += [block.slot for block in self.blocks.values()]
        self.blocks.clear()
        self.events.append(AllBlocksCleared())

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""
        taken, self.events = tuple(self.events), []
        return taken

    # Inside.

    def prefix(self, key: Key) -> list[Block]:
        """The blocks of the leading pages of a key that are cached."""
        found: list[Block] = []
        for page_hash in hashes_of(key):
            if page_hash not in self.blocks:
                break
            found.append(self.blocks[page_hash])
        return found

    def require(self, key: Key) -> list[Block]:
        """All the blocks of a key, which must be cached."""
        found = self.prefix(key)
        if len(found) < len(key):
            raise PrefixNotCached(len(key), len(found))
        return found

    def require_held(self, slots: Slots) -> None:
        """Refuse slots that no request holds, or that are listed twice."""
        if slots.swa or slots.mamba or len(set(slots.full)) < len(slots.full):
            raise BadArgument("slots", "must be full slots, each of them once")
        for slot in slots.full:
            if slot not in self.held:
                raise SlotNotHeld("full on GPU", slot)

    def touch(self, blocks: list[Block]) -> None:
        """Make blocks recent."""
        now = next(self.clock)
        for block in blocks:
            block.used = now

    def store(self, key: Key, page: int, slot: int, parent: bytes | None) -> None:
        """Keep a page, and emit a store."""
        page_hash = hashes_of(key)[page]
        self.blocks[page_hash] = Block(page_hash, parent, slot)
        if parent is not None:
            self.blocks[parent].children += 1
        self.events.append(BlockStored(page_hash, parent, key.pages[page], GPU, key.namespace))

    def remove(self, block: Block) -> None:
        """Drop a page, and emit a remove."""
        del self.blocks[block.page_hash]
        if block.parent is not None:
            self.blocks[block.parent].children -= 1
        self.free_list.append(block.slot)
        self.events.append(BlockRemoved(block.page_hash, GPU))


def hashes_of(key: Key) -> tuple[bytes, ...]:
    """The page hashes of a key: each covers the namespace and all pages up to its own."""
    return page_hashes(namespace_seed(key.namespace), key.pages)


OFFER = Offer(
    windows_tokens=(None,),
    mamba=(False,),
    write_policies=(WritePolicy.NONE,),
    eviction_policies=(EvictionPolicy.LRU,),
)
ADAPTER = Adapter("simple", SimpleCache, OFFER)
