"""Copies between device blocks and host rows on a CPU: by a thread, in the order of their begin."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from attrs import Factory, define, field

from kvcanon.optimized.vllm.regions import BlockRegion
from kvcanon.optimized.vllm.step_copies import TierCopyJob

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


class CopyEngine(Protocol):
    """Copies pages."""

    def mark_step(self) -> None:
        """Let copies that begin from now on read and write after all that is enqueued so far."""

    def begin(self, job: TierCopyJob) -> None:
        """Begin a job. A load begins after the jobs that it names."""

    def wait(self, numbers: Collection[int]) -> None:
        """Let what is enqueued from now on run after these jobs."""

    def ended(self) -> list[tuple[TierCopyJob, bool]]:
        """The jobs that ended since the last call, each with whether it moved its bytes."""

    def close(self) -> None:
        """End all jobs, and free what they use."""


@define(eq=False)
class ThreadCopies:
    """One thread copies, job after job, so that a load finds what earlier stores have written."""

    regions: Sequence[Sequence[BlockRegion]]
    """Of each group."""
    slab: torch.Tensor
    """uint8[rows, bytes of a page]."""
    _jobs: dict[int, tuple[TierCopyJob, Future[None]]] = Factory(dict)
    _failed: set[int] = Factory(set)
    _thread: ThreadPoolExecutor = field(
        factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="kvcanon-copies")
    )

    def mark_step(self) -> None:
        """Nothing to mark: a CPU's forward has ended when its call returns."""

    def begin(self, job: TierCopyJob) -> None:
        """Begin a job."""
        self._jobs[job.number] = (job, self._thread.submit(self._copy, job))

    def wait(self, numbers: Collection[int]) -> None:
        """Wait until jobs have ended."""
        for number in numbers:
            if number in self._jobs:
                self._jobs[number][1].exception()

    def ended(self) -> list[tuple[TierCopyJob, bool]]:
        """The jobs that ended since the last call, each with whether it moved its bytes."""
        done = [(job, future) for job, future in self._jobs.values() if future.done()]
        for job, future in done:
            del self._jobs[job.number]
            error = future.exception()
            if error is not None:
                logger.error("a copy of %d pages failed: %s", len(job.blocks), error)
        return [(job, future.exception() is None) for job, future in done]

    def close(self) -> None:
        """End all jobs."""
        self._thread.shutdown()

    def _copy(self, job: TierCopyJob) -> None:
        if not self._failed.isdisjoint(job.after):
            raise RuntimeError("its rows were not filled")
        try:
            self._move(job)
        except BaseException:
            # What reads these rows must not take them for filled.
            self._failed.add(job.number)
            raise

    def _move(self, job: TierCopyJob) -> None:
        for group, regions in enumerate(self.regions):
            at = [place for place, each in enumerate(job.groups) if each == group]
            blocks, rows = [job.blocks[each] for each in at], [job.rows[each] for each in at]
            for region in regions if at else ():
                host = self.slab[:, region.offset_bytes : region.offset_bytes + region.block_bytes]
                if job.to_host:
                    host[rows] = region.memory[blocks]
                else:
                    region.memory[blocks] = host[rows]
