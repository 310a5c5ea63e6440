"""Interference: how much transfers and compute slow each other down.

The threads that enqueue transfers also share the GIL with the scheduler, which is measured here,
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from time import perf_counter

import torch
from attrs import frozen

from kvcanon.lab.bench.gpu.scenes import Scene, make_scene
from kvcanon.lab.bench.gpu.timing import GIGA, timed
from kvcanon.lab.bench.gpu.transfers import require_all_well, run
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.cuda_runtime import Event
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import page_order
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import TransferId

LONGER = 1.5
"""The background is planned to last longer than the measured work by this factor."""

REPEATS = 5


@frozen
class Interference:
    """Matrix products in bf16 and transfers of one direction, alone and side by side."""

    direction: Direction
    products: int
    """How many products of two square matrices."""
    products_alone_seconds: float
    products_beside_seconds: float
    outlasted: bool
    """Whether transfers went on until the last product was done."""
    transfer_alone: float
    """GB/s."""
    transfer_beside: float
    products_outlasted: bool
    """Whether products went on until the last of the timed transfers was done."""
    scheduler_alone: float
    """Rounds per second of a Python loop."""
    scheduler_beside: float
    longest_pause_seconds: float
    """Between two rounds, while transfers were enqueued."""

    @property
    def slowdown(self) -> float:
        """By which fraction products take longer beside transfers."""
        return self.products_beside_seconds / self.products_alone_seconds - 1


@frozen(eq=False)
class _Side:
    """Transfers of one direction, and products beside them."""

    gpu: Gpu
    scene: Scene
    engine: CudaEngine
    direction: Direction
    matrices: tuple[torch.Tensor, torch.Tensor, torch.Tensor]

    def multiply(self, count: int) -> None:
        """Enqueue so many products on the current stream."""
        left, right, out = self.matrices
        for _ in range(count):
            torch.mm(left, right, out=out)

    def products_end(self) -> Event:
        """The event after which the products so far are done."""
        end = self.gpu.runtime.event()
        end.record(self.gpu.runtime.current_stream())
        return end

    def submit(self, count: int) -> TransferId:
        """Submit so many transfers to an idle device; return the id of the last."""
        self.gpu.runtime.synchronize()
        for at in range(count):
            move = self.scene.move(self.direction)
            self.engine.submit(page_order(at, self.direction, (move,), self.scene.pools))
        return count - 1

    def finish(self, last: TransferId, taken: Sequence[Completion] = ()) -> None:
        """Wait for all of them. Raises: WrongBytes."""
        self.engine.wait(last)
        require_all_well((*taken, *self.engine.poll()), last + 1)


def measure_interference(
    gpu: Gpu, layout: PageLayout, size_bytes: int, side: int, seconds: float
) -> tuple[Interference, ...]:
    """Multiply matrices of this size for about `seconds`, beside transfers of each direction."""
    left, right, out = (
        torch.randn((side, side), device=gpu.device, dtype=torch.float32).to(torch.bfloat16)
        for _ in range(3)
    )
    scene = make_scene(gpu, layout, size_bytes, scattered=True)
    with CudaEngine(scene.pools, Limits(), direct_bytes=0, gpu=gpu) as engine:
        found = tuple(
            _measure(_Side(gpu, scene, engine, direction, (left, right, out)), seconds)
            for direction in Direction
        )
    scene.pools.close()
    return found


def _measure(side: _Side, seconds: float) -> Interference:
    runtime = side.gpu.runtime
    one = timed(lambda: side.multiply(1), runtime, REPEATS).median_seconds
    products = max(1, ceil(seconds / one))
    alone = timed(lambda: side.multiply(products), runtime, REPEATS).median_seconds
    runs = [run(side.scene, side.engine, side.gpu, side.direction) for _ in range(REPEATS)]
    transfer = median(each.whole for each in runs)
    as_long = max(1, ceil(alone / transfer))
    longer = max(2, ceil(LONGER * alone / transfer))

    beside, outlasted = _products_beside(side, products, longer)
    took, products_outlasted = _transfers_beside(side, ceil(LONGER * products), as_long)
    rounds_alone, _ = _rounds(seconds)
    last = side.submit(longer)
    rounds_beside, pause = _rounds(seconds)
    side.finish(last)
    gigabytes = side.scene.size_bytes / GIGA
    return Interference(
        side.direction,
        products,
        alone,
        beside,
        outlasted,
        gigabytes / transfer,
        as_long * gigabytes / took,
        products_outlasted,
        rounds_alone,
        rounds_beside,
        pause,
    )


def _products_beside(side: _Side, products: int, transfers: int) -> tuple[float, bool]:
    """The time of products beside transfers, and whether the transfers lasted to the end."""
    last = side.submit(transfers)
    start = perf_counter()
    side.multiply(products)
    side.products_end().synchronize()
    took = perf_counter() - start
    done = side.engine.poll()
    side.finish(last, done)
    return took, len(done) < transfers


def _transfers_beside(side: _Side, products: int, transfers: int) -> tuple[float, bool]:
    """The time of transfers beside products, and whether the products lasted to the end."""
    start = perf_counter()
    last = side.submit(transfers)
    side.multiply(products)
    end = side.products_end()
    side.finish(last)
    took = perf_counter() - start
    outlasted = not end.query()
    end.synchronize()
    return took, outlasted


def _rounds(seconds: float) -> tuple[float, float]:
    """The rounds per second of a Python thread, and its longest pause."""
    start = before = perf_counter()
    rounds, longest = 0, 0.0
    while before - start < seconds:
        now = perf_counter()
        longest = max(longest, now - before)
        before = now
        rounds += 1
    return rounds / (before - start), longest
