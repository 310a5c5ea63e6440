"""The runtime of torch: whose device is current, and which calls break a capture.

Torch's own calls are recorded here; there is no GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
import torch
from attrs import define, field

from fake_gpu import FakeRuntime, build_driver
from kvcanon.optimized import gpu as gpu_module
from kvcanon.optimized.cuda_driver import CaptureMode, CudaDriver, CudaError
from kvcanon.optimized.cuda_runtime import TorchRuntime
from kvcanon.optimized.gpu import gpu_at

GPU_1 = torch.device("cuda", 1)


@define(eq=False)
class Torch:
    """The part of torch that knows devices, for one thread."""

    library: Path
    current: int = 0
    used: list[tuple[str, int]] = field(factory=list)
    """Calls, each with the device that was current."""

    def mode(self) -> int:
        """The capture mode of this thread."""
        mode: int = ctypes.CDLL(str(self.library)).fake_capture_mode()
        return mode

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
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Torch:
    """Torch with two GPUs, of which 0 is current."""
    made = Torch(build_driver(tmp_path))
    for name in ("device", "set_device", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(made, name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(gpu_module, "CudaDriver", lambda: CudaDriver(str(made.library)))
    return made


@pytest.fixture
def runtime(fake: Torch) -> TorchRuntime:
    """The runtime of the other GPU."""
    made = TorchRuntime(torch.device("cpu"), CudaDriver(str(fake.library)))
    made.device = GPU_1
    return made


def test_a_thread_of_an_engine_is_apart_from_captures(fake: Torch, runtime: TorchRuntime) -> None:
    """`enter` sets the device of its thread, and a mode in which it breaks no capture elsewhere."""
    modes = list[int]()

    def enter() -> None:
        runtime.enter()
        modes.append(fake.mode())

    thread = Thread(target=enter)
    thread.start()
    thread.join()
    assert modes == [CaptureMode.THREAD_LOCAL]
    assert fake.current == 1
    assert fake.used[-1] == (f"query in mode {CaptureMode.THREAD_LOCAL.value}", 1)
    assert fake.mode() == CaptureMode.GLOBAL


def test_a_few_calls_of_a_caller_are_apart_from_captures(
    fake: Torch, runtime: TorchRuntime
) -> None:
    """The caller's own mode is there again afterwards, also after an error, and when nested."""
    modes = list[int]()
    with suppress(ZeroDivisionError), runtime.beside_captures():
        modes.append(fake.mode())
        with runtime.beside_captures():
            modes.append(fake.mode())
        modes.append(fake.mode())
        raise ZeroDivisionError
    assert modes == [CaptureMode.RELAXED] * 3
    assert fake.mode() == CaptureMode.GLOBAL


def test_the_caller_keeps_its_device(fake: Torch, runtime: TorchRuntime) -> None:
    """The device is current inside, with a context for the driver, and not afterwards."""
    with runtime.on_device():
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


def test_the_driver_refuses_what_it_does_not_know(fake: Torch) -> None:
    """Each call of the driver says its name when it is refused."""
    driver = CudaDriver(str(fake.library))
    assert driver.bus_id(0) == "0000:3B:00.0"
    with pytest.raises(CudaError, match="cuDeviceGet was refused with CUDA error 1"):
        driver.bus_id(4)
    with pytest.raises(CudaError, match="cuMemHostUnregister was refused with CUDA error 713"):
        driver.unpin(4096)
    driver.pin(4096, 8)
    with pytest.raises(CudaError, match="cuMemHostRegister was refused with CUDA error 712"):
        driver.pin(4096, 8)
    driver.unpin(4096)
