"""A fake GPU that executes late: work runs in any order that streams and events permit.

Nothing that is enqueued runs at once. A seeded scheduler picks the next operation: the first of any
stream, once the events that this stream waits for were reached. It runs when the host waits, and a
little whenever the host asks or calls `progress`.

Memory comes from a caching allocator for each stream, which gives a block to its next owner while
work that the stream has still uses it. So a new block still has a former owner, who notices if
its bytes change, and then overwrites them, in the order of its stream; a block that was let go gets
a next owner in the same way. Work that another stream does in such a block, without waiting, is
found, or spoils bytes.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from attrs import define, field

from gpu.fake import FakeReplay, require_aligned
from kvcanon.optimized.cuda_driver import Addresses, CudaDriver, Rows
from kvcanon.optimized.cuda_runtime import CudaStream, Event
from kvcanon.optimized.kernels import pages

Bytes = npt.NDArray[np.uint8]


class _Block(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """Memory as its owner sees it; the device keeps it after its owner let it go."""


@define(eq=False)
class LateStream:
    """A queue of operations. Each returns whether it could run."""

    device: LateDevice
    cuda_stream: int
    pace: float
    queue: deque[Callable[[], bool]] = field(factory=deque)

    def wait_event(self, event: Event) -> None:
        """Let later operations wait for the event's last record; for none, if it has none."""
        assert isinstance(event, LateEvent)
        record = event.record_number
        if record is not None:
            self.device.enqueue_attempt(self, lambda: record in self.device.reached)


@define(eq=False)
class LateEvent:
    """A point in a stream's work."""

    device: LateDevice
    record_number: int | None = None

    def record(self, stream: CudaStream) -> None:
        """Record the work that the stream has now."""
        assert isinstance(stream, LateStream)
        number = self.record_number = self.device.next_number()
        self.device.enqueue(stream, lambda: self.device.reached.add(number))

    def query(self) -> bool:
        """Whether it was reached; the device goes on a little."""
        self.device.require_no_capture("an event is queried")
        self.device.progress()
        return self.record_number is None or self.record_number in self.device.reached

    def synchronize(self) -> None:
        """Run the device until it is reached."""
        self.device.require_no_capture("an event is waited for")
        number = self.record_number
        if number is not None:
            self.device.run_until(lambda: number in self.device.reached)


