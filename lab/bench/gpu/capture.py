"""Capture: graphs are captured and replayed while copies run.

Threads of the engine enqueue copies during the capture, and the capturing thread polls. None of
their calls may break the capture, enter the graph, or be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

import torch
from attrs import frozen

from kvcanon.lab.bench.gpu.scenes import (
    Scene,
    WrongBytes,
    make_scene,
    on_device,
    pages_of,
    poison_device,
    require_same,
)
from kvcanon.lab.bench.gpu.transfers import require_all_well, run
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.cuda_runtime import CapturedGraph
from kvcanon.optimized.gpu import Gpu
from kvcanon.optimized.kernels.pages import PagedPool, PageRows, gather, paged_pool
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_transfer import page_order
from kvcanon.spec.transfer import Completion, Direction, TransferOrder
from kvcanon.spec.types import FULL

GRAPHS = 4
TRANSFERS = 8
"""Copies of each graph: one ends during the capture, others may end later."""
PATIENCE_S = 60
PRODUCTS = 50


@frozen
class CaptureFound:
    """What went well; anything else raises."""

    graphs: int
    """Captured, and replayed twice each."""
    transfers: int


@frozen(eq=False)
class _Compute:
    """Compute that a graph holds: products, and a kernel that reads pages of its own."""

    scene: Scene
    pool: PagedPool
    slots: torch.Tensor
    out: torch.Tensor
    matrices: tuple[torch.Tensor, torch.Tensor, torch.Tensor]

    def enqueue(self) -> None:
        """Enqueue all of it on the current stream."""
        left, right, product = self.matrices
        for _ in range(PRODUCTS):
            torch.mm(left, right, out=product)
        layout = self.scene.layout
        rows = PageRows(self.out.data_ptr(), layout.page_bytes)
        gather(self.pool, self.slots, rows, slice(0, layout.layers))

    def require_done(self) -> None:
        """Check what it wrote, and erase that. Raises: WrongBytes."""
        expected = pages_of(self.scene, self.scene.device_slots).flatten()
        if not torch.equal(self.out, expected):
            raise WrongBytes("a graph that was captured beside copies computes something else")
        self.out.zero_()


@frozen(eq=False)
class _CapturedLoads:
    """Loads that are enqueued, and begin to end, while a graph is captured."""

    engine: CudaEngine
    orders: list[TransferOrder]
    done: list[Completion]

    def run(self) -> None:
        """Submit all, once, and poll until one has ended. Raises: WrongBytes, if none does."""
        if not self.orders:
            return
        while self.orders:
            self.engine.submit(self.orders.pop(0))
        before, deadline = len(self.done), monotonic() + PATIENCE_S
        while len(self.done) == before:
            self.done.extend(self.engine.poll())
            if monotonic() > deadline:
                raise WrongBytes("no copy ended while a graph was captured")
            sleep(0)


def measure_capture(
    gpu: Gpu, layout: PageLayout, size_bytes: int, side: int, limits: Limits
) -> CaptureFound:
    """Capture and replay graphs beside loads. Raises: WrongBytes."""
    scene = make_scene(gpu, layout, size_bytes, scattered=True)
    compute = _compute(gpu, layout, side)
    done = list[Completion]()
    with CudaEngine(scene.pools, limits, direct_bytes=0, gpu=gpu) as engine:
        run(scene, engine, gpu, Direction.BACKUP)
        poison_device(scene)

        for graph in range(GRAPHS):
            gpu.runtime.synchronize()
            copies = _CapturedLoads(engine, _orders(scene, engine, graph), done)

            def action(copies: _CapturedLoads = copies) -> None:
                compute.enqueue()
                copies.run()

            replay = _captured(gpu, action)
            for _ in range(2):
                replay.replay()
                gpu.runtime.synchronize()
                compute.require_done()
            engine.wait(_number(graph, TRANSFERS - 1))
            done.extend(engine.poll())
        require_all_well(done, GRAPHS * TRANSFERS)
        gpu.runtime.synchronize()
        require_same(scene, Direction.LOAD_BACK)
    for each in (scene, compute.scene):
        each.pools.close()
    return CaptureFound(GRAPHS, len(done))


def _compute(gpu: Gpu, layout: PageLayout, side: int) -> _Compute:
    scene = make_scene(gpu, layout, 4 * layout.page_bytes, scattered=True)
    made = _Compute(
        scene,
        paged_pool(scene.pools.device_planes(FULL), layout),
        on_device(scene.device_slots, gpu),
        gpu.runtime.buffer(scene.size_bytes),
        (
            torch.zeros((side, side), device=gpu.device),
            torch.zeros((side, side), device=gpu.device),
            torch.zeros((side, side), device=gpu.device),
        ),
    )
    # What is captured has run once: nothing is compiled or set up during the capture.
    gpu.runtime.synchronize()
    made.enqueue()
    gpu.runtime.synchronize()
    made.require_done()
    return made


def _captured(gpu: Gpu, action: Callable[[], None]) -> CapturedGraph:
    try:
        return gpu.runtime.capture(action)
    except WrongBytes:
        raise
    except RuntimeError as error:
        raise WrongBytes(f"copies broke the capture of a graph: {error}") from error


def _orders(scene: Scene, engine: CudaEngine, graph: int) -> list[TransferOrder]:
    """Loads of all pages, which come after the work until now: a capture has no point."""
    move = scene.move(Direction.LOAD_BACK)
    return [
        page_order(
            _number(graph, at), Direction.LOAD_BACK, (move,), scene.pools, engine.event_after(None)
        )
        for at in range(TRANSFERS)
    ]


def _number(graph: int, at: int) -> int:
    return graph * TRANSFERS + at + 1
