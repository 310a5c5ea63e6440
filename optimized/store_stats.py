"""What passed between a cache and its store, in numbers, for `PrefixCache.stats` and metrics."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, frozen

from kvcanon.spec.tier import OrderKind
from kvcanon.spec.types import Medium


@define
class StoreCallStats:
    """The calls of one kind, writes or fetches, and how many of their pages succeeded."""

    calls: int = 0
    """Calls that a thread began; each is about a batch of pages."""
    failed_calls: int = 0
    """Calls that raised: the store is not there, or says that it cannot."""
    given_up_calls: int = 0
    """Calls that passed their deadline."""
    pages: int = 0
    """Pages that were written, or fetched and proved."""
    bytes: int = 0
    """Of these pages."""
    missed_pages: int = 0
    """Pages that the store answered without: it does not have them, or refuses them. Those behind
    the first are counted, too, as far as they were asked for in the same call."""
    passed_over_pages: int = 0
    """Pages that the store was not asked for: it was left alone, or too many waited."""


@frozen
class StoreStats:
    """The calls of a queue since it was made, and how its store is now."""

    medium: Medium
    calls: Mapping[OrderKind, StoreCallStats]
    damaged_pages: int
    """Fetched pages that did not prove to be what was written; each was a miss."""
    rests: int
    """How often the store was left alone after a failure."""
    is_resting: bool
    """Whether it is left alone now. A present size, as all fields below."""
    late_calls: int
    """Calls that were given up and have not returned: their memory is in use as long."""
    waiting_pages: int
    """Pages of open writes that no call has had yet."""
