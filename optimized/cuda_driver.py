"""Copies between host and device by direct calls of the CUDA driver.

Torch has no call for a batch of copies, nor for a rectangle between host and device. The driver has
both, in a library that every machine with a GPU has, so nothing is compiled here. Calls go through
ctypes, which releases the GIL while they run.

The driver may refuse a batch on the legacy default stream. It may also read the sources of a batch
early, before the stream reaches the batch, unless the caller asks for stream order. Every batch
here asks for it, because kernels on the stream may still write the sources.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

LIBRARY = "libcuda.so.1"

BATCH_SINCE = 12080
"""CUDA 12.8. The driver returns the function as of the requested version; later versions take other
arguments."""

SUCCESS = 0
IN_STREAM_ORDER = 1
"""CU_MEMCPY_SRC_ACCESS_ORDER_STREAM."""
HOST, DEVICE = 1, 2
"""CUmemorytype."""
PORTABLE = 1
"""CU_MEMHOSTREGISTER_PORTABLE: pinned for every GPU, not only the current one."""
MAPPED = 2
"""CU_MEMHOSTREGISTER_DEVICEMAP: kernels may read and write it, too, as they do for small transfers.
"""
BUS_ID_CHARACTERS = 32

Addresses: TypeAlias = npt.NDArray[np.uint64]
Batch: TypeAlias = Callable[..., int]


class CudaError(RuntimeError):
    """The driver refused a call."""


class CaptureMode(IntEnum):
    """CUstreamCaptureMode of a thread: by which captures its calls are restricted."""

    GLOBAL = 0
    """Its own, and those of other threads in this mode: what a thread begins with."""
    THREAD_LOCAL = 1
    """Its own."""
    RELAXED = 2
    """None."""


class Location(Structure):
    """CUmemLocation: a hint, which copies of pinned and device memory ignore."""

    _fields_ = (("type", c_int), ("id", c_int))


class BatchAttributes(Structure):
    """CUmemcpyAttributes: how the copies of a batch read their sources."""

    _fields_ = (
        ("source_access_order", c_int),
        ("source_location", Location),
        ("target_location", Location),
        ("flags", c_uint),
    )


class Rectangle(Structure):
    """CUDA_MEMCPY2D: rows of one width, with a pitch for each side."""

    _fields_ = (
        ("source_x_bytes", c_size_t),
        ("source_y", c_size_t),
        ("source_type", c_int),
        ("source_host", c_void_p),
        ("source_device", c_uint64),
        ("source_array", c_void_p),
        ("source_pitch", c_size_t),
        ("target_x_bytes", c_size_t),
        ("target_y", c_size_t),
        ("target_type", c_int),
        ("target_host", c_void_p),
        ("target_device", c_uint64),
        ("target_array", c_void_p),
        ("target_pitch", c_size_t),
        ("width_bytes", c_size_t),
        ("height", c_size_t),
    )


@frozen
class Rows:
    """Rows of bytes in memory: the address of the first row, and the distance to the next."""

    address: int
    pitch_bytes: int


class CudaDriver:
    """The driver's copies. Every call enqueues on a stream, given by its handle, and returns.

    Raises:
        CudaError: there is no driver, or a call was refused.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise CudaError(f"no CUDA driver is installed here: {error}") from error
        self._copy = self._library.cuMemcpyAsync
        self._copy.argtypes = (c_uint64, c_uint64, c_size_t, c_void_p)
        self._rectangle = self._library.cuMemcpy2DAsync_v2
        self._rectangle.argtypes = (POINTER(Rectangle), c_void_p)
        self._device_pointer = self._library.cuMemHostGetDevicePointer_v2
        self._device_pointer.argtypes = (POINTER(c_uint64), c_void_p, c_uint)
        self._register = self._library.cuMemHostRegister_v2
        self._register.argtypes = (c_void_p, c_size_t, c_uint)
        self._unregister = self._library.cuMemHostUnregister
        self._unregister.argtypes = (c_void_p,)
        self._batch = self._find_batch()

    @property
    def has_batches(self) -> bool:
        """Whether the driver has batches of copies; older drivers get one call for each copy."""
        return self._batch is not None

    def forgo_batches(self) -> None:
        """Use one call for each copy from now on."""
        self._batch = None

    def version(self) -> int:
        """The newest CUDA version that the driver supports: 12080 is 12.8."""
        found = c_int()
        _require(self._library.cuDriverGetVersion(byref(found)), "cuDriverGetVersion")
        return found.value

    def exchange_capture_mode(self, mode: CaptureMode) -> CaptureMode:
        """Set the mode of this thread; return its mode before."""
        chosen = c_int(mode)
        error = self._library.cuThreadExchangeStreamCaptureMode(byref(chosen))
        _require(error, "cuThreadExchangeStreamCaptureMode")
        return CaptureMode(chosen.value)

    def bus_id(self, ordinal: int) -> str:
        """The PCI address of a device, such as 0000:3B:00.0."""
        device, text = c_int(), ctypes.create_string_buffer(BUS_ID_CHARACTERS)
        _require(self._library.cuDeviceGet(byref(device), ordinal), "cuDeviceGet")
        error = self._library.cuDeviceGetPCIBusId(text, BUS_ID_CHARACTERS, device)
        _require(error, "cuDeviceGetPCIBusId")
        return text.value.decode("ascii")

    def pin(self, address: int, size_bytes: int) -> None:
        """Pin host memory, for copies and kernels of every GPU.

        A refused call of the driver leaves nothing behind. The runtime would keep its error for
        the next check of torch to find, and a second try would fail with it.
        """
        error = self._register(address, size_bytes, PORTABLE | MAPPED)
        _require(error, "cuMemHostRegister")

    def unpin(self, address: int) -> None:
        """Undo `pin`."""
        _require(self._unregister(address), "cuMemHostUnregister")

    def device_address(self, host_address: int) -> int | None:
        """The address at which kernels reach pinned host memory; None where they cannot."""
        found = c_uint64()
        if self._device_pointer(byref(found), host_address, 0) != SUCCESS:
            return None
        return found.value

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Enqueue one copy."""
        _require(self._copy(target, source, size_bytes, stream), "cuMemcpyAsync")

    def copy_many(
        self,
        targets: Addresses,
        sources: Addresses,
        sizes_bytes: Addresses,
        stream: int,
        at_once: int,
    ) -> None:
        """Enqueue copies that may run in any order, at most `at_once` in one call."""
        if self._batch is None or len(targets) == 1:
            for each in zip(targets.tolist(), sources.tolist(), sizes_bytes.tolist(), strict=True):
                self.copy(*each, stream)
            return
        attributes = BatchAttributes(source_access_order=IN_STREAM_ORDER)
        for first in range(0, len(targets), at_once):
            # The driver reads the arrays only during the call.
            chunks = [
                np.ascontiguousarray(array[first : first + at_once])
                for array in (targets, sources, sizes_bytes)
            ]
            error = self._batch(
                *(chunk.ctypes.data for chunk in chunks),
                len(chunks[0]),
                byref(attributes),
                byref(c_size_t(0)),
                1,
                byref(c_size_t()),
                stream,
            )
            _require(error, "cuMemcpyBatchAsync")

    def copy_rectangle(
        self, host: Rows, device: Rows, width_bytes: int, rows: int, stream: int, *, to_host: bool
    ) -> None:
        """Enqueue a copy of rows between host and device."""
        order = Rectangle(width_bytes=width_bytes, height=rows)
        if to_host:
            order.source_type, order.target_type = DEVICE, HOST
            order.source_device, order.source_pitch = device.address, device.pitch_bytes
            order.target_host, order.target_pitch = host.address, host.pitch_bytes
        else:
            order.source_type, order.target_type = HOST, DEVICE
            order.source_host, order.source_pitch = host.address, host.pitch_bytes
            order.target_device, order.target_pitch = device.address, device.pitch_bytes
        _require(self._rectangle(byref(order), stream), "cuMemcpy2DAsync")

    def _find_batch(self) -> Batch | None:
        """The batched copy of CUDA 12.8; None where the driver is older."""
        find = getattr(self._library, "cuGetProcAddress_v2", None)
        if find is None:
            return None
        find.argtypes = (c_char_p, POINTER(c_void_p), c_int, c_uint64, POINTER(c_int))
        found = c_void_p()
        error = find(b"cuMemcpyBatchAsync", byref(found), BATCH_SINCE, 0, byref(c_int()))
        if error != SUCCESS or not found.value:
            return None
        arrays = (c_void_p, c_void_p, c_void_p, c_size_t)
        attributes = (POINTER(BatchAttributes), POINTER(c_size_t), c_size_t)
        prototype = ctypes.CFUNCTYPE(c_int, *arrays, *attributes, POINTER(c_size_t), c_void_p)
        return prototype(found.value)


def _require(error: int, call: str) -> None:
    if error != SUCCESS:
        raise CudaError(f"{call} was refused with CUDA error {error}")
