"""A lane: the streams of one direction, and the memory that its transfers go through.

The memory comes from the pool of the caller's current stream, and returns there when the lane is
released. Nothing else may be enqueued on the lane before `runtime.synchronize`: work of the
caller's streams may still use that memory for its former owner.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import define, field

from kvcanon.optimized.copy_plan import Limits, ring_slot_bytes
from kvcanon.optimized.cuda_runtime import CudaStream, Event
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.slot_uploads import SlotUploads, slot_uploads
from kvcanon.optimized.staging import Mark, Ring, StreamRole
from kvcanon.spec.types import CPU, GPU, Medium


@define(eq=False)
class Lane:
    """Streams, staging ring, and slot numbers of one direction. One thread at a time may use it."""

    gpu: Gpu
    streams: Mapping[StreamRole, CudaStream]
    slot_bytes: int
    """Of a slot of the staging ring."""
    ring: Ring
    memory: torch.Tensor
    """The staging ring."""
    uploads: SlotUploads
    marks: dict[Mark, Event] = field(factory=dict)
    """The last record of each mark of the ring."""

    @property
    def memory_bytes(self) -> dict[Medium, int]:
        """Bytes that it holds on each medium."""
        return {
            GPU: self.memory.nbytes + self.uploads.device.nbytes,
            CPU: self.uploads.host.pages.nbytes if self.uploads.device.nbytes else 0,
        }

    def ring_address(self, ring_slot: int) -> int:
        """The address of a slot of the staging ring."""
        return self.memory.data_ptr() + ring_slot * self.slot_bytes

    def settle(self) -> None:
        """Return once the device has done all work of this lane."""
        for stream in self.streams.values():
            event = self.gpu.runtime.event()
            event.record(stream)
            event.synchronize()

    def release(self) -> None:
        """Give all memory back; the lane is settled, and is not used again."""
        self.memory = self.memory[:0].clone()
        self.uploads.close()


def make_lane(pools: Pools, limits: Limits, gpu: Gpu) -> Lane:
    """Allocate a lane that fits any order of these pools."""
    slot_bytes = ring_slot_bytes(limits, tuple(pools.layouts.values()))
    # An order names each device slot once, and a host slot for each.
    numbers = 2 * sum(pools.config.capacity(component, GPU) for component in pools.layouts)
    return Lane(
        gpu,
        {role: gpu.runtime.stream() for role in StreamRole},
        slot_bytes,
        Ring(limits.ring_slots),
        gpu.runtime.buffer(limits.ring_slots * slot_bytes),
        slot_uploads(gpu.runtime, gpu.driver, gpu.device, numbers),
    )
