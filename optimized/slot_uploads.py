"""Slot uploads: slot numbers for kernels, through a ring of memory that is allocated once.

Lanes allocate nothing while they serve. Torch's pinned memory would be allocated and looked after
with calls that break the capture of a graph, and memory from a stream's pool never leaves it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from attrs import define, field, frozen

from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.cuda_runtime import CudaStream, Event, Runtime
from kvcanon.optimized.host_slab import HostSlab
from kvcanon.optimized.page_transfer import SlotArray

LEAST_NUMBERS = 1 << 16
"""Many small orders are under way at once."""
NUMBER_BYTES = 4


@frozen
class _Sent:
    """Numbers that a copy may still read."""

    first: int
    end: int
    read: Event


@define(eq=False)
class SlotUploads:
    """A ring of slot numbers on the host, and the same ring on the device. For one stream."""

    runtime: Runtime
    driver: CudaDriver
    host: HostSlab
    device: torch.Tensor
    """int32[numbers]"""
    _next: int = field(default=0, init=False)
    _sent: deque[_Sent] = field(factory=deque, init=False)

    @property
    def numbers(self) -> int:
        """Most numbers that may be uploaded at once."""
        return len(self.device)

    def upload(self, arrays: Sequence[SlotArray], stream: CudaStream) -> list[torch.Tensor]:
        """Copy arrays of slots to the device, in the stream's order: an int32 tensor for each.

        Work on this stream may read them until the ring comes round. Waits only where the ring is
        full of numbers that no copy has read yet.
        """
        count = sum(len(array) for array in arrays)
        first = self._take(count)
        numbers = self.host.pages.view(torch.int32)[:, 0].numpy()
        cut = []
        at = first
        for array in arrays:
            numbers[at : at + len(array)] = array
            cut.append(self.device[at : at + len(array)])
            at += len(array)
        if count:
            inset = first * NUMBER_BYTES
            self.driver.copy(
                self.device.data_ptr() + inset,
                self.host.pages.data_ptr() + inset,
                count * NUMBER_BYTES,
                stream.cuda_stream,
            )
            read = self.runtime.event()
            read.record(stream)
            self._sent.append(_Sent(first, at, read))
        return cut

    def close(self) -> None:
        """Release the memory; no copy may be running."""
        self._sent.clear()
        self.device = self.device[:0].clone()
        self.host.close()

    def _take(self, count: int) -> int:
        """Choose where the next numbers lie, and wait until nothing reads the old ones there."""
        first = self._next if self._next + count <= self.numbers else 0
        self._next = first + count
        inside = [
            at
            for at, sent in enumerate(self._sent)
            if sent.first < first + count and first < sent.end
        ]
        if inside:
            # The copies before it are on the same stream.
            self._sent[inside[-1]].read.synchronize()
            for _ in range(inside[-1] + 1):
                self._sent.popleft()
        return first


def slot_uploads(
    runtime: Runtime, driver: CudaDriver, device: torch.device, numbers: int
) -> SlotUploads:
    """Allocate a ring for at least this many numbers."""
    numbers = max(LEAST_NUMBERS, numbers)
    return SlotUploads(
        runtime,
        driver,
        HostSlab(numbers, NUMBER_BYTES, device, driver),
        runtime.buffer(numbers * NUMBER_BYTES).view(torch.int32),
    )
