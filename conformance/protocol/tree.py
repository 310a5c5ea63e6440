"""TreeCache: the methods that a cache with operations on prefixes must have, and may have.

A cache is judged through an object with the methods of `TreeCache`; they mean the same as in
`kvcanon.spec.cache`, where `Cache` has them all. Each further method is a `Capability`: a cache
declares it by having the method. What each enables in black-box mode:

| methods | laws |
|---|---|
| `evict` | which pages are evicted, and how many: EVICT, REC-3 |
| `take_events` | events for routers: EVENT |
| `read` and `write` | the bytes behind slots: DATA-1 |
| `reset` | ALLOC-7 |
| `load_back`, `evict_host`, `insert_host`, `poll`, `flush` | the host tier: LOAD, ASYNC, RES-9 |
| `free_slots` | which slots are free: RES-5 |
| `snapshot` | every law |

A missing capability hides faults, it does not excuse them: laws that need it are reported as not
exercised. Every method of `TreeCache`, and every capability that is there, must be served at least
once.
"""

from __future__ import annotations

from typing import Protocol

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Inserted, Matched, Receipt
from kvcanon.spec.types import Counts, Key, Slots


class TreeCache(Protocol):
    """The methods of every cache that is judged as a tree; refusals are `CacheError`s."""

    @property
    def config(self) -> CacheConfig:
        """The configuration that the factory was given."""

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key."""

    def lock(self, key: Key) -> Receipt:
        """Lock all of a key. Raises: PrefixNotCached."""

    def unlock(self, receipt: Receipt) -> None:
        """Release what a receipt holds. Raises: ReceiptSpent."""

    def allocate(self, counts: Counts) -> Slots:
        """Allocate free slots; never evicts. Raises: OutOfSlots, BadArgument."""

    def free(self, slots: Slots) -> None:
        """Give allocated slots back. Raises: SlotNotHeld, BadArgument."""

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Insert the data of a key from page `start_pages` on.

        A cache that offers `states_within` takes `state_pages` as well; no other is given it.

        Raises: BadArgument, SlotNotHeld, PrefixNotCached, TransferPending.
        """


ESSENTIAL = tuple(name for name in vars(TreeCache) if not name.startswith("_") and name != "config")
"""The methods of a `TreeCache`."""
