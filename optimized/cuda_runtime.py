"""Streams and events of torch, behind a protocol that tests can implement.

Each thread has its own current context and stream. A new thread must call `enter` to get a context,
and `running_on` to set a stream.

While a graph is captured in torch's default mode, calls such as the query of an event break the
capture, also from other threads. CUDA lets each thread choose that its calls do not: `enter` does
so for threads of an engine, `beside_captures` for a few calls in a thread of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, cast, runtime_checkable

import torch

from kvcanon.optimized.cuda_driver import CaptureMode, CudaDriver

FIRST = -1
"""Priority of the streams of transfers: their small kernels run before the large ones of compute.
"""


@runtime_checkable
class CudaStream(Protocol):
    """A queue of work on the device, run in order."""

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


class CapturedGraph(Protocol):
    """A captured graph of kernels."""

    def replay(self) -> None:
        """Enqueue all its kernels on the current stream."""


class Runtime(Protocol):
    """What a GPU engine needs of the device in addition to kernels and copies."""

    def enter(self) -> None:
        """Make the device that of this thread, and its calls harmless to captures elsewhere."""

    def on_device(self) -> AbstractContextManager[object]:
        """Make the device current in the block, and then the caller's again."""

    def beside_captures(self) -> AbstractContextManager[object]:
        """Let no call of this thread in the block break a capture of any thread."""

    def capturing(self, stream: CudaStream) -> bool:
        """Whether work on this stream is captured into a graph now instead of run."""

    def capture(self, action: Callable[[], None]) -> CapturedGraph:
        """Capture what an action enqueues; its current stream is one for captures."""

    def stream(self) -> CudaStream:
        """A new stream."""

    def current_stream(self) -> CudaStream:
        """The stream on which this thread enqueues."""

    def running_on(self, stream: CudaStream) -> AbstractContextManager[object]:
        """Enqueue the kernels of this thread there."""

    def event(self) -> Event:
        """A new event."""

    def buffer(self, size_bytes: int) -> torch.Tensor:
        """Memory on the device, which work that the current stream has may still use."""

    def synchronize(self) -> None:
        """Wait until the device has done all submitted work."""


class TorchRuntime:
    """One GPU, through torch."""

    def __init__(self, device: torch.device, driver: CudaDriver) -> None:
        # A device without an index means the current one; allocating resolves it.
        self.device = torch.empty(0, device=device).device
        self._driver = driver

    def enter(self) -> None:
        """Make the device that of this thread, and its calls harmless to captures elsewhere."""
        self._driver.exchange_capture_mode(CaptureMode.THREAD_LOCAL)
        torch.cuda.set_device(self.device)
        make_context(self.device)

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Make the device current in the block, and then the caller's again."""
        with torch.cuda.device(self.device):
            make_context(self.device)
            yield

    @contextmanager
    def beside_captures(self) -> Iterator[None]:
        """Let no call of this thread in the block break a capture of any thread."""
        before = self._driver.exchange_capture_mode(CaptureMode.RELAXED)
        try:
            yield
        finally:
            self._driver.exchange_capture_mode(before)

    def capturing(self, stream: CudaStream) -> bool:
        """Whether work on this stream is captured into a graph now instead of run."""
        with self.running_on(stream):
            return torch.cuda.is_current_stream_capturing()

    def capture(self, action: Callable[[], None]) -> CapturedGraph:
        """Capture what an action enqueues; its current stream is one for captures."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            action()
        return graph

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
        """Memory on the device, which work that the current stream has may still use."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def synchronize(self) -> None:
        """Wait until the device has done all submitted work."""
        torch.cuda.synchronize(self.device)


def make_context(device: torch.device) -> None:
    """Make the context of the current device current for direct calls of the driver.

    Torch does so at its first use of the device in a thread.
    """
    torch.cuda.current_stream(device).query()
