"""Gates: fix a point in a stream's work, so that it can be waited for later.

A copy waits for its point when a background thread enqueues it. By then the caller may have
recorded the same event again, on another stream even, and a wait would mean that later record.
"""

from __future__ import annotations

from attrs import define, field

from kvcanon.optimized.cuda_runtime import CudaStream, Event, Runtime
from kvcanon.spec.errors import BadArgument

MOST_GATES = 8
"""Streams that only wait. Points that are reached in any order need one each."""


@define(eq=False)
class _Gate:
    stream: CudaStream
    last: Event


@define(eq=False)
class Gates:
    """Makes events that keep their meaning. One thread at a time may use it."""

    runtime: Runtime
    _gates: list[_Gate] = field(factory=list, init=False)

    def event_after(self, point: object) -> Event:
        """Return a new event for all work of a stream, or of an event's last record, until now.

        None means the current stream. Never waits.

        Raises:
            BadArgument: the point is neither a stream nor an event, an event without a record, or
                a stream that is being captured into a graph.
        """
        if point is None:
            point = self.runtime.current_stream()
        if isinstance(point, CudaStream):
            return self._recorded_on(point)
        if not isinstance(point, Event):
            kind = type(point).__name__
            raise BadArgument("after", f"is a {kind}; give a CUDA stream, an event, or None")
        # Waiting for an event without a record does not wait. Torch makes an event at its first.
        if not getattr(point, "cuda_event", True):
            raise BadArgument("after", "is an event that was never recorded; record it first")
        gate = self._free_gate()
        gate.stream.wait_event(point)
        gate.last = self._recorded_on(gate.stream)
        return gate.last

    def _recorded_on(self, stream: CudaStream) -> Event:
        if self.runtime.capturing(stream):
            raise BadArgument(
                "after", "is a stream that is being captured; call the cache outside of the capture"
            )
        event = self.runtime.event()
        event.record(stream)
        return event

    def _free_gate(self) -> _Gate:
        """A gate without a wait before this one, as long as there are enough."""
        for gate in self._gates:
            if gate.last.query():
                return gate
        if len(self._gates) < MOST_GATES:
            stream = self.runtime.stream()
            self._gates.append(_Gate(stream, self._recorded_on(stream)))
        else:
            self._gates.append(self._gates.pop(0))
        return self._gates[-1]
