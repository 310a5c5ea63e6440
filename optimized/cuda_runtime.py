"""Streams and events, as the transfers use them: torch's, behind a protocol that tests can fill.

What readers get wrong: which context and which stream are current is a matter of each thread. A
thread that never touched the GPU has neither, until `enter` gave it the one and `running_on` the
other.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, cast

import numpy as np
import torch

from kvcanon.optimized.page_transfer import SlotArray

FIRST = -1
"""Priority of the transfers' streams: their small kernels go before the large ones of compute."""


class Stream(Protocol):
    """A queue of the device's work, which is done in order."""

    @property
    def cuda_stream(self) -> int:
        """Its handle, for the driver."""

    def wait_event(self, event: Event) -> None:
        """Let what is enqueued from now on wait for the event's last record, if there is one."""


class Event(Protocol):
    """A point in a stream's work."""

    def record(self, stream: Stream) -> None:
        """Mark what the stream has been given so far."""

    def query(self) -> bool:
        """Whether the stream has come to the mark."""

    def synchronize(self) -> None:
        """Return once it has."""


class Runtime(Protocol):
    """What a GPU engine needs of the device besides kernels and copies."""

    def enter(self) -> None:
        """Make the device that of this thread."""

    def stream(self) -> Stream:
        """A new stream."""

    def current_stream(self) -> Stream:
        """The stream on which this thread enqueues."""

    def running_on(self, stream: Stream) -> AbstractContextManager[object]:
        """Enqueue the kernels of this thread there."""

    def event(self) -> Event:
        """A new event."""

    def buffer(self, size_bytes: int) -> torch.Tensor:
        """Memory on the device."""

    def upload(self, slots: SlotArray) -> torch.Tensor:
        """Slots on the device, as the current stream will find them. Never waits."""

    def synchronize(self) -> None:
        """Return once the device has done all that anybody gave it."""


class TorchRuntime:
    """One GPU, through torch."""

    def __init__(self, device: torch.device) -> None:
        # A device without a number is the current one, of this thread and today.
        self.device = torch.empty(0, device=device).device

    def enter(self) -> None:
        """Make the device that of this thread."""
        torch.cuda.set_device(self.device)
        # The driver's own calls need the context, which torch makes current with the first use.
        torch.cuda.current_stream(self.device).query()

    def stream(self) -> Stream:
        """A new stream, ahead of those of compute."""
        return cast("Stream", torch.cuda.Stream(self.device, priority=FIRST))  # type: ignore[no-untyped-call]

    def current_stream(self) -> Stream:
        """The stream on which this thread enqueues."""
        return cast("Stream", torch.cuda.current_stream(self.device))

    def running_on(self, stream: Stream) -> AbstractContextManager[object]:
        """Enqueue the kernels of this thread there."""
        return torch.cuda.stream(cast("torch.cuda.Stream", stream))

    def event(self) -> Event:
        """A new event, which keeps no time."""
        return cast("Event", torch.cuda.Event())  # type: ignore[no-untyped-call]

    def buffer(self, size_bytes: int) -> torch.Tensor:
        """Memory on the device."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def upload(self, slots: SlotArray) -> torch.Tensor:
        """Slots on the device. The pinned copy is torch's to keep until it was read."""
        pinned = torch.empty(len(slots), dtype=torch.int32, pin_memory=True)
        pinned.numpy()[:] = slots.astype(np.int32, copy=False)
        return pinned.to(self.device, non_blocking=True)

    def synchronize(self) -> None:
        """Return once the device has done all that anybody gave it."""
        torch.cuda.synchronize(self.device)
