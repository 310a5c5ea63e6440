"""The driver and torch are called as documented: a stand-in, compiled in C++, takes the calls.

Torch's own calls are recorded here: whose device is current, and which calls break a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import numpy as np
import pytest
import torch
from attrs import define, field

from gpu.fake import DriverLibrary, FakeRuntime, build_driver
from kvcanon.optimized import gpu as gpu_module
from kvcanon.optimized.cuda_driver import CaptureMode, CudaDriver, CudaError, Rows
from kvcanon.optimized.cuda_runtime import TorchRuntime
from kvcanon.optimized.gpu import gpu_at

GPU_1 = torch.device("cuda", 1)
STREAM = 7


def calls(library: DriverLibrary) -> list[int]:
    """Number of single copies, of rectangles and of batches."""
    return [library.asked("calls", kind) for kind in range(3)]


def copy_backwards(driver: CudaDriver, count: int, at_once: int = 4096) -> bool:
    """Copy pieces of different sizes in another order; return whether they arrived."""
    sizes = np.arange(1, count + 1, dtype=np.uint64)
    starts = np.cumsum(sizes) - sizes
    source = np.random.default_rng(0).integers(0, 256, int(sizes.sum()), np.uint8)
    target = np.zeros_like(source)
    ends = len(target) - np.cumsum(sizes).astype(np.int64)
    driver.copy_many(
        (ends + target.ctypes.data).astype(np.uint64),
        starts + np.uint64(source.ctypes.data),
        sizes,
        STREAM,
        at_once,
    )
    pieces = [source[int(a) : int(a) + int(n)] for a, n in zip(starts, sizes, strict=True)]
    return bool((np.concatenate(pieces[::-1]) == target).all())


@pytest.mark.parametrize(
    ("count", "at_once", "called", "largest"),
    [(30, 4096, [0, 0, 1], 30), (30, 8, [0, 0, 4], 8), (1, 4096, [1, 0, 0], 0)],
)
def test_many_copies_are_few_calls(
    library: DriverLibrary, count: int, at_once: int, called: list[int], largest: int
) -> None:
    """A batch is one call on a stream, up to a limit; a single piece is copied as such."""
    driver = library.driver()
    assert driver.has_batches
    assert copy_backwards(driver, count, at_once)
    assert calls(library) == called
    assert library.asked("largest_batch") == largest


def test_a_driver_without_batches_is_asked_for_each_copy(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Without batches the copies have the same result."""
    old = DriverLibrary(build_driver(tmp_path_factory.mktemp("old"), "-DWITHOUT_BATCHES"))
    driver = old.driver()
    assert not driver.has_batches
    assert copy_backwards(driver, 30)
    assert calls(old) == [30, 0, 0]


@pytest.mark.parametrize("to_host", [True, False])
def test_rectangles_have_a_pitch_on_each_side(library: DriverLibrary, to_host: bool) -> None:
    """Each side of a rectangle uses its own pitch."""
    rng = np.random.default_rng(0)
    host, device = rng.integers(0, 256, (5, 13), np.uint8), rng.integers(0, 256, (5, 9), np.uint8)
    expected = (host if to_host else device).copy()
    expected[1:4, 2:8] = (device if to_host else host)[1:4, 2:8]
    host_rows, device_rows = Rows(host.ctypes.data + 15, 13), Rows(device.ctypes.data + 11, 9)
    library.driver().copy_rectangle(host_rows, device_rows, 6, 3, STREAM, to_host=to_host)
    assert (expected == (host if to_host else device)).all()
    assert calls(library) == [0, 1, 0]


def test_refusals_name_the_call(library: DriverLibrary) -> None:
    """An error of any call raises, and the message names the call and CUDA's number."""
    driver = library.driver()
    rows = Rows(np.zeros(4, np.uint8).ctypes.data, 4)
    assert driver.bus_id(0) == "0000:3B:00.0"
    driver.pin(4096, 8)
    refused: dict[str, Callable[[], object]] = {
        "cuDeviceGet was refused with CUDA error 1": lambda: driver.bus_id(4),
        "cuMemHostUnregister was refused with CUDA error 713": lambda: driver.unpin(8192),
        "cuMemHostRegister was refused with CUDA error 712": lambda: driver.pin(4096, 8),
    }
    for words, call in refused.items():
        with pytest.raises(CudaError, match=words):
            call()
    driver.unpin(4096)
    library.refuse_with(719)
    copies: dict[str, Callable[[], object]] = {
        "cuMemcpyBatchAsync": lambda: copy_backwards(driver, 2),
        "cuMemcpyAsync": lambda: copy_backwards(driver, 1),
        "cuMemcpy2DAsync": lambda: driver.copy_rectangle(rows, rows, 4, 1, STREAM, to_host=True),
    }
    for name, copy in copies.items():
        with pytest.raises(CudaError, match=f"{name} was refused with CUDA error 719"):
            copy()


