"""Which events a call emitted, of a cache whose snapshots have the events that wait to be taken."""

from __future__ import annotations

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
