"""The bandwidth of the link between host and device, for large copies and for small pieces.

Each piece has a fixed cost to start, which depends on how the copies are enqueued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen

from kvcanon.lab.bench.gpu.timing import GIGA, timed
from kvcanon.optimized.copy_plan import KIB, Limits
from kvcanon.optimized.cuda_driver import Addresses, Rows
from kvcanon.optimized.cuda_runtime import CudaStream
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.host_slab import HostSlab

REPEATS = 9

PIECES = tuple(KIB * 4**power for power in range(1, 6))
"""4 KiB to 1 MiB."""

SINGLY_AT_MOST = 4096
"""More copies than this are not tried one by one, which is known to be slow."""


@frozen
class Link:
    """Bandwidth of one large copy each way, and of both at once, in GB/s."""

    to_host: float
    to_device: float
    both_in_all: float


@frozen
class PieceSpeed:
    """Bandwidth of many separate pieces on the host, in GB/s; None where it was not tried."""

    piece_bytes: int
    to_host: bool
    batched: float | None
    singly: float | None
    rectangle: float | None


@frozen(eq=False)
class _Ends:
    """Memory at both ends of the link."""

    gpu: Gpu
    slab: HostSlab
    device_address: int
    stream: CudaStream

    @property
    def host_address(self) -> int:
        return self.slab.pages.data_ptr()


def measure_link(gpu: Gpu, size_bytes: int) -> Link:
    """Copy one large piece each way, then both ways at once."""
    out = HostSlab(1, size_bytes, gpu.device, gpu.driver)
    back = HostSlab(1, size_bytes, gpu.device, gpu.driver)
    memory = gpu.runtime.buffer(2 * size_bytes)
    there, here = memory.data_ptr(), memory.data_ptr() + size_bytes
    streams = [gpu.runtime.stream(), gpu.runtime.stream()]

    def to_host() -> None:
        gpu.driver.copy(out.pages.data_ptr(), there, size_bytes, streams[0].cuda_stream)

    def to_device() -> None:
        gpu.driver.copy(here, back.pages.data_ptr(), size_bytes, streams[1].cuda_stream)

    def both() -> None:
        to_host()
        to_device()

    found = [timed(action, gpu.runtime, REPEATS) for action in (to_host, to_device, both)]
    out.close()
    back.close()
    return Link(
        found[0].gigabytes_per_second(size_bytes),
        found[1].gigabytes_per_second(size_bytes),
        found[2].gigabytes_per_second(2 * size_bytes),
    )


def measure_pieces(
    gpu: Gpu, size_bytes: int, pieces: Sequence[int] = PIECES
) -> tuple[PieceSpeed, ...]:
    """Copy `size_bytes` in pieces of several sizes, enqueued in every available way."""
    slab = HostSlab(1, 2 * size_bytes, gpu.device, gpu.driver)
    memory = gpu.runtime.buffer(size_bytes)
    ends = _Ends(gpu, slab, memory.data_ptr(), gpu.runtime.stream())
    found = tuple(
        _piece_speed(ends, size_bytes // piece_bytes, piece_bytes, to_host=to_host)
        for to_host in (True, False)
        for piece_bytes in pieces
    )
    slab.close()
    return found


def _piece_speed(ends: _Ends, count: int, piece_bytes: int, *, to_host: bool) -> PieceSpeed:
    # Every second piece of the slab, so that no two can be joined.
    numbers = np.arange(count, dtype=np.uint64) * np.uint64(piece_bytes)
    host: Addresses = np.uint64(ends.host_address) + np.uint64(2) * numbers
    device: Addresses = np.uint64(ends.device_address) + numbers
    targets, sources = (host, device) if to_host else (device, host)
    sizes = np.full(count, piece_bytes, np.uint64)
    stream, driver = ends.stream.cuda_stream, ends.gpu.driver
    pairs = list(zip(targets.tolist(), sources.tolist(), strict=True))

    def batched() -> None:
        driver.copy_many(targets, sources, sizes, stream, Limits().batch_pieces)

    def singly() -> None:
        for target, source in pairs:
            driver.copy(target, source, piece_bytes, stream)

    def rectangle() -> None:
        driver.copy_rectangle(
            Rows(ends.host_address, 2 * piece_bytes),
            Rows(ends.device_address, piece_bytes),
            piece_bytes,
            count,
            stream,
            to_host=to_host,
        )

    def speed(action: Callable[[], None]) -> float:
        took = timed(action, ends.gpu.runtime, REPEATS)
        return count * piece_bytes / took.median_seconds / GIGA

    return PieceSpeed(
        piece_bytes,
        to_host,
        speed(batched) if driver.has_batches else None,
        speed(singly) if count <= SINGLY_AT_MOST else None,
        speed(rectangle),
    )
