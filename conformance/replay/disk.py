"""The disk of a replay: a store below the host tier that outlives the caches over it.

It keeps pages in memory, since a replay is about hits. Like `kvcanon.disk` it evicts the least
recently used page, and of a prompt its last page first. Orders are carried out at once: what an
engine waits for is not the question here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

from attrs import define, field

from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.cache import Cache, StoredCache
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import Ordered
from kvcanon.spec.types import DISK, Counts, Key


@define(eq=False)
class ReplayDisk:
    """Pages by their hashes, and the queue of the cache that uses them now."""

    capacity_pages: int | None = None
    """None for a disk that evicts nothing."""
    queue: ManualQueue = field(init=False)
    """The queue of the cache that was made last: the control of the store, for a judge."""
    _pages: OrderedDict[bytes, None] = field(factory=OrderedDict)
    """In the order of their last use, the oldest first."""

    def __attrs_post_init__(self) -> None:
        self.queue = ManualQueue(DISK)

    def restart(self) -> None:
        """Begin anew with what is on the disk, for another cache."""
        records, self.queue = self.queue.records, ManualQueue(DISK)
        self.queue.records = records

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return len(self.queue.records)

    def run_of(self, key: Key) -> int:
        """How many leading pages of a key it has."""
        names = _names_of(key)
        return next((at for at, name in enumerate(names) if name not in self._pages), len(names))

    def fetch(self, cache: Cache, key: Key) -> int:
        """Bring what it has of a key to the host; returns the pages that are usable now.

        Evicts from the host what is short. It asks for one page more than it has, so that the cache
        learns which pages were evicted here, and writes them again.
        """
        before, run = cache.match(key).prefix_pages, self.run_of(key)
        wanted = key.prefix(min(len(key), max(before, run) + 1))
        self._finish(cache, _stored(cache).prefetch(wanted))
        there = cache.match(key).prefix_pages
        if there < run:
            receipt = cache.lock(key.prefix(there)) if there else None
            cache.evict_host(Counts(full=run - there))
            self._finish(cache, _stored(cache).prefetch(key.prefix(run)))
            if receipt is not None:
                cache.unlock(receipt)
            there = cache.match(key).prefix_pages
        self._use(key)
        return there - before

    def write(self, cache: Cache, key: Key) -> None:
        """Write what the host has of a key, and evict what exceeds the disk."""
        ordered = _stored(cache).store(key)
        if ordered.order_id is not None:
            self.queue.go_on(ordered.order_id, ordered.pages)
            _stored(cache).poll_store()
            end = ordered.start_pages + ordered.pages
            self._pages.update(dict.fromkeys(_names_of(key)[ordered.start_pages : end]))
        self._use(key)
        while self.capacity_pages is not None and len(self._pages) > self.capacity_pages:
            name, _ = self._pages.popitem(last=False)
            del self.queue.records[name]

    def _finish(self, cache: Cache, ordered: Ordered) -> None:
        """Carry out a prefetch, and place what it brings."""
        if ordered.order_id is None:
            return
        self.queue.go_on(ordered.order_id, ordered.pages)
        _stored(cache).poll_store()
        _stored(cache).end_prefetch(ordered.order_id)

    def _use(self, key: Key) -> None:
        """Make the pages of a key the most recently used, its first page above all."""
        for name in reversed(_names_of(key)):
            if name in self._pages:
                self._pages.move_to_end(name)


def _stored(cache: Cache) -> StoredCache:
    return cast("StoredCache", cache)


def _names_of(key: Key) -> tuple[bytes, ...]:
    return page_hashes(namespace_seed(key.namespace), key.pages)
