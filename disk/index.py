"""The index: which pages there are, where, and which of them may be evicted next.

A page is known by its name, and may have a record in each of several pools; they come and go
together. A page that others follow is not evicted before them. Of those that no page follows, the
*leaves*, the one goes first that was used least recently.

A page that is not there, but that one that is there follows, has an entry as well: a *ghost*, so
that prompts stay prompts however their pages come.
"""

from __future__ import annotations

from array import array
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

import numpy as np
from attrs import define, field

from kvcanon.disk.records import NO_NAME, RECORD_BYTES, DiskRecord, unpacked

NONE = -1
_LEAST_BYTES = 8
"""The first bytes of a record, which are never all zero."""


@define(eq=False)
class PageIndex:
    """Pages by name. Entries are numbers into columns: a million pages take some 400 MB."""

    pools: int = 1
    entries: dict[bytes, int] = field(factory=dict)
    names: list[bytes] = field(factory=list)
    records: bytearray = field(factory=bytearray)
    """For each entry the packed record of each pool; zeros where the page is not there."""
    proved: bytearray = field(factory=bytearray)
    """For each record whether its page was written or read since the store was opened."""
    held: bytearray = field(factory=bytearray)
    """In how many pools each page is."""
    parents: array[int] = field(factory=lambda: array("q"))
    children: array[int] = field(factory=lambda: array("q"))
    used: array[int] = field(factory=lambda: array("q"))
    """When each was used last, on the clock below."""
    clock: int = 0
    spare: list[int] = field(factory=list)
    """Entries that may be used again."""
    leaves: list[tuple[int, int]] = field(factory=list)
    """A heap of times and entries. A time that is past is looked up when it comes to the top."""
    queued: bytearray = field(factory=bytearray)
    """For each entry whether the heap has it."""
    count: int = 0
    """How many records there are."""

    def find(self, name: bytes, pool: int) -> bytes | None:
        """The packed record of a page; None if it is not there."""
        entry = self.entries.get(name)
        if entry is None or pool >= self.pools:
            return None
        at = self._place(entry, pool)
        packed = bytes(self.records[at : at + RECORD_BYTES])
        return packed if any(packed[:_LEAST_BYTES]) else None

    def has(self, name: bytes, pool: int) -> bool:
        """Whether a page is there."""
        return self.find(name, pool) is not None

    def has_all(self, name: bytes) -> bool:
        """Whether a page is there in all pools."""
        entry = self.entries.get(name)
        return entry is not None and self.held[entry] == self.pools

    def add(self, record: DiskRecord, packed: bytes, *, proved: bool) -> None:
        """Note a page, in place of what was known of it."""
        entry = self._entry(record.name)
        at = self._place(entry, record.pool)
        if not self.has(record.name, record.pool):
            self.held[entry] += 1
            self.count += 1
        self.records[at : at + RECORD_BYTES] = packed
        self.proved[at // RECORD_BYTES] = proved
        if self.parents[entry] == NONE and record.parent not in {NO_NAME, record.name}:
            parent = self._entry(record.parent)
            self.parents[entry] = parent
            self.children[parent] += 1
        self.clock += 1
        self.used[entry] = self.clock
        self._queue(entry)

    def drop(self, name: bytes, pool: int) -> DiskRecord | None:
        """Forget a page in one pool; returns the record that it had."""
        packed = self.find(name, pool)
        if packed is None:
            return None
        entry = self.entries[name]
        at = self._place(entry, pool)
        self.records[at : at + RECORD_BYTES] = bytes(RECORD_BYTES)
        self.held[entry] -= 1
        self.count -= 1
        self._tidy(entry)
        return unpacked(packed)

    def is_proved(self, name: bytes, pool: int) -> bool:
        """Whether a page that is there was written or read since the store was opened."""
        return bool(self.proved[self._place(self.entries[name], pool) // RECORD_BYTES])

    def prove(self, name: bytes, pool: int) -> None:
        """Note that a page was read whole."""
        entry = self.entries.get(name)
        if entry is not None:
            self.proved[self._place(entry, pool) // RECORD_BYTES] = True

    def use(self, name: bytes) -> None:
        """Make a page the most recently used one."""
        entry = self.entries.get(name)
        if entry is not None:
            self.clock += 1
            self.used[entry] = self.clock

    def victim(self, kept: AbstractSet[bytes]) -> bytes | None:
        """The name of the least recently used leaf that is not `kept`; None if there is none."""
        found, aside = None, []
        while self.leaves and found is None:
            used, entry = heappop(self.leaves)
            if not self._is_leaf(entry):
                self.queued[entry] = False
            elif used != self.used[entry]:
                heappush(self.leaves, (self.used[entry], entry))
            else:
                aside.append((used, entry))
                if self.names[entry] not in kept:
                    found = self.names[entry]
        for each in aside:
            heappush(self.leaves, each)
        return found

    def pools_of(self, name: bytes) -> list[int]:
        """The pools in which a page is."""
        return [pool for pool in range(self.pools) if self.has(name, pool)]

    def in_order_of_use(self) -> bytes:
        """All packed records, one after another, the least recently used first."""
        rows = np.frombuffer(bytes(self.records), np.dtype((np.uint8, RECORD_BYTES)))
        order = np.argsort(np.array(self.used, np.int64), kind="stable")
        rows = rows.reshape(len(order), self.pools, RECORD_BYTES)[order]
        there: bytes = rows[rows[:, :, :_LEAST_BYTES].any(axis=2)].tobytes()
        return there

    def _place(self, entry: int, pool: int) -> int:
        """Where a record is."""
        return (entry * self.pools + pool) * RECORD_BYTES

    def _entry(self, name: bytes) -> int:
        """The entry of a page, which is made if there is none."""
        entry = self.entries.get(name)
        if entry is not None:
            return entry
        if self.spare:
            entry = self.spare.pop()
            self.names[entry] = name
        else:
            entry = len(self.names)
            self.names.append(name)
            self.records += bytes(RECORD_BYTES * self.pools)
            self.proved += bytes(self.pools)
            self.held.append(0)
            self.queued.append(0)
            self.parents.append(NONE)
            self.children.append(0)
            self.used.append(0)
        self.entries[name] = entry
        return entry

    def _is_leaf(self, entry: int) -> bool:
        return self.held[entry] > 0 and self.children[entry] == 0

    def _queue(self, entry: int) -> None:
        if self._is_leaf(entry) and not self.queued[entry]:
            self.queued[entry] = True
            heappush(self.leaves, (self.used[entry], entry))

    def _tidy(self, entry: int) -> None:
        """Remove an entry that nothing needs, and then those above it that nothing needs."""
        while entry != NONE and not self.held[entry] and not self.children[entry]:
            parent = self.parents[entry]
            del self.entries[self.names[entry]]
            self.names[entry] = b""
            self.parents[entry] = NONE
            self.spare.append(entry)
            if parent != NONE:
                self.children[parent] -= 1
                self._queue(parent)
            entry = parent
