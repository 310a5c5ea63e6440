"""Scopes: how far an exploration goes, as data.

A scope is a configuration with pools of a few slots, a few prompts that share prefixes, and limits
on the receipts, requests and copies at one time. The explorer does every action in every order.

Most faults of a cache need a few pages, two prompts and one copy at the wrong moment. But a fault
that needs five of something does not show with four.
"""

from __future__ import annotations

from attrs import frozen

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Bounds
from kvcanon.spec.types import Counts, Medium

UNPLAYED = frozenset({"ASYNC-14", "ASYNC-16", "EVICT-9"})
"""Laws about what no move does: ask which copies have arrived, let the engine raise while a call
waits for it, and let a copy fail that a call waits for. Drawn cases exercise them."""


@frozen
class Scope:
    """The bounds of an exploration."""

    name: str
    words: str
    """What the scope contains, in a sentence."""
    config: CacheConfig
    fans: tuple[int, ...]
    """How many different pages may follow a prefix of 0 pages, 1 page, 2 pages, and so on.

    A prompt has as many pages as there are fans. The content of a page does not matter, only which
    pages are equal.
    """
    namespaces: tuple[int, ...] = (0,)
    """The indexes of the client's namespaces that prompts use; all are interchangeable."""
    host_evictions: bool = True
    """Whether slots of a host tier are evicted too, besides those that a copy needs."""
    receipts: int = 1
    """How many locks are held at one time, besides those of copies."""
    requests: int = 0
    """How many requests have slots at one time. Besides, an insert is done in one action."""
    in_flight: int = 2
    """How many copies may be in flight when an operation starts that may enqueue another."""
    from_first: bool = False
    """Whether inserts also pass pages that are on the device already."""
    bare_pages: tuple[int, ...] = (0,)
    """How many of the pages passed to an insert have no window data."""
    fetches: bool = False
    """Whether pages are prefetched from storage."""
    early_bytes: bool = False
    """Whether the bytes of a copy may also move before it is acknowledged."""
    store: Medium | None = None
    """The medium of the store below the host; None without a store."""
    damage: bool = True
    """Whether pages in the store are changed, too, besides lost."""
    orders: int = 1
    """How many orders to the store may be open when a call starts that may give another."""

    made_for: tuple[str, ...] = ()
    """The laws that it has to exercise; if empty, all that can apply in it."""

    @property
    def evictions(self) -> tuple[Counts, ...]:
        """The counts that an eviction is called with: one slot of each component."""
        return tuple(Counts.of({component: 1}) for component in self.config.components)

    @property
    def pages(self) -> int:
        """Pages of the longest prompt."""
        return len(self.fans)

    def has_to_exercise(self, law_id: str) -> bool:
        """Whether exploring the whole scope has to exercise a law."""
        if self.made_for:
            return law_id in self.made_for
        if law_id in UNPLAYED:
            return False
        run = Bounds(
            self.config,
            self.pages,
            self.receipts,
            self.requests,
            self.fetches,
            stores=self.store is not None,
        )
        return LAWS[law_id].enabled_if(run)
