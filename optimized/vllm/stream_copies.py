"""Copies between device blocks and host rows on a GPU: on streams of their own, behind fences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from attrs import Factory, define

from kvcanon.optimized.vllm.regions import BlockRegion
from kvcanon.optimized.vllm.step_copies import TierCopyJob


@define(eq=False)
class StreamCopies:
    """One stream for stores and one for loads; the engine's stream waits where a step must."""

    device: torch.device
    regions: Sequence[Sequence[BlockRegion]]
    """Of each group."""
    slab: torch.Tensor
    """uint8[rows, bytes of a page], pinned."""
    stores: torch.cuda.Stream
    loads: torch.cuda.Stream
    _fence: torch.cuda.Event | None = None
    """After all that the engine had enqueued when the step began."""
    _jobs: dict[int, tuple[TierCopyJob, torch.cuda.Event]] = Factory(dict)

    @classmethod
    def on_device(
        cls,
        device: torch.device,
        regions: Sequence[Sequence[BlockRegion]],
        rows: int,
        row_bytes: int,
    ) -> StreamCopies:
        """Make streams on a device, and pinned memory on the host."""
        slab = torch.empty((rows, row_bytes), dtype=torch.uint8, pin_memory=True)
        stores, loads = (_stream(device) for _ in range(2))
        return cls(device, regions, slab, stores, loads)

    def mark_step(self) -> None:
        """Let copies that begin from now on run after all that the engine has enqueued so far."""
        self._fence = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._fence.record(torch.cuda.current_stream(self.device))

    def begin(self, job: TierCopyJob) -> None:
        """Begin a job."""
        stream = self.stores if job.to_host else self.loads
        if self._fence is not None:
            stream.wait_event(self._fence)
        for number in job.after:
            if number in self._jobs:
                stream.wait_event(self._jobs[number][1])
        with torch.cuda.stream(stream):
            for host, device in self._runs(job):
                if job.to_host:
                    host.copy_(device, non_blocking=True)
                else:
                    device.copy_(host, non_blocking=True)
            ended = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ended.record(stream)
        self._jobs[job.number] = (job, ended)

    def wait(self, numbers: Collection[int]) -> None:
        """Let the engine's stream go on after these jobs."""
        current = torch.cuda.current_stream(self.device)
        for number in numbers:
            if number in self._jobs:
                current.wait_event(self._jobs[number][1])

    def ended(self) -> list[tuple[TierCopyJob, bool]]:
        """The jobs that ended since the last call."""
        done = [number for number, (_, event) in self._jobs.items() if event.query()]  # type: ignore[no-untyped-call]
        return [(self._jobs.pop(number)[0], True) for number in done]

    def close(self) -> None:
        """Wait for all jobs."""
        self.stores.synchronize()
        self.loads.synchronize()

    def _runs(self, job: TierCopyJob) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Host and device memory of each run of consecutive blocks and rows, in every region."""
        for first, count in consecutive_runs(job):
            block, row = job.blocks[first], job.rows[first]
            for region in self.regions[job.groups[first]]:
                begin, end = region.offset_bytes, region.offset_bytes + region.block_bytes
                yield (
                    self.slab[row : row + count, begin:end],
                    region.memory[block : block + count],
                )


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def consecutive_runs(job: TierCopyJob) -> Iterator[tuple[int, int]]:
    """The runs of a job whose blocks and rows both go up by one: the first place, and how many."""
    first = 0
    for at in range(1, len(job.blocks) + 1):
        goes_on = (
            at < len(job.blocks)
            and job.groups[at] == job.groups[first]
            and job.blocks[at] == job.blocks[at - 1] + 1
            and job.rows[at] == job.rows[at - 1] + 1
        )
        if not goes_on:
            yield first, at - first
            first = at
