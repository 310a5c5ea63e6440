"""kvcanon's connector under the engine: both its halves, with copies that are drawn.

Drawn copies of a rank end late, out of order, failing, or at a deadline; see `LateCopies`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

from attrs import evolve, frozen

from kvcanon.lab.connectors.connector_calls import ConnectorHalves, ConnectorReport
from kvcanon.lab.connectors.drawn_disk import DrawnDisk, KeptPages, draw_times
from kvcanon.lab.connectors.drawn_run import DrawnRun
from kvcanon.lab.connectors.engine_shape import EngineShape
from kvcanon.lab.connectors.late_copies import BlockCopy, CopiedBlock, LateCopies
from kvcanon.lab.connectors.serial_engine import InstantConnector
from kvcanon.optimized.vllm.scheduler_half import SchedulerHalf
from kvcanon.optimized.vllm.step_copies import EndedStores, StepCopies, TierCopyJob
from kvcanon.optimized.vllm.tier_shape import PageGroup, Policy, TierShape
from kvcanon.optimized.vllm.worker_half import WorkerHalf


def tier_shape(
    shape: EngineShape, host_blocks: int, policy: Policy, *, events: bool = True
) -> TierShape:
    """The sizes of kvcanon's tier for an engine."""
    return TierShape(
        rows=host_blocks,
        block_tokens=shape.block_tokens,
        groups=tuple(PageGroup(group.window_tokens) for group in shape.groups),
        ranks=shape.ranks,
        step_blocks=-(-shape.step_tokens // shape.block_tokens),
        policy=policy,
        events=events,
    )


@frozen
class DrawnEngine:
    """The copy engine of one rank, whose copies are drawn."""

    copies: LateCopies

    def mark_step(self) -> None:
        """Nothing to mark: the forward of the engine has ended when its call returns."""

    def begin(self, job: TierCopyJob) -> None:
        """Begin a job."""
        blocks = tuple(
            CopiedBlock(block, row, group)
            for block, row, group in zip(job.blocks, job.rows, job.groups, strict=True)
        )
        self.copies.begin(BlockCopy(job.number, blocks, job.to_host, job.request_id, job.after))

    def wait(self, numbers: Collection[int]) -> None:
        """Move the bytes of jobs now."""
        self.copies.end_now(numbers)

    def ended(self) -> list[tuple[TierCopyJob, bool]]:
        """The jobs that ended with this step."""
        return [(_job_of(copy), moved) for copy, moved in self.copies.tick()]

    def close(self) -> None:
        """Nothing to free."""


def drawn_kvcanon(run: DrawnRun, policy: Policy) -> ConnectorHalves:
    """kvcanon's connector with drawn copies, for a run."""  # noqa: D403  # A name.
    shape = run.shape
    half: Any = SchedulerHalf(tier_shape(shape, run.host_blocks, policy))
    return ConnectorHalves(half, [_drawn_worker(run, rank) for rank in range(shape.ranks)])


def drawn_kvcanon_over_disk(run: DrawnRun, policy: Policy) -> ConnectorHalves:
    """kvcanon's connector with drawn copies over drawn disks, which outlive its processes."""  # noqa: D403
    folders = [KeptPages() for _ in range(run.shape.ranks)]
    return _next_over_disk(run, policy, folders, 0)


def _next_over_disk(
    run: DrawnRun, policy: Policy, folders: Sequence[KeptPages], process: int
) -> ConnectorHalves:
    shape = run.shape
    half: Any = SchedulerHalf(evolve(tier_shape(shape, run.host_blocks, policy), disk=True))
    return ConnectorHalves(
        half,
        [_worker_over_disk(run, rank, folder, process) for rank, folder in enumerate(folders)],
        next_process=lambda: _next_over_disk(run, policy, folders, process + 1),
    )


def _worker_over_disk(run: DrawnRun, rank: int, folder: KeptPages, process: int) -> Any:  # noqa: ANN401
    draw, made = Random(f"copies {run.seed} {rank} {process}"), []

    def make_copies(kv_caches: Mapping[str, Any]) -> DrawnEngine:
        groups = run.shape.groups
        made.append(LateCopies(kv_caches, groups, run.host_blocks, run.times, draw))
        return DrawnEngine(made[0])

    def make_disk() -> DrawnDisk:
        return DrawnDisk(folder, made[0], draw_times(run.seed), draw)

    return WorkerHalf(make_copies, make_disk, rank)


def instant_kvcanon(shape: EngineShape, host_blocks: int, policy: Policy) -> InstantConnector:
    """kvcanon's scheduler's half, whose copies end with the step that begins them."""  # noqa: D403
    half: Any = SchedulerHalf(tier_shape(shape, host_blocks, policy, events=False))
    return InstantConnector(half, _all_ended)


def _drawn_worker(run: DrawnRun, rank: int) -> Any:  # noqa: ANN401  # A half of kvcanon's.
    draw = Random(f"copies {run.seed} {rank}")

    def make_copies(kv_caches: Mapping[str, Any]) -> DrawnEngine:
        groups = run.shape.groups
        return DrawnEngine(LateCopies(kv_caches, groups, run.host_blocks, run.times, draw))

    return WorkerHalf(make_copies)


def _all_ended(step: StepCopies) -> ConnectorReport:
    stores = Counter(job.number for job in step.stores)
    return ConnectorReport(
        finished_recving={job.request_id for job in step.loads} | step.failed_loads or None,
        failed_recving=set(step.failed_loads),
        kv_connector_worker_meta=EndedStores(stores, stores),
    )


def _job_of(copy: BlockCopy) -> TierCopyJob:
    return TierCopyJob(
        copy.number,
        [each.block_id for each in copy.blocks],
        [each.row for each in copy.blocks],
        [each.group for each in copy.blocks],
        copy.to_host,
        copy.request_id,
        copy.after,
    )
