"""The driver is called as it is documented to be: a stand-in, compiled in C++, takes the calls."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from fake_gpu import build_driver
from kvcanon.optimized.cuda_driver import CudaDriver, CudaError, Rows

STREAM = 7
SINGLE, RECTANGLE, BATCH = range(3)


class Stub:
    """The fake driver with its counters."""

    def __init__(self, library: Path) -> None:
        self.driver = CudaDriver(str(library))
        self._library = ctypes.CDLL(str(library))
        self._library.fake_calls.restype = ctypes.c_size_t
        self._library.fake_largest_batch.restype = ctypes.c_size_t
        self.refuse_with(0)

    def refuse_with(self, error: int) -> None:
        """Reset the counters; every copy returns this error from now on."""
        self._library.fake_reset(error)

    @property
    def calls(self) -> list[int]:
        """Number of calls of each kind."""
        return [int(self._library.fake_calls(kind)) for kind in (SINGLE, RECTANGLE, BATCH)]

    @property
    def largest_batch(self) -> int:
        """Copies in the largest batch."""
        return int(self._library.fake_largest_batch())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver that has batches."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def stub(library: Path) -> Stub:
    """The fake driver with its counters at zero."""
    return Stub(library)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    """A driver from before batches."""
    return Stub(build_driver(tmp_path_factory.mktemp("old"), "-DWITHOUT_BATCHES"))


def copy_backwards(stub: Stub, count: int, at_once: int = 4096) -> bool:
    """Copy pieces of different sizes in another order; return whether they arrived."""
    sizes = np.arange(1, count + 1, dtype=np.uint64)
    starts = np.cumsum(sizes) - sizes
    source = np.random.default_rng(0).integers(0, 256, int(sizes.sum()), np.uint8)
    target = np.zeros_like(source)
    ends = len(target) - np.cumsum(sizes).astype(np.int64)
    stub.driver.copy_many(
        (ends + target.ctypes.data).astype(np.uint64),
        starts + np.uint64(source.ctypes.data),
        sizes,
        STREAM,
        at_once,
    )
    pieces = [source[int(a) : int(a) + int(n)] for a, n in zip(starts, sizes, strict=True)]
    return bool((np.concatenate(pieces[::-1]) == target).all())


def test_many_copies_are_one_call(stub: Stub) -> None:
    """A batch is one call, read in stream order, on a stream that is not null."""
    assert stub.driver.has_batches
    assert copy_backwards(stub, 30)
    assert stub.calls == [0, 0, 1]


def test_batches_are_capped(stub: Stub) -> None:
    """A batch over the limit is split into several calls."""
    assert copy_backwards(stub, 30, at_once=8)
    assert stub.calls == [0, 0, 4]
    assert stub.largest_batch == 8


def test_one_copy_needs_no_batch(stub: Stub) -> None:
    """A single piece is copied as such."""
    assert copy_backwards(stub, 1)
    assert stub.calls == [1, 0, 0]


def test_a_driver_without_batches_is_asked_for_each_copy(old: Stub) -> None:
    """Without batches the copies have the same result."""
    assert not old.driver.has_batches
    assert copy_backwards(old, 30)
    assert old.calls == [30, 0, 0]


@pytest.mark.parametrize("to_host", [True, False])
def test_rectangles_have_a_pitch_on_each_side(stub: Stub, to_host: bool) -> None:
    """Each side of a rectangle uses its own pitch."""
    rng = np.random.default_rng(0)
    host, device = rng.integers(0, 256, (5, 13), np.uint8), rng.integers(0, 256, (5, 9), np.uint8)
    expected = (host if to_host else device).copy()
    expected[1:4, 2:8] = (device if to_host else host)[1:4, 2:8]
    stub.driver.copy_rectangle(
        Rows(host.ctypes.data + 13 + 2, 13),
        Rows(device.ctypes.data + 9 + 2, 9),
        6,
        3,
        STREAM,
        to_host=to_host,
    )
    assert (expected == (host if to_host else device)).all()
    assert stub.calls == [0, 1, 0]


def test_refusals_name_the_call(stub: Stub) -> None:
    """An error of any call raises, and the message names the call."""
    stub.refuse_with(719)
    with pytest.raises(CudaError, match="cuMemcpyBatchAsync was refused with CUDA error 719"):
        copy_backwards(stub, 2)
    with pytest.raises(CudaError, match="cuMemcpyAsync was refused with CUDA error 719"):
        copy_backwards(stub, 1)
    rows = Rows(np.zeros(4, np.uint8).ctypes.data, 4)
    with pytest.raises(CudaError, match="cuMemcpy2DAsync was refused with CUDA error 719"):
        stub.driver.copy_rectangle(rows, rows, 4, 1, STREAM, to_host=True)


def test_pinned_memory_has_an_address_for_kernels(stub: Stub) -> None:
    """The driver gives the device address of pinned memory."""
    assert stub.driver.device_address(4096) == 4096


def test_the_driver_says_which_cuda_it_knows(stub: Stub) -> None:
    """The driver reports the newest CUDA version that it supports."""
    assert stub.driver.version() == 13000


def test_no_driver_raises_one_line() -> None:
    """A missing driver library raises one clear error line."""
    with pytest.raises(CudaError, match=r"^no CUDA driver is installed here: [^\n]*$"):
        CudaDriver("libcuda-of-nobody.so.1")