def test_what_the_driver_says(driver: CudaDriver) -> None:
    """The device address of pinned memory, and the newest CUDA version that it supports."""
    assert driver.device_address(4096) == 4096
    assert driver.version() == 13000


def test_no_driver_raises_one_line() -> None:
    """A missing driver library raises one clear error line."""
    with pytest.raises(CudaError, match=r"^no CUDA driver is installed here: [^\n]*$"):
        CudaDriver("libcuda-of-nobody.so.1")


# The runtime of torch


@define(eq=False)
class Torch:
    """The part of torch that knows devices, for one thread."""

    library: DriverLibrary
    current: int = 0
    used: list[tuple[str, int]] = field(factory=list)
    """Calls, each with the device that was current."""

    def mode(self) -> int:
        """The capture mode of this thread."""
        return self.library.asked("capture_mode")

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        """As `torch.cuda.device`."""
        before, self.current = self.current, device.index
        try:
            yield
        finally:
            self.current = before

    def set_device(self, device: torch.device) -> None:
        """As `torch.cuda.set_device`."""
        self.current = device.index

    def current_stream(self, device: torch.device) -> Torch:
        """As `torch.cuda.current_stream`; the stream is this object."""
        self.used.append((f"stream of {device.index}", self.current))
        return self

    def query(self) -> bool:
        """As of a stream."""
        self.used.append((f"query in mode {self.mode()}", self.current))
        return True


@pytest.fixture
def fake(library: DriverLibrary, monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Torch with two GPUs, of which 0 is current."""
    made = Torch(library)
    for name in ("device", "set_device", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(made, name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(gpu_module, "CudaDriver", library.driver)
    return made


@pytest.fixture
def other(fake: Torch) -> TorchRuntime:
    """The runtime of the other GPU."""
    made = TorchRuntime(torch.device("cpu"), fake.library.driver())
    made.device = GPU_1
    return made


def test_a_thread_of_an_engine_is_apart_from_captures(fake: Torch, other: TorchRuntime) -> None:
    """`enter` sets the device of its thread, and a mode in which it breaks no capture elsewhere."""
    modes = list[int]()

    def enter() -> None:
        other.enter()
        modes.append(fake.mode())

    thread = Thread(target=enter)
    thread.start()
    thread.join()
    assert modes == [CaptureMode.THREAD_LOCAL]
    assert fake.current == 1
    assert fake.used[-1] == (f"query in mode {CaptureMode.THREAD_LOCAL.value}", 1)
    assert fake.mode() == CaptureMode.GLOBAL


def test_a_few_calls_of_a_caller_are_apart_from_captures(fake: Torch, other: TorchRuntime) -> None:
    """The caller's own mode is there again afterwards, also after an error, and when nested."""
    modes = list[int]()
    with suppress(ZeroDivisionError), other.beside_captures():
        modes.append(fake.mode())
        with other.beside_captures():
            modes.append(fake.mode())
        modes.append(fake.mode())
        raise ZeroDivisionError
    assert modes == [CaptureMode.RELAXED] * 3
    assert fake.mode() == CaptureMode.GLOBAL


def test_the_caller_keeps_its_device(fake: Torch, other: TorchRuntime) -> None:
    """The device is current inside, with a context for the driver, and not afterwards."""
    with other.on_device():
        assert fake.current == 1
        assert fake.used[-1][1] == 1
    assert fake.current == 0


@pytest.mark.parametrize("fails", [False, True])
def test_opening_a_gpu_leaves_the_current_device(
    fails: bool, fake: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are tried on the GPU that is opened; the caller's device is current afterwards."""
    tried = list[int]()

    def trial(*_: object) -> None:
        tried.append(fake.current)
        if fails:
            raise CudaError("it is lost")

    class Runtime(FakeRuntime):
        device = GPU_1

        def __init__(self, *_: object) -> None:
            super().__init__()

        def on_device(self) -> object:  # type: ignore[override]
            return fake.device(GPU_1)

    monkeypatch.setattr(gpu_module, "TorchRuntime", Runtime)
    monkeypatch.setattr(gpu_module, "HostSlab", lambda *_: None)
    monkeypatch.setattr(gpu_module, "prove_batches", trial)
    if fails:
        with pytest.raises(CudaError, match="it is lost"):
            gpu_at(GPU_1)
    else:
        assert gpu_at(GPU_1).device == GPU_1
    assert tried == [1]
    assert fake.current == 0
