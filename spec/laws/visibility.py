"""Visibility: the methods that show a law without snapshots, for `from_outside`.

An observer without snapshots sees answers, events and bytes. Each group here is of methods one of
which is enough; a law needs one of each group that it names. A law that names no group is checked
by answers that every cache gives. A law without `from_outside` takes a snapshot.
"""

from __future__ import annotations

from kvcanon.spec.cache import Cache
from kvcanon.spec.law import AnyOf

ANSWERS: tuple[AnyOf, ...] = ()
"""No method besides those that every cache has."""
EVENTS: AnyOf = (Cache.take_events,)
EVICTIONS: AnyOf = (Cache.evict, Cache.evict_host, Cache.load_back)
DEVICE_EVICTIONS: AnyOf = (Cache.evict, Cache.load_back)
"""A load-back evicts from the device where free slots are short."""
SETTLEMENTS: AnyOf = (Cache.poll, Cache.flush, Cache.settle)
LOADS: AnyOf = (Cache.load_back,)
