"""A fake GPU for each test of this folder; its driver is compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu.fake import DriverLibrary, FakeRuntime, InterpretedKernel, build_driver
from gpu.scene import Device
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.kernels import pages


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's stand-in."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def library(built: Path) -> DriverLibrary:
    """The stand-in with its counters at zero; it refuses nothing."""
    return DriverLibrary(built)


@pytest.fixture
def driver(library: DriverLibrary) -> CudaDriver:
    """A driver that copies at once."""
    return library.driver()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> InterpretedKernel:
    """Kernels are interpreted on the CPU."""
    made = InterpretedKernel()
    monkeypatch.setattr(pages, "MOVE_PAGES", made)
    return made


@pytest.fixture
def device(driver: CudaDriver, kernel: InterpretedKernel) -> Device:
    """A GPU that finishes all work at once, unless it is held."""
    return Device(driver)


@pytest.fixture
def runtime(device: Device) -> FakeRuntime:
    """The GPU's streams and events."""
    return device.runtime