class LateDevice:
    """A device whose work a seeded scheduler orders. It is also the runtime of a `Gpu`."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.streams: dict[int, LateStream] = {}
        self.reached: set[int] = set()
        self.complaints: list[str] = []
        self.held: set[int] = set()
        """Handles of streams that make no progress now."""
        self._numbers = 0
        self._blocks: list[Bytes] = []
        self._turn = threading.RLock()
        self._thread = threading.local()
        self.captured_by: int | None = None
        """The thread that captures a graph now, in the mode that forbids all others much."""
        self._captured = list[Callable[[], object]]()
        self.compute = self.stream()

    # What a scheduler of the device does.

    def enqueue(self, stream: CudaStream, work: Callable[[], object]) -> None:
        """Queue an operation that can always run."""

        def attempt() -> bool:
            work()
            return True

        self.enqueue_attempt(stream, attempt)

    def enqueue_attempt(self, stream: CudaStream, attempt: Callable[[], bool]) -> None:
        """Queue an operation that says whether it could run."""
        assert isinstance(stream, LateStream)
        with self._turn:
            stream.queue.append(attempt)

    def step(self) -> bool:
        """Run one operation; False if no stream can go on."""
        with self._turn:
            ready = [each for each in self.streams.values() if each.queue]
            ready.sort(key=lambda stream: self.rng.random() * stream.pace)
            for stream in ready:
                if stream.cuda_stream not in self.held and stream.queue[0]():
                    stream.queue.popleft()
                    return True
            return False

    def progress(self, most: int = 4) -> None:
        """Run a few operations."""
        for _ in range(self.rng.randrange(most + 1)):
            self.step()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run until a condition is true."""
        while not condition():
            if not self.step():
                with self._turn:
                    assert condition() or self.step(), "the device waits for what never comes"

    def next_number(self) -> int:
        """A new number."""
        with self._turn:
            self._numbers += 1
            return self._numbers

    # What the engine asks of a runtime.

    def enter(self) -> None:
        """Let calls of this thread break no capture but its own."""
        self._thread.beside = True

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """There is one device."""
        yield

    @contextmanager
    def beside_captures(self) -> Iterator[None]:
        """Calls inside break no capture."""
        before = getattr(self._thread, "beside", False)
        self._thread.beside = True
        try:
            yield
        finally:
            self._thread.beside = before

    def capturing(self, stream: CudaStream) -> bool:
        """Whether this thread captures its work instead of doing it."""
        return self.captured_by == threading.get_ident() and stream is self.current_stream()

    def capture(self, action: Callable[[], None]) -> FakeReplay:
        """Keep what this thread enqueues meanwhile, in the mode that forbids others much."""
        assert self.captured_by is None
        self.captured_by, complaints = threading.get_ident(), len(self.complaints)
        self._captured = list[Callable[[], object]]()
        with self.running_on(self.stream()):
            action()
        self.captured_by, kept = None, self._captured
        if len(self.complaints) > complaints:
            raise RuntimeError(self.complaints[-1])

        def replay() -> None:
            for work in kept:
                self.enqueue(self.current_stream(), work)

        return FakeReplay(replay)

    def launch(self, work: Callable[[], object]) -> None:
        """Do what a kernel does, in the order of this thread's stream, or capture it."""
        if self.capturing(self.current_stream()):
            self._captured.append(work)
        else:
            self.enqueue(self.current_stream(), work)

    def require_no_capture(self, what: str) -> None:
        """Complain of a call that breaks a capture."""
        if self.captured_by is not None and not getattr(self._thread, "beside", False):
            self.complaints.append(f"{what} while a graph is captured")

    def stream(self) -> LateStream:
        """A new stream: some are fast, some slow."""
        handle = 1000 + self.next_number()
        made = LateStream(self, handle, self.rng.choice((0.001, 0.1, 1)))
        self.streams[handle] = made
        return made

    def current_stream(self) -> LateStream:
        """The stream of this thread."""
        return getattr(self._thread, "stream", self.compute)

    @contextmanager
    def running_on(self, stream: CudaStream) -> Iterator[None]:
        """Enqueue kernels of this thread there."""
        before = self.current_stream()
        self._thread.stream = stream
        try:
            yield
        finally:
            self._thread.stream = before

    def event(self) -> LateEvent:
        """A new event."""
        return LateEvent(self)

    def buffer(self, size_bytes: int) -> torch.Tensor:
        """A block of this thread's current stream, whose former owner is still there."""
        self.require_no_capture("memory is allocated")
        stream = self.current_stream()
        numbers = np.random.default_rng(self.rng.randrange(1 << 30))
        block: Bytes = numbers.integers(0, 256, size_bytes, np.uint8)
        theirs = block.copy()
        self._blocks.append(block)

        def former_owner_ends() -> None:
            if not np.array_equal(block, theirs):
                self.complaints.append("memory was written while its former owner used it")
            block[:] = 0xEE

        self.enqueue(stream, former_owner_ends)
        lent = block.view(_Block)
        weakref.finalize(lent, self._let_go, block, stream).atexit = False
        return torch.from_numpy(lent)

    def _let_go(self, block: Bytes, stream: LateStream) -> None:
        self.enqueue(stream, lambda: block.fill(0xDD))

    def kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory, without keeping its owner alive: a kernel keeps nothing alive either."""
        for block in self._blocks:
            offset = tensor.data_ptr() - block.ctypes.data
            if block.size and 0 <= offset < block.size:
                part = torch.from_numpy(block)[offset : offset + tensor.nbytes]
                return part.view(tensor.dtype).view(tensor.shape)
        return tensor

    def synchronize(self) -> None:
        """Run all work."""
        self.require_no_capture("the device is waited for")
        self.run_until(lambda: not any(each.queue for each in self.streams.values()))


class CopiedKernel:
    """Copies what `move_pages` moves, a hundred times as fast as the kernel is interpreted."""

    def __getitem__(self, grid: tuple[int]) -> pages.Launch:
        return _copy_pages


def _copy_pages(*arguments: torch.Tensor | int, **constants: int) -> None:
    """Copy the pages of a launch, piece by piece."""
    require_aligned(arguments, constants["ALIGNED_BYTES"])
    given: Any = [each.tolist() if isinstance(each, torch.Tensor) else each for each in arguments]
    table, slots, rows, row_address, row_bytes, first, segments, count = given
    size_bytes = constants["ELEMENTS"] * constants["ELEMENT_BYTES"]
    for base, offset, slot_bytes in table[first : first + segments]:
        for page in range(count):
            row = rows[page] if constants["ROWS_GIVEN"] else page
            in_pool = base + slots[page] * slot_bytes
            in_rows = row_address + offset + row * row_bytes
            ends = (in_rows, in_pool) if constants["TO_ROWS"] else (in_pool, in_rows)
            ctypes.memmove(*ends, size_bytes)


class LateKernel:
    """A kernel that runs when its stream comes to it."""

    def __init__(self, device: LateDevice, kernel: pages.Kernel) -> None:
        self._device, self._kernel = device, kernel

    def __getitem__(self, grid: tuple[int]) -> pages.Launch:
        def launch(*arguments: torch.Tensor | int, **constants: int) -> None:
            kept = [
                self._device.kept(each) if isinstance(each, torch.Tensor) else each
                for each in arguments
            ]
            self._device.launch(lambda: self._kernel[grid](*kept, **constants))

        return launch


class LateDriver(CudaDriver):
    """A driver whose copies run when their stream comes to them."""

    def __init__(self, library: str, device: LateDevice) -> None:
        super().__init__(library)
        self._device = device

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Enqueue one copy."""
        self._late(stream, lambda: super(LateDriver, self).copy(target, source, size_bytes, stream))

    def copy_many(
        self,
        targets: Addresses,
        sources: Addresses,
        sizes_bytes: Addresses,
        stream: int,
        at_once: int,
    ) -> None:
        """Enqueue copies, each on its own, in any order."""
        copies: Sequence[tuple[int, int, int]] = list(
            zip(targets.tolist(), sources.tolist(), sizes_bytes.tolist(), strict=True)
        )
        for each in self._device.rng.sample(copies, len(copies)):
            self.copy(*each, stream)

    def copy_rectangle(
        self, host: Rows, device: Rows, width_bytes: int, rows: int, stream: int, *, to_host: bool
    ) -> None:
        """Enqueue a copy of rows."""
        self._late(
            stream,
            lambda: super(LateDriver, self).copy_rectangle(
                host, device, width_bytes, rows, stream, to_host=to_host
            ),
        )

    def _late(self, stream: int, work: Callable[[], None]) -> None:
        self._device.enqueue(self._device.streams[stream], work)
