"""Streams and events of torch, behind a protocol that tests can implement.

Each thread has its own current context and stream. A new thread must call `enter` to get a context,
and `running_on` to set a stream.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch

from kvcanon.optimized.page_transfer import SlotArray

FIRST = -1
"""Priority of the streams of transfers: their small kernels run before the large ones of compute.
"""


@runtime_checkable
class CudaStream(Protocol):
    """A queue of work on the device, done in order."""

    @property
    def cuda_stream(self) -> int:
        """The handle for the driver."""

    def wait_event(self, event: Event) -> None:
        """Make work that is enqueued from now on wait for the event's last record, if any."""


@runtime_checkable
class Event(Protocol):
    """A point in a stream's work."""

    def record(self, stream: CudaStream) -> None:
        """Record the work that the stream has now."""

    def query(self) -> bool:
        """Whether the recorded work is done."""

    def synchronize(self) -> None:
        """Return once the recorded work is done."""


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
