"""Scopes: how far an exploration goes, as data.

A scope is a configuration with pools of a few slots, a handful of prompts that share prefixes, and
so many receipts, requests and copies at once. All that can be done with them is done, in every
order.

What readers get wrong: a small scope is not a sample of a large one. Most of what goes wrong in a
cache needs a handful of pages, two prompts and one copy at the wrong moment; but a fault that needs
five of something is not seen with four.
"""

from __future__ import annotations

from attrs import frozen

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

ONE_FULL, ONE_SWA, ONE_STATE = Counts(full=1), Counts(swa=1), Counts(mamba=1)


@frozen
class Scope:
    """What there is to be done."""

    name: str
    words: str
    """What is in it, in a sentence."""
    config: CacheConfig
    fans: tuple[int, ...]
    """How many different pages may follow a prefix of no pages, of one page, of two, and so on.

    Prompts are as long as there are fans. Which of the pages follows is all the same: only what is
    equal to what counts.
    """
    namespaces: tuple[int, ...] = (0,)
    """Which of the client's namespaces prompts are in; they are interchangeable."""
    evictions: tuple[Counts, ...] = (ONE_FULL,)
    """What is asked of the device in an eviction."""
    host_evictions: tuple[Counts, ...] = ()
    receipts: int = 1
    """How many locks are held at once, besides those of copies."""
    requests: int = 0
    """How many requests have slots at once; beside them an insert is done in one go."""
    in_flight: int = 2
    """How many copies may be in flight when something is begun that may enqueue another."""
    from_first: bool = False
    """Whether inserts also hand over pages that are on the device already."""
    bare_pages: tuple[int, ...] = (0,)
    """How many of the pages that are handed over come without window data."""
    fetches: bool = False
    """Whether pages come from storage."""
    early_bytes: bool = False
    """Whether the bytes of a copy may also move before it is acknowledged."""
    nonsense: bool = False
    """Whether calls are made that are wrong in themselves."""

    made_for: tuple[str, ...] = ()
    """The laws whose premise has to come up in it; none named, all that it can reach."""

    @property
    def pages(self) -> int:
        """Pages of the longest prompt."""
        return len(self.fans)
