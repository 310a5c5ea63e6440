"""The store of a replay: below the host tier of a cache, and outlives the caches over it.

It keeps pages in memory, since a replay is about hits. A *disk* is as `kvcanon.disk`: it evicts the
least recently used page, and of a prompt its last page first. An *external* store is as Redis under
`allkeys-lru`: a page was used when it was read, so of a prompt the first page goes first, and other
servers write to it, too. Orders are carried out at once: what an engine waits for is not the
question here.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

from attrs import define, field, frozen

from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.cache import Cache, StoredCache
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import Ordered
from kvcanon.spec.types import DISK, Counts, Key, Medium


@frozen
class ReplayFetch:
    """What a fetch was for, and what came of it."""

    pages: int
    """Pages that it brought to the host, and that are usable now."""
    resident_pages: int
    """Leading pages of the prompt that memory had before, or the store behind what the host had:
    the most that can be hits."""


@define(eq=False)
class ReplayStore:
    """Pages by their hashes, and the queue of the cache that uses them now."""

    capacity_pages: int | None = None
    """None for a store that evicts nothing."""
    medium: Medium = DISK
    sharers: int = 0
    """Of an external store: how many other servers write as many pages to it."""
    queue: ManualQueue = field(init=False)
    """The queue of the cache that was made last: the control of the store, for a judge."""
    _pages: OrderedDict[bytes, None] = field(factory=OrderedDict)
    """In the order of their last use, the oldest first; those of others, too."""
    _of_others: int = 0
    """How many pages others have written."""

    def __attrs_post_init__(self) -> None:
        self.queue = ManualQueue(self.medium)

    def restart(self) -> None:
        """Begin anew with what is there, for another cache."""
        records, self.queue = self.queue.records, ManualQueue(self.medium)
        self.queue.records = records

    @property
    def pages(self) -> int:
        """How many pages of this server it has."""
        return len(self.queue.records)

    def run_of(self, key: Key, present: int = 0) -> int:
        """How many leading pages of a key there are, of which others have the first `present`."""
        names = _names_of(key)
        behind = range(present, len(names))
        return next((at for at in behind if names[at] not in self._pages), len(names))

    def fetch(self, cache: Cache, key: Key) -> ReplayFetch:
        """Bring what it has of a key to the host.

        Evicts from the host what is short. It asks for one page more than it has, so that the cache
        learns which pages were evicted here, and writes them again.
        """
        before = cache.match(key).prefix_pages
        wanted = key.prefix(min(len(key), self.run_of(key, before) + 1))
        ordered = _stored(cache).prefetch(wanted)
        run = max(before, self.run_of(key, ordered.start_pages))
        self._finish(cache, ordered)
        there = cache.match(key).prefix_pages
        if there < run:
            receipt = cache.lock(key.prefix(there)) if there else None
            cache.evict_host(Counts(full=run - there))
            self._finish(cache, _stored(cache).prefetch(key.prefix(run)))
            if receipt is not None:
                cache.unlock(receipt)
            there = cache.match(key).prefix_pages
        self._use(key)
        return ReplayFetch(there - before, run)

    def write(self, cache: Cache, key: Key) -> None:
        """Write what the host has of a key, and evict what exceeds the capacity."""
        ordered = _stored(cache).store(key)
        if ordered.order_id is not None:
            self.queue.go_on(ordered.order_id, ordered.pages)
            _stored(cache).poll_store()
            end = ordered.start_pages + ordered.pages
            self._pages.update(dict.fromkeys(_names_of(key)[ordered.start_pages : end]))
            self._let_others_write(self.sharers * ordered.pages)
        self._use(key)
        while self.capacity_pages is not None and len(self._pages) > self.capacity_pages:
            name, _ = self._pages.popitem(last=False)
            self.queue.records.pop(name, None)

    def _let_others_write(self, pages: int) -> None:
        """Let other servers write so many pages of theirs."""
        first, self._of_others = self._of_others, self._of_others + pages
        for number in range(first, self._of_others):
            self._pages[b"of others %d" % number] = None

    def _finish(self, cache: Cache, ordered: Ordered) -> None:
        """Carry out a prefetch, and place what it brings."""
        if ordered.order_id is None:
            return
        self.queue.go_on(ordered.order_id, ordered.pages)
        _stored(cache).poll_store()
        _stored(cache).end_prefetch(ordered.order_id)

    def _use(self, key: Key) -> None:
        """Make the pages of a key the most recently used: of a disk its first page above all."""
        names = _names_of(key)
        for name in reversed(names) if self.medium is DISK else names:
            if name in self._pages:
                self._pages.move_to_end(name)


def _stored(cache: Cache) -> StoredCache:
    return cast("StoredCache", cache)


def _names_of(key: Key) -> tuple[bytes, ...]:
    return page_hashes(namespace_seed(key.namespace), key.pages)
