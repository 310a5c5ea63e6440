"""Streams and events of torch, behind a protocol that tests can implement.

Each thread has its own current context and stream. A new thread must call `enter` to get a context,
and `running_on` to set a stream.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, cast

import numpy as np
import torch

from kvcanon.optimized.page_transfer import SlotArray
from kvcanon.spec.errors import BadArgument

FIRST = -1
"""Priority of the streams of transfers: their small kernels run before the large ones of compute.
"""


class CudaStream(Protocol):
    """A queue of work on the device, done in order."""

    @property
    def cuda_stream(self) -> int:
        """The handle for the driver."""

    def wait_event(self, event: Event) -> None:
        """Make work that is enqueued from now on wait for the event's last record, if any."""


class Event(Protocol):
    """A point in a stream's work."""

    def record(self, stream: CudaStream) -> None:
        """Record the work that the stream has now."""

    def query(self) -> bool:
        """Whether the recorded work is done."""

    def synchronize(self) -> None:
        """Return once the recorded work is done."""


def stream_after(point: object, runtime: Runtime, relay: CudaStream) -> CudaStream:
    """Return a stream whose work ends after a point: the stream that it is, or `relay`.

    `relay` waits for an event. Work of another event that it waits for is awaited then, too.

    Raises:
        BadArgument: it is neither a stream nor an event that was recorded.
    """
    if hasattr(point, "cuda_stream"):
        return cast("CudaStream", point)
    if not (hasattr(point, "record") and hasattr(point, "synchronize")):
        kind = type(point).__name__
        raise BadArgument("after", f"is a {kind}; give a torch.cuda.Stream or torch.cuda.Event")
    # Waiting for an event without a record does not wait at all.
    if not runtime.recorded(cast("Event", point)):
        raise BadArgument("after", "is an event that was never recorded; record it first")
    relay.wait_event(cast("Event", point))
    return relay


def wait_for(point: object, runtime: Runtime) -> None:
    """Make the current stream wait for a stream's or an event's work until now.

    Raises:
        BadArgument: it is neither a stream nor an event that was recorded.
    """
    current = runtime.current_stream()
    stream = stream_after(point, runtime, current)
    if stream is not current:
        event = runtime.event()
        event.record(stream)
        current.wait_event(event)


class Runtime(Protocol):
    """What a GPU engine needs of the device in addition to kernels and copies."""

    def enter(self) -> None:
        """Make the device that of this thread."""

    def stream(self) -> CudaStream:
        """A new stream."""

    def current_stream(self) -> CudaStream:
        """The stream on which this thread enqueues."""

    def running_on(self, stream: CudaStream) -> AbstractContextManager[object]:
        """Enqueue the kernels of this thread there."""

    def event(self) -> Event:
        """A new event."""

    def recorded(self, event: Event) -> bool:
        """Whether an event was ever recorded."""

    def buffer(self, size_bytes: int) -> torch.Tensor:
        """Memory on the device."""

    def upload(self, slots: SlotArray) -> torch.Tensor:
        """Copy slots to the device, in the order of the current stream. Never waits."""

    def synchronize(self) -> None:
        """Return once the device has done all that anybody gave it."""


class TorchRuntime:
    """One GPU, through torch."""

    def __init__(self, device: torch.device) -> None:
        # A device without an index means the current one; allocating resolves it.
        self.device = torch.empty(0, device=device).device

    def enter(self) -> None:
        """Make the device that of this thread."""
        torch.cuda.set_device(self.device)
        # Direct driver calls need the context, which torch makes current at its first use.
        torch.cuda.current_stream(self.device).query()

    def stream(self) -> CudaStream:
        """A new stream, with a higher priority than compute."""
        return cast("CudaStream", torch.cuda.Stream(self.device, priority=FIRST))  # type: ignore[no-untyped-call]

    def current_stream(self) -> CudaStream:
        """The stream on which this thread enqueues."""
        return cast("CudaStream", torch.cuda.current_stream(self.device))

    def running_on(self, stream: CudaStream) -> AbstractContextManager[object]:
        """Enqueue the kernels of this thread there."""
        return torch.cuda.stream(cast("torch.cuda.Stream", stream))

    def event(self) -> Event:
        """A new event, which keeps no time."""
        return cast("Event", torch.cuda.Event())  # type: ignore[no-untyped-call]

    def recorded(self, event: Event) -> bool:
        """Whether an event was ever recorded: torch makes it at its first record."""
        return bool(getattr(event, "cuda_event", True))

    def buffer(self, size_bytes: int) -> torch.Tensor:
        """Memory on the device."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def upload(self, slots: SlotArray) -> torch.Tensor:
        """Copy slots to the device. Torch keeps the pinned copy until it was read."""
        pinned = torch.empty(len(slots), dtype=torch.int32, pin_memory=True)
        pinned.numpy()[:] = slots.astype(np.int32, copy=False)
        return pinned.to(self.device, non_blocking=True)

    def synchronize(self) -> None:
        """Return once the device has done all that anybody gave it."""
        torch.cuda.synchronize(self.device)
