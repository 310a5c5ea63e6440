"""Faulty caches, by name, for a campaign to find in this process or in another one."""

from __future__ import annotations

import os
from itertools import count

from attrs import evolve

from kvcanon.conformance.errors import ChildSilent
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import Need
from kvcanon.spec.operations import Matched
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Counts, Key, Slots, WritePolicy


class Leaky(ReferenceCache):
    """Leaks the slots of a request that frees two pages."""

    def free(self, slots: Slots) -> None:
        if len(slots.full) != 2:
            super().free(slots)


class Crashing(ReferenceCache):
    """Raises an exception that is not a refusal."""

    def match(self, key: Key) -> Matched:
        if len(key) > 3:
            raise ZeroDivisionError("too long")
        return super().match(key)


class CrashingAtOnce(ReferenceCache):
    """Raises an exception that is not a refusal at every allocation."""

    def allocate(self, counts: Counts) -> Slots:
        raise ZeroDivisionError("too much")


class Silent(ReferenceCache):
    """Times out like a child that does not answer, and counts the calls."""

    unanswered = 0

    def match(self, key: Key) -> Matched:
        if len(key) > 3:
            Silent.unanswered += 1
            raise ChildSilent("was silent at match, and was ended")
        return super().match(key)


class Short(ReferenceCache):
    """Matches one page less than is cached, which no law allows."""

    def match(self, key: Key) -> Matched:
        return super().match(key.prefix(max(0, len(key) - 1)))


class Dying(ReferenceCache):
    """Kills its process."""

    def match(self, key: Key) -> Matched:
        if len(key) > 3:
            os._exit(9)
        return super().match(key)


_makings = count()


def flaky(config: CacheConfig) -> ReferenceCache:
    """Only the 13th cache is faulty, so the failure does not show again in a replay."""
    return Crashing(config) if next(_makings) == 13 else ReferenceCache(config)


def choosy(config: CacheConfig) -> ReferenceCache:
    """Declares that it offers no mamba states."""
    if config.mamba:
        raise BadArgument("mamba", "is not offered")
    return ReferenceCache(config)


def unmade(config: CacheConfig) -> ReferenceCache:
    """Cannot be made with pages of two tokens, but its offer does not say so."""
    if config.page_size == 2:
        raise RuntimeError("no such kernel")
    return ReferenceCache(config)


SIMPLE = Offer(
    page_sizes=(1,),
    windows_tokens=(None,),
    mamba=(False,),
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
)
NICKNAMED = Adapter("some other name", Leaky, SIMPLE)
SIMPLY_SHORT = Adapter("short", Short, SIMPLE)
OPAQUE = Adapter("opaque", ReferenceCache, SIMPLE, hides=frozenset(Need))
"""Shows only its answers."""

SIMPLE_CONFIG = CacheConfig(device_slots=Counts(full=8))
PLAIN_ONLY = Adapter("plain", ReferenceCache, SIMPLE)
ONLY_SMALL_PAGES = Adapter("small", ReferenceCache, Offer(page_sizes=(1, 2)))
ONE_NAMESPACE = Adapter("one", ReferenceCache, Offer(namespaces=False))


class WithoutEvict(ReferenceCache):
    """Cannot evict."""

    evict = None  # type: ignore[assignment]


class WithoutEvents(ReferenceCache):
    """Keeps its events to itself."""

    take_events = None  # type: ignore[assignment]

    def snapshot(self) -> Snapshot:
        return evolve(super().snapshot(), events=())


WITHOUT_EVICT = Adapter("no evict", WithoutEvict)
WITHOUT_EVENTS = Adapter("no events", WithoutEvents)
