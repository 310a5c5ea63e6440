"""A fake GPU: kernels run in an interpreter, and the driver copies at once.

Streams have no queue: enqueued work is done at once, so that a test can read the bytes. The test
decides whether an event is reached. `gpu.late` shows that other orders of events work too.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Lock

import torch
from attrs import define, field
from triton.runtime.interpreter import InterpretedFunction

from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.cuda_runtime import CudaStream, Event
from kvcanon.optimized.kernels import pages

HERE = Path(__file__).parent


class InterpretedKernel:
    """A kernel run by numpy. All threads share one interpreter, so they take turns."""

    def __init__(self) -> None:
        self._kernel = InterpretedFunction(pages.move_pages)
        self._turn = Lock()
        self.launches = 0

    def __getitem__(self, grid: tuple[int]) -> pages.Launch:
        def launch(*arguments: torch.Tensor | int, **constants: int) -> None:
            require_aligned(arguments, constants["ALIGNED_BYTES"])
            with self._turn:
                self.launches += 1
                self._kernel[grid](*arguments, **constants)

        return launch


def require_aligned(arguments: tuple[torch.Tensor | int, ...], aligned_bytes: int) -> None:
    """Check the alignment that the kernel relies on: a GPU faults on a misaligned access."""
    table, _, _, row_address, row_bytes, *_ = arguments
    numbers = torch.tensor([row_address, row_bytes], device="cpu")
    assert isinstance(table, torch.Tensor)
    assert not (table % aligned_bytes).any(), "a plane lies less even than was promised"
    assert not (numbers % aligned_bytes).any(), "rows lie less even than was promised"


@define(eq=False)
class FakeEvent:
    """An event that is reached once it is recorded and the device is not held."""

    device: FakeRuntime
    recorded: bool = False

    def record(self, stream: CudaStream) -> None:
        assert isinstance(stream, FakeStream)
        self.recorded = True
        stream.recorded.append(self)

    def query(self) -> bool:
        assert self.recorded, "an event that was never recorded counts as reached"
        if self.device.lost:
            raise RuntimeError("CUDA error: the device is lost")
        if self.device.refused_queries:
            self.device.refused_queries -= 1
            raise RuntimeError("CUDA error: this call alone")
        return self.device.going.is_set()

    def synchronize(self) -> None:
        assert self.recorded
        self.device.going.wait()
        self.query()


@define(eq=False)
class FakeStream:
    """A stream that records its calls."""

    name: str
    cuda_stream: int = 7
    waited: list[Event] = field(factory=list)
    recorded: list[Event] = field(factory=list)

    def wait_event(self, event: Event) -> None:
        self.waited.append(event)


@define(eq=False)
class FakeReplay:
    """A captured graph."""

    replay: Callable[[], None]


class FakeRuntime:
    """A device that finishes everything at once, or nothing while it is held."""

    def __init__(self) -> None:
        self.going = Flag()
        self.going.set()
        self.lost = False
        self.refused_queries = 0
        self.captures = False
        self.current = FakeStream("current")
        self.streams: list[FakeStream] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the device, so that no event is reached inside."""
        self.going.clear()
        try:
            yield
        finally:
            self.going.set()

    def enter(self) -> None:
        """Every thread has this device."""

    @contextmanager
    def on_device(self) -> Iterator[None]:
        yield

    @contextmanager
    def beside_captures(self) -> Iterator[None]:
        yield

    def capturing(self, stream: CudaStream) -> bool:
        return self.captures and stream is self.current

    def capture(self, action: Callable[[], None]) -> FakeReplay:
        return FakeReplay(action)

    def stream(self) -> FakeStream:
        self.streams.append(FakeStream(f"stream {len(self.streams)}"))
        return self.streams[-1]

    def current_stream(self) -> FakeStream:
        return self.current

    @contextmanager
    def running_on(self, stream: CudaStream) -> Iterator[None]:
        yield

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def buffer(self, size_bytes: int) -> torch.Tensor:
        return torch.full((size_bytes,), 0xEE, dtype=torch.uint8, device="cpu")

    def synchronize(self) -> None:
        self.going.wait()


def build_driver(folder: Path, *flags: str) -> Path:
    """Compile the driver's stand-in, so that a compiler and not ctypes lays out structures."""
    library = folder / "libcuda.so.1"
    compiler = os.environ.get("CXX", "c++")
    source = HERE / "fake_cuda.cpp"
    subprocess.run([compiler, *flags, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


class DriverLibrary:
    """The compiled stand-in of libcuda: what it was asked for, and what it refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self.refuse_with(0)

    def driver(self) -> CudaDriver:
        return CudaDriver(str(self.path))

    def refuse_with(self, error: int) -> None:
        self._library.fake_reset(error)

    def asked(self, counter: str, *of: int) -> int:
        return int(self._library[f"fake_{counter}"](*of))
