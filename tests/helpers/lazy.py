"""Caches that do little or nothing, and break few laws or none by it."""

from __future__ import annotations

from typing import NoReturn

from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evicted, Inserted, LoadedBack, Matched, Receipt
from kvcanon.spec.types import Counts, Key, Slots, WritePolicy
from serving import ServingCache

NO = BadArgument("key", "is not liked")


class RefusesInserts(ReferenceCache):
    """Caches nothing, ever."""

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Refuse."""
        raise NO


class RefusesMatches(ReferenceCache):
    """Says of no key whether it is there."""

    def match(self, key: Key) -> Matched:
        """Refuse."""
        raise NO


class FindsNothing(ReferenceCache):
    """Says that nothing is there."""

    def match(self, key: Key) -> Matched:
        """Find nothing."""
        return Matched(0, 0, Slots())


class KeepsNothing(ReferenceCache):
    """Takes what it is given, and frees it at once."""

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Free all."""
        self.free(slots)
        return Inserted(0, Counts(), slots.counts())


class LocksNothing(ReferenceCache):
    """Grants locks of no page alone."""

    def lock(self, key: Key) -> Receipt:
        """Refuse what is not empty."""
        if len(key):
            raise NO
        return super().lock(key)


class AllocatesNothing(ReferenceCache):
    """Has slots, and gives none."""

    def allocate(self, counts: Counts) -> Slots:
        """Refuse what is not nothing."""
        if counts:
            raise BadArgument("counts", "are not liked")
        return super().allocate(counts)


class EvictsNothing(ReferenceCache):
    """Has an operation that it never serves."""

    def evict(self, counts: Counts) -> Evicted:
        """Refuse."""
        raise BadArgument("counts", "are not liked")


class LoadsNothing(ReferenceCache):
    """Has another."""

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """Refuse."""
        raise NO


class DoesNothing(ReferenceCache):
    """Refuses whatever it is asked."""

    def match(self, *_: object, **__: object) -> NoReturn:
        """Refuse."""
        raise NO

    lock = unlock = allocate = free = insert = match


class Least(ReferenceCache):
    """Has what every cache has, and no more."""

    free_slots = take_events = read = write = None  # type: ignore[assignment]
    evict = evict_host = load_back = insert_host = poll = flush = None  # type: ignore[assignment]
    unlock_window = reset = snapshot = None  # type: ignore[assignment]


def hardly_any(config: CacheConfig) -> ReferenceCache:
    """Is made with one configuration in sixty, and does not say so by an offer."""
    if config.window_tokens is not None or config.mamba or config.host_tier:
        raise BadArgument("config", "is not offered")
    return ReferenceCache(config)


FULL_ALONE = Adapter(
    "full alone",
    hardly_any,
    Offer(windows_tokens=(None,), mamba=(False,), write_policies=(WritePolicy.NONE,)),
)
"""The same, and says so."""


class AdmitsNobody(ServingCache):
    """Runs no request."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Refuse."""
        raise NO


ADMITS_NOBODY = Adapter(
    "admits nobody",
    AdmitsNobody,
    # Without a host tier the drain asks for the whole pool, and hears the refusal.
    Offer(write_policies=(WritePolicy.WRITE_THROUGH,)),
    kind=CacheKind.REQUEST,
)
