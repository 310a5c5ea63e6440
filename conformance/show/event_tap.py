"""An event tap: hears the events that are taken from a cache, whoever takes them.

A judge without snapshots takes the events after each operation. So they are heard with the
operation that emitted them, which the client that takes them later could not say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from attrs import evolve

from kvcanon.conformance.protocol.adapter import Adapter, MakeCache
from kvcanon.spec.events import Event

Hear = Callable[[tuple[Event, ...]], None]


class TappedCache:
    """A cache whose taken events are heard; everything else is the cache's own."""

    def __init__(self, cache: object, hear: Hear) -> None:
        self._tapped, self._hear = cache, hear

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        found = getattr(self._tapped, name)
        if name != "take_events" or not callable(found):
            return found

        def take_events() -> object:
            events = found()
            if isinstance(events, tuple):
                self._hear(events)
            return events

        return take_events


def with_event_tap(adapter: Adapter, hear: Hear) -> Adapter:
    """The same adapter; `hear` gets all events that are taken from a cache that it makes."""

    @wraps(adapter.make, updated=())
    def make(*args: object, **kwargs: object) -> object:
        return TappedCache(adapter.make(*args, **kwargs), hear)

    return evolve(adapter, make=cast("MakeCache", make))
