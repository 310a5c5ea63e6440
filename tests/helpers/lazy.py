"""Caches that do little or nothing, and thereby break few laws or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig, Choosing, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evicted, Inserted, LoadedBack, Matched, Receipt
from kvcanon.spec.types import Counts, Key, Slots, WritePolicy
from serving import ServingCache

NO = BadArgument("key", "is not liked")


class RefusesInserts(ReferenceCache):
    """Caches nothing, ever."""

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        raise NO


class RefusesMatches(ReferenceCache):
    """Refuses every match."""

    def match(self, key: Key) -> Matched:
        raise NO


class FindsNothing(ReferenceCache):
    """Never has a prefix hit."""

    def match(self, key: Key) -> Matched:
        return Matched(0, 0, Slots())


class KeepsNothing(ReferenceCache):
    """Frees the slots of every insert at once."""

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        self.free(slots)
        return Inserted(0, Counts(), slots.counts())


class LocksNothing(ReferenceCache):
    """Grants only locks of the empty key."""

    def lock(self, key: Key) -> Receipt:
        if len(key):
            raise NO
        return super().lock(key)


class AllocatesNothing(ReferenceCache):
    """Has slots, but allocates none."""

    def allocate(self, counts: Counts) -> Slots:
        if counts:
            raise BadArgument("counts", "are not liked")
        return super().allocate(counts)


class EvictsNothing(ReferenceCache):
    """Has an operation that it always refuses."""

    def evict(self, counts: Counts) -> Evicted:
        raise BadArgument("counts", "are not liked")


class LoadsNothing(ReferenceCache):
    """Has another operation that it always refuses."""

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        raise NO


class DoesNothing(ReferenceCache):
    """Refuses every call."""

    def match(self, *_: object, **__: object) -> NoReturn:
        raise NO

    lock = unlock = allocate = free = insert = match


class Least(ReferenceCache):
    """Has only the operations that every cache must have."""

    free_slots = take_events = read = write = None  # type: ignore[assignment]
    evict = evict_host = load_back = insert_host = poll = flush = None  # type: ignore[assignment]
    unlock_window = reset = snapshot = None  # type: ignore[assignment]


EXPIRING_LEAST = Adapter("expiring", Least, profile=Profile(retention=Choosing.OWN))
"""Has only those operations, and may let data leave on its own."""


def hardly_any(config: CacheConfig) -> ReferenceCache:
    """Can be made with one configuration in sixty, but has no offer that says so."""
    if config.window_tokens is not None or config.mamba or config.host_tier:
        raise BadArgument("config", "is not offered")
    return ReferenceCache(config)


FULL_ALONE = Adapter(
    "full alone",
    hardly_any,
    Offer(windows_tokens=(None,), mamba=(False,), write_policies=(WritePolicy.NONE,)),
)
"""The same cache, with an offer that says so."""


class AdmitsNobody(ServingCache):
    """Admits no request."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        raise NO


ADMITS_NOBODY = Adapter(
    "admits nobody",
    AdmitsNobody,
    # Without a host tier the drain allocates the whole pool, which this cache refuses.
    Offer(write_policies=(WritePolicy.WRITE_THROUGH,)),
    kind=CacheKind.REQUEST,
)
