"""Which events a call emitted: by the states of the cache, or by what is taken from it.

A judge without snapshots takes the events after each operation. So they are heard with the
operation that emitted them, which the client that takes them later could not say.
"""

from __future__ import annotations

from functools import wraps
from typing import Any, cast

from attrs import evolve

from kvcanon.conformance.protocol.adapter import Adapter, MakeCache
from kvcanon.spec.events import Event
from kvcanon.spec.snapshot import Snapshot


class WaitingEvents:
    """The events that wait in a cache, followed from state to state."""

    def __init__(self, state: Snapshot | None) -> None:
        self._waiting: tuple[Event, ...] = () if state is None else state.events

    def emitted(self, state: Snapshot | None, *, taken: bool) -> tuple[Event, ...]:
        """The events that are new in a state; `taken` says that the call took those before."""
        if state is None:
            return ()
        waiting, self._waiting = self._waiting, state.events
        if not taken and state.events[: len(waiting)] == waiting:
            return state.events[len(waiting) :]
        # More waited than may wait, so that others are in their place.
        return state.events


class TappedCache:
    """A cache whose taken events are heard; everything else is the cache's own."""

    def __init__(self, cache: object, heard: list[Event]) -> None:
        self._tapped, self._heard = cache, heard

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        found = getattr(self._tapped, name)
        if name != "take_events" or not callable(found):
            return found

        def take_events() -> object:
            events = found()
            if isinstance(events, tuple):
                self._heard.extend(events)
            return events

        return take_events


def with_event_tap(adapter: Adapter, heard: list[Event]) -> Adapter:
    """The same adapter; `heard` gets all events that are taken from a cache that it makes."""

    @wraps(adapter.make, updated=())
    def make(*args: object, **kwargs: object) -> object:
        return TappedCache(adapter.make(*args, **kwargs), heard)

    return evolve(adapter, make=cast("MakeCache", make))
